"""The ceiling, with planted training steps."""

import pytest

from audioaug.errors import MeasurementError
from audioaug.measure import FakeClock, measure_steps


def test_seconds_a_step_in_blocks(clock: FakeClock) -> None:
    timing = measure_steps(lambda batch: clock.advance(0.25), [0], clock, seconds=10.75, warm_up=3)
    assert timing.seconds == (0.25,) * 4  # 0.75 s of warm-up, 4 blocks of 2.5 s


def test_device_overlaps_within_a_block(clock: FakeClock) -> None:
    def step(batch: int) -> None:
        clock.advance(0.25)  # the host is ahead of the device ...
        clock.launch(0.5)

    timing = measure_steps(step, [0], clock, seconds=0, block_steps=8)
    assert set(timing.seconds) == {0.5 + 0.25 / 8}  # ... so it shows only once a block


def test_batches_are_used_in_turn(clock: FakeClock) -> None:
    seen: list[str] = []

    def step(batch: str) -> None:
        seen.append(batch)
        clock.advance(0.5)

    measure_steps(step, ["a", "b", "c"], clock, seconds=0, block_steps=4, warm_up=1, at_least=2)
    assert "".join(seen) == "abcabcabc"


def test_no_batch_is_an_error(clock: FakeClock) -> None:
    with pytest.raises(MeasurementError, match="without a batch"):
        measure_steps(lambda batch: None, [], clock, seconds=1)
