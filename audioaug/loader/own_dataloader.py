"""Your own DataLoader: the device part of a chain behind it, one batch ahead on a stream of its own.

Shapes: B examples, C channels, T samples.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from audioaug.engine import DeviceChain
from audioaug.errors import DataError
from audioaug.loader.device_prefetch import as_device, run_ahead, to_device
from audioaug.loader.examples import Where, audio_field, get_wave, item_of, with_item, with_wave


def prefetch(
    loader: Iterable[Any],
    device: str | torch.device | None,
    module: DeviceChain,
    *,
    index: Where | None = None,
    epoch: int = 0,
    lengths: Where | None = None,
    audio_key: Where | None = None,
) -> Iterator[Any]:
    """Yield the batches of one epoch on the device, augmented by the module, the next one already on its way.

    For those who keep their own DataLoader: ``worker, module = audioaug.split(chain, plan, seed)``, the worker in the
    Dataset or in ``collate_fn``, the module here. Give both the same index and epoch, and the audio is that of
    ``Loader``, wherever the plan cuts. Batches should come from pinned memory, so that the copy can overlap.

    Args:
        loader: batches: a tensor, a tuple that starts with it, or a dict with it under ``"audio"`` (see ``audio_key``).
            All other tensors go to the device too.
        device: ``"cuda"`` and the like; the GPU, if there is one, for ``None``.
        module: the device part; in ``eval`` mode it leaves the audio as it is.
        index: where in a batch the examples' numbers in the dataset are, (B,) on the CPU, which their draws follow.
            Without it, the module draws anew for every batch.
        epoch: which the worker part was given; only used with ``index``.
        lengths: where in a batch the clips' lengths are, (B,) integers in samples on the CPU, if it is padded; replaced
            by the new ones.
        audio_key: where in a batch the audio is; by default, where ``Loader`` looks for it in an example.

    Shape:
        audio in a batch: (B, T) or (B, C, T), as it comes.

    Raises:
        DeviceError: there is no such device.
        DataError: a batch has no audio, index or lengths where it should, or lengths that are not integers from 0 to T.

    Examples:
        >>> import torch
        >>> import audioaug
        >>> chain = audioaug.Chain([audioaug.ops.Gain(p=1.0), audioaug.ops.Reverse(p=1.0)], sample_rate=16000)
        >>> worker, module = audioaug.split(chain, audioaug.Plan(cut=1))
        >>> dataset = [(worker(torch.ones(4).numpy(), index=k), 7, k) for k in range(6)]
        >>> batches = audioaug.prefetch(torch.utils.data.DataLoader(dataset, batch_size=3), "cpu", module, index=2)
        >>> [(wave.shape, label.tolist()) for wave, label, index in batches]
        [(torch.Size([3, 4]), [7, 7, 7]), (torch.Size([3, 4]), [7, 7, 7])]
    """
    target = as_device(device)
    what, cure = "A batch", "Give prefetch the key or the position."

    def finish(batch: Any) -> Any:
        numbers = None if index is None else item_of(batch, index, what, cure)
        given = None if lengths is None else item_of(batch, lengths, what, cure)
        moved, key = to_device(batch, target), audio_field(batch, audio_key, what)
        wave, length_B = module(_wave(moved, key), lengths=given, return_lengths=True, index=numbers, epoch=epoch)
        return with_wave(moved if lengths is None else with_item(moved, lengths, length_B), wave, key)

    return run_ahead(loader, target, finish)


def _wave(batch: Any, key: Where | None) -> torch.Tensor:
    wave = get_wave(batch, key)
    if not isinstance(wave, torch.Tensor):
        raise DataError(
            f"The audio of a batch is a {type(wave).__name__}, but it must be one tensor, (B, T) or (B, C, T).",
            "Let collate_fn stack the waves.",
        )
    return wave
