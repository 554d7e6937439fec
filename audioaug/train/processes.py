"""Processes: which of those that train together this is (distributed data parallel training)."""

import torch.distributed


def rank_and_size() -> tuple[int, int]:
    """Return which process of how many this is: (0, 1) if it trains alone."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
