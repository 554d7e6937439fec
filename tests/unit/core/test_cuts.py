"""Where a chain may be cut."""

import pytest

from audioaug import ops
from audioaug.core import Chain
from audioaug.errors import PlanError
from tests.helpers.op_examples import DEMO

MP3 = ops.Mp3Compression()
MIDDLE = Chain([ops.Gain(), MP3, ops.Clip(), ops.Reverse()], 16000)
CONTAINED = Chain([ops.Gain(), ops.Clip(), ops.OneOf([ops.Gain(), ops.Compose([ops.SomeOf(1, [MP3])])])], 16000)


def test_without_a_cpu_only_op_every_cut_is_allowed():
    chain = Chain([ops.Gain(), ops.Clip()], 16000)
    assert chain.device_from == 0 and len(chain) == 2
    assert [chain.why_not_cut(cut) for cut in range(3)] == ["", "", ""]
    assert [chain.checked_cut(cut) for cut in (0, 1, 2, None)] == [0, 1, 2, 2]


def test_an_mp3_in_the_middle_keeps_everything_before_it_in_the_workers():
    assert MIDDLE.device_from == 2
    assert [bool(MIDDLE.why_not_cut(cut)) for cut in range(5)] == [True, True, False, False, False]
    assert MIDDLE.why_not_cut(1) == "Mp3Compression: LAME encodes one clip at a time, on the CPU."


def test_a_container_is_cpu_only_when_something_inside_is():
    assert CONTAINED.device_from == 3
    assert [CONTAINED.why_not_cut(cut)[:14] for cut in range(4)] == ["Mp3Compression"] * 3 + [""]


def test_the_last_of_several_decides():
    assert Chain([MP3, ops.Gain(), MP3, ops.Gain()], 16000).device_from == 3


def test_a_response_that_makes_clips_longer_needs_lengths():
    op = ops.ApplyImpulseResponse(ir_path=DEMO / "rooms", leave_length_unchanged=False)
    assert Chain([ops.Gain(), op], 16000).device_from == 0
    assert Chain([ops.Trim(), op], 16000).device_from == 1


@pytest.mark.parametrize(("chain", "cut"), [(MIDDLE, 0), (MIDDLE, 1), (CONTAINED, 2)])
def test_an_impossible_cut_raises_with_the_reason_and_the_first_possible_one(chain, cut):
    with pytest.raises(PlanError) as caught:
        chain.checked_cut(cut)
    assert f"cannot be cut at {cut}. Mp3Compression: LAME" in str(caught.value)
    later = "" if chain.device_from == len(chain) else " or later"
    assert str(caught.value).endswith(f"Cut at {chain.device_from}{later}.")


@pytest.mark.parametrize("cut", [-1, 5])
def test_a_cut_outside_the_chain_raises(cut):
    with pytest.raises(PlanError, match=f"has 4 ops, so a cut lies between 0 and 4, not at {cut}"):
        MIDDLE.checked_cut(cut)
    with pytest.raises(PlanError, match="has 1 op, so a cut lies between 0 and 1"):
        Chain([ops.Gain()], 16000).checked_cut(2)


def test_an_empty_chain_has_one_cut():
    chain = Chain([], 16000)
    assert chain.device_from == 0 and chain.checked_cut(None) == 0 and chain.why_not_cut(1)


TIMES = (ops.Gain(), ops.OneOf([ops.Gain(), ops.Trim()]), ops.Clip())


def test_sized_from_is_after_the_last_op_that_changes_lengths():
    assert [Chain(TIMES[:count], 16000).sized_from for count in range(4)] == [0, 0, 2, 2]


def test_first_cut_keeps_cpu_only_ops_in_workers():
    assert [MIDDLE.first_cut(on_clips) for on_clips in range(5)] == [2, 2, 2, 3, 4]
    on_device = Chain([ops.Gain(), ops.Mix(), ops.Trim()], 16000)  # Mix needs a whole batch
    assert on_device.worker_until == 1 and on_device.first_cut(on_device.sized_from) == 1
