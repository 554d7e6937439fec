"""What review 6 (security and robustness) found, by its numbers: each finding has a test that failed before its fix."""

import multiprocessing

import torch

from audioaug import Chain, Loader, Plan, ops


class WithItsOwnQueue:
    """A dataset whose examples put something into a queue of its own, the first of which cannot be pickled."""

    def __init__(self) -> None:
        self.queue = multiprocessing.get_context("fork").Queue()

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> torch.Tensor:
        self.queue.put((lambda: None) if index == 0 else torch.full((3,), float(index)).tolist())
        return torch.ones(9)


def test_r6_07_a_datasets_own_queue_is_as_torch_has_it(capfd):
    dataset, plan = WithItsOwnQueue(), Plan(cut=1, num_workers=1, start_method="fork")
    assert len(list(Loader(dataset, Chain([ops.Gain()], sample_rate=16000), plan, device="cpu"))) == 3
    assert [dataset.queue.get(timeout=120) for _ in range(2)] == [[1.0] * 3, [2.0] * 3]
    assert "Can't pickle" in capfd.readouterr().err  # as Python's queue says of the first
    dataset.queue.close()
