"""What draws do to the time of a batch's examples, and which examples they mix, without any audio."""

import pytest

from audioaug import Chain, ops
from audioaug.core import Timeline, follow

RATE = 16000


def test_shares_of_a_mixed_example_are_those_of_the_drawn_level() -> None:
    chain = Chain([ops.Mix(min_snr_in_db=6.0, max_snr_in_db=6.0, p=1.0)], RATE)
    origins = follow(chain, chain.draw(range(8)), [Timeline.identity(100)] * 8)
    mixed = [each for each in origins if len(each) > 1]
    assert mixed
    for own, other in mixed:
        assert own.share == pytest.approx(10**0.6 / (1 + 10**0.6))
        assert other.share == pytest.approx(1 / (1 + 10**0.6))


def test_no_op_changes_an_empty_clip() -> None:
    chain = Chain([ops.AdjustDuration(duration_samples=700, p=1.0)], RATE)
    origins = follow(chain, chain.draw(range(2)), [Timeline.identity(0), Timeline.identity(500)])
    assert [each.timeline.length_out for (each,) in origins] == [0, 700]
