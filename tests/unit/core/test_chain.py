"""Chain: from and to dict, YAML and audiomentations; its hash; what is refused and with which sentence."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from audioaug import ops
from audioaug.core import Chain, Feature
from audioaug.errors import ChainError, DataError, OutputError
from tests.helpers.op_examples import DEMO, OPS, example, library, variants

EVERY_VARIANT = [(kind, None) for kind in OPS] + [(kind, name) for kind in OPS for name in variants(kind)]
NESTED = Chain(
    [
        ops.OneOf(
            [
                ops.SomeOf((0, None), [ops.Gain(), ops.Clip(), ops.Shift(shift_unit="samples", max_shift=80)], p=0.75),
                ops.Compose([ops.Reverse(p=0.125), ops.Normalize()], p=0.5, shuffle=True),
            ],
            p=0.25,
            weights=[1.0, 3.0],
        ),
        ops.SomeOf(2, [ops.Gain(), ops.Clip(), ops.Mp3Compression()]),
    ],
    sample_rate=44100,
)


def declared(kind, name):
    return variants(kind)[name] if name else example(kind)


def label(value):
    return value.__name__ if isinstance(value, type) else value or "defaults"


@pytest.mark.parametrize(("kind", "name"), EVERY_VARIANT, ids=label)
def test_every_field_of_every_op_survives_yaml(kind, name, tmp_path):
    chain = Chain([ops.Gain(), declared(kind, name)], sample_rate=22050)
    chain.to_yaml(tmp_path / "chain.yaml")
    again = Chain.from_yaml(tmp_path / "chain.yaml", code=True)
    assert again == chain and again.hash == chain.hash
    assert Chain.from_dict(chain.to_dict(), code=True) == chain


@pytest.mark.filterwarnings("ignore:The .* backend is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The signal_gain_in_db_during_noise parameter is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, name in EVERY_VARIANT if library(kind) == "audiomentations"], ids=label
)
def test_every_field_of_every_op_survives_audiomentations(kind, name):
    chain = Chain([declared(kind, name), ops.Gain()], sample_rate=22050)
    assert Chain.from_audiomentations(chain.to_audiomentations(), sample_rate=22050) == chain


@pytest.mark.parametrize(
    "op", [example(kind) for kind in OPS if library(kind) != "audiomentations"], ids=lambda op: op.name
)
def test_ops_of_other_libraries_are_not_sent_to_audiomentations(op):
    library = op.capabilities.library
    inside = [] if isinstance(op, Feature) else [Chain([ops.OneOf([ops.Gain(), op])], 16000)]
    for chain in (Chain([ops.Gain(), op], 16000), *inside):
        with pytest.raises(ChainError, match=f"audiomentations has no {op.name}, which is a transform of {library}"):
            chain.to_audiomentations()


@pytest.mark.parametrize(("kind", "name"), [pair for pair in EVERY_VARIANT if pair[1]], ids=label)
def test_every_field_of_every_op_changes_the_hash(kind, name):
    assert Chain([declared(kind, name)], 16000).hash != Chain([example(kind)], 16000).hash


@settings(max_examples=40, derandomize=True, database=None)
@given(
    low=st.floats(-100, 100, allow_subnormal=False),
    span=st.floats(0, 100, allow_subnormal=False),
    p=st.floats(0, 1, allow_subnormal=False),
    rate=st.integers(1, 10**6),
    copies=st.integers(0, 4),
)
def test_any_numbers_survive_dict_and_yaml(low, span, p, rate, copies):
    chain = Chain([ops.Gain(min_gain_db=low, max_gain_db=low + span, p=p)] * copies, sample_rate=rate)
    again = Chain.from_dict(yaml.safe_load(yaml.safe_dump(chain.to_dict())))
    assert again == chain and again.hash == chain.hash


def test_containers_survive_both_ways(tmp_path):
    NESTED.to_yaml(tmp_path / "nested.yaml")
    assert Chain.from_yaml(tmp_path / "nested.yaml") == NESTED
    again = Chain.from_audiomentations(NESTED.to_audiomentations(), sample_rate=44100)
    assert again.ops[0].weights == pytest.approx((0.25, 0.75))  # audiomentations keeps them normalised
    assert again.ops[0].transforms == NESTED.ops[0].transforms and again.ops[1] == NESTED.ops[1]


@pytest.mark.parametrize("arguments", [{"p": 0.5}, {"shuffle": True}, {"p": 0.5, "shuffle": True}])
def test_a_compose_with_a_coin_or_shuffled_stays_one_node(arguments):
    import audiomentations

    compose = audiomentations.Compose([audiomentations.Gain(), audiomentations.Clip()], **arguments)
    chain = Chain.from_audiomentations(compose, sample_rate=8000)
    assert chain.ops == (ops.Compose([ops.Gain(), ops.Clip()], **arguments),)


def test_a_plain_compose_a_list_and_a_single_transform_are_taken_over():
    import audiomentations

    gain, clip = audiomentations.Gain(p=0.125), audiomentations.Clip()
    expected = (ops.Gain(p=0.125), ops.Clip())
    assert Chain.from_audiomentations(audiomentations.Compose([gain, clip]), 8000).ops == expected
    assert Chain.from_audiomentations([gain, clip], 8000).ops == expected
    assert Chain.from_audiomentations(gain, 8000).ops == expected[:1]


def test_ops_unknown_to_audiomentations_raise():
    with pytest.raises(ChainError, match=r"builtins\.function is not a transform of audiomentations"):
        Chain.from_audiomentations([lambda samples, sample_rate: samples], 16000)
    newer = type("FromTheFuture", (), {"__module__": "audiomentations.augmentations.from_the_future"})
    with pytest.raises(ChainError, match="no transform 'FromTheFuture'"):
        Chain.from_audiomentations(newer(), 16000)


def test_yaml_as_the_readme_has_it(tmp_path):
    path = tmp_path / "chain.yaml"
    path.write_text(
        f"""
        # two entries, in any order
        transforms:
          - AddBackgroundNoise: {{sounds_path: {DEMO / "noise"}, min_snr_db: 3, max_snr_db: 30, p: 0.5}}
          - OneOf: {{transforms: [{{LowPassFilter: {{p: 1.0}}}}, {{Mp3Compression: {{p: 1.0}}}}], p: 0.3}}
          - Gain
          - Clip:
        sample_rate: 16000
        """
    )
    assert Chain.from_yaml(path) == Chain(
        [
            ops.AddBackgroundNoise(sounds_path=str(DEMO / "noise")),
            ops.OneOf([ops.LowPassFilter(p=1.0), ops.Mp3Compression(p=1.0)], p=0.3),
            ops.Gain(),
            ops.Clip(),
        ],
        sample_rate=16000,
    )


def test_the_hash_does_not_change_with_formatting():
    plain = Chain.from_dict(yaml.safe_load("{sample_rate: 16000, transforms: [{Gain: {min_gain_db: -6.0, p: 0.25}}]}"))
    other = Chain.from_dict(
        yaml.safe_load(
            "# a comment\ntransforms:\n- Gain:\n    p: 0.250\n    max_gain_db: 12\n    min_gain_db: -6\n"
            "sample_rate: 16000.0\n"
        )
    )
    assert plain == other and plain.hash == other.hash
    assert len(plain.hash) == 16 and int(plain.hash, 16) >= 0


def test_the_hash_changes_with_rate_order_and_number_of_ops():
    gain, clip = ops.Gain(), ops.Clip()
    chains = [Chain([gain, clip], 16000), Chain([clip, gain], 16000), Chain([gain], 16000), Chain([gain, clip], 8000)]
    chains += [Chain([ops.Compose([gain, clip])], 16000), Chain([], 16000), Chain([gain, gain, clip], 16000)]
    assert len({chain.hash for chain in chains}) == len(chains)


WRONG = [
    ("{sample_rate: 16000, transforms: [{Gian: {}}]}", "There is no transform 'Gian'. Did you mean Gain?"),
    (
        "{sample_rate: 16000, transforms: [{Gain: {min_gain: -6}}]}",
        "Gain has no argument 'min_gain'. Did you mean min_gain_db?",
    ),
    ("{sample_rate: 16000, transforms: [{Gain: {p: 2}}]}", "Gain: p is 2, but it must be between 0 and 1."),
    ("{sample_rate: 16000, transforms: [{Gain: 3}]}", "Gain: its arguments are 3, but they must be a mapping"),
    (
        "{sample_rate: 16000, transforms: [{Gain: {}, Clip: {}}]}",
        "A transform is written as one name with its arguments",
    ),
    ("{sample_rate: 16000, transforms: [3]}", "A transform is written as one name with its arguments"),
    ("{sample_rate: 16000, transforms: Gain}", "The chain: transforms is 'Gain', but it must be a list."),
    (
        "{sample_rate: 16000, transforms: [{OneOf: {transforms: [{Gaain: {}}]}}]}",
        "There is no transform 'Gaain'. Did you mean Gain?",
    ),
    ("{sample_rate: 16000, transforms: [{OneOf: {transforms: 3}}]}", "OneOf: transforms is 3, but it must be a list."),
    ("{sample_rate: 16000, transforms: [OneOf]}", "OneOf: missing a required argument: 'transforms'."),
    (
        "{sample_rate: 16000, transforms: [AddBackgroundNoise]}",
        "AddBackgroundNoise: missing a required argument: 'sounds_path'.",
    ),
    ("{transforms: [Gain]}", "The chain has no sample_rate. Add a line such as `sample_rate: 16000`."),
    ("{sample_rate: 16000, transform: [Gain]}", "A chain has no entry 'transform'. Did you mean transforms?"),
    ("{sample_rate: 16000}", "The chain has no transforms. Add `transforms:` with a list"),
    (
        "{sample_rate: 16000, transforms: [], samplerate: 8000}",
        "A chain has no entry 'samplerate'. Did you mean sample_rate?",
    ),
    ("[Gain]", "A chain is written as a mapping"),
    ("", "A chain is written as a mapping"),
    (
        "{sample_rate: fast, transforms: []}",
        "The chain's sample_rate is 'fast', but it must be a whole number of hertz, at least 1.",
    ),
    ("{sample_rate: null, transforms: []}", "The chain's sample_rate is None, but"),
    ("{sample_rate: .nan, transforms: []}", "The chain's sample_rate is nan, but"),
    ("{sample_rate: 0, transforms: []}", "The chain's sample_rate is 0, but"),
    ("{sample_rate: -1, transforms: []}", "The chain's sample_rate is -1, but"),
    ("{sample_rate: true, transforms: []}", "The chain's sample_rate is True, but"),
    ("{sample_rate: 44100.5, transforms: []}", "The chain's sample_rate is 44100.5, but"),
    ("transforms: [", "is not YAML: "),
    ("a: b: c", "is not YAML: "),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG, ids=[text or "empty" for text, _ in WRONG])
def test_invalid_file_raises_with_its_name_and_the_problem(text, sentence, tmp_path):
    path = tmp_path / "mychain.yaml"
    path.write_text(text)
    with pytest.raises(ChainError) as caught:
        Chain.from_yaml(path)
    assert str(caught.value).startswith(str(path)) and sentence in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path):
    with pytest.raises(ChainError, match=rf"Cannot read the chain {tmp_path}/none\.yaml: No such file or directory\."):
        Chain.from_yaml(tmp_path / "none.yaml")
    with pytest.raises(ChainError, match=str(tmp_path)):
        Chain.from_yaml(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    with pytest.raises(ChainError, match=r"binary\.yaml is not YAML"):
        Chain.from_yaml(tmp_path / "binary.yaml")
    with pytest.raises(OutputError, match="No such file or directory"):
        NESTED.to_yaml(tmp_path / "none" / "chain.yaml")


def test_object_that_is_not_an_op_raises():
    with pytest.raises(ChainError, match=r"builtins\.str.*Chain\.from_audiomentations takes"):
        Chain(["Gain"], 16000)
    with pytest.raises(ChainError, match="takes a list of ops, but this is a Gain"):
        Chain(ops.Gain(), 16000)


@pytest.mark.parametrize(
    "declare", [ops.AddBackgroundNoise, ops.ApplyImpulseResponse], ids=["noise", "impulse responses"]
)
@pytest.mark.parametrize("inside", [False, True], ids=["top level", "in a container"])
def test_missing_or_empty_folder_raises_when_the_chain_is_made(declare, inside, tmp_path):
    field = {ops.AddBackgroundNoise: "sounds_path", ops.ApplyImpulseResponse: "ir_path"}[declare]
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "missing", tmp_path / "empty"):
        op = declare(**{field: folder})
        with pytest.raises(DataError, match=str(folder)):
            Chain([ops.OneOf([op]) if inside else op], 16000)
    with pytest.raises(DataError, match="Expected a path or a list of paths, got 3"):
        Chain([declare(**{field: 3})], 16000)


def test_a_path_may_be_a_path_object_a_file_or_a_list(tmp_path):
    for path in (DEMO / "noise", DEMO / "noise" / "fan.flac", [DEMO / "noise" / "fan.flac", str(DEMO / "rooms")]):
        chain = Chain([ops.AddBackgroundNoise(sounds_path=path)], 16000)
        chain.to_yaml(tmp_path / "chain.yaml")
        again = Chain.from_yaml(tmp_path / "chain.yaml")
        assert again.draw(range(20)) == chain.draw(range(20)) and again.hash == chain.hash
    assert again.ops[0].sounds_path == (str(DEMO / "noise" / "fan.flac"), str(DEMO / "rooms"))


def test_paths_and_positions_number_the_nodes_depth_first():
    nodes = [node for top in NESTED.nodes for node in top.walk()]
    assert [node.path for node in nodes][:6] == ["0", "0.0", "0.0.0", "0.0.1", "0.0.2", "0.1"]
    assert [node.position for node in nodes] == list(range(len(nodes)))
    assert len(set(NESTED.columns)) == len(NESTED.columns)


def test_hash_ignores_paths(monkeypatch):
    monkeypatch.chdir(DEMO)
    absolute, relative = (
        Chain([ops.AddBackgroundNoise(sounds_path=path)], 16000) for path in (str(DEMO / "noise"), "noise/")
    )
    other = Chain([ops.AddBackgroundNoise(sounds_path="rooms")], 16000)
    assert absolute.hash == relative.hash != other.hash
