"""Float32: what ops compute in, whatever torch's default type is and whether the model trains under autocast."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def in_float32(device_type: str) -> AbstractContextManager[None]:
    """Return a context without autocast in which new tensors are float32 by default, as torch itself has it.

    Where that is so already, it does nothing, since torch takes 40 us to switch autocast off. Torch's default type is
    one for all threads.
    """
    plain = torch.get_default_dtype() == torch.float32 and not torch.is_autocast_enabled(device_type)
    return nullcontext() if plain else _in_float32(device_type)


@contextmanager
def _in_float32(device_type: str) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.autocast(device_type, enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)
