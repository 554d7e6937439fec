"""What a report says of the chain before anything is measured."""

from types import SimpleNamespace

from audioaug import Chain, build_device, ops
from audioaug.advise.facts import chain_facts


def test_what_is_one_pass_is_what_the_module_prints() -> None:
    gain, mask = ops.Gain(p=1.0), ops.TimeMask(p=1.0)
    chain = Chain([mask, gain, ops.LowPassFilter(p=1.0), mask, gain, ops.PolarityInversion(p=1.0), gain], 16000)
    facts = chain_facts(SimpleNamespace(chain=chain, least_cut=0))
    assert facts.fused == ((1, 3), (4, 7))
    printed = str(build_device(chain))
    for start, stop in facts.fused:
        assert " + ".join(facts.ops[start:stop]) in printed
    assert chain_facts(SimpleNamespace(chain=Chain([mask, gain], 16000), least_cut=0)).fused == ()
