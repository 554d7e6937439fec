"""audioaug: write an augmentation chain once, run it on the CPU, the GPU or split, where your training is fastest.

=================  =====================================================================================================
``ops``            the transforms, by their audiomentations names: ``ops.Gain(p=0.5)``
``Chain``          an ordered list of ops and a sample rate; ``from_yaml``, ``from_audiomentations``, ``draw``
``Draws``          every random decision for a batch, as a table that can be saved and replayed
``build_cpu``      a chain (or its first ops) as a callable on one clip: audiomentations, fed with our draws
``build_device``   a chain (or its last ops) as an ``nn.Module`` on batches of tensors
``split``          both parts at a plan's cut
``Plan``           where to cut, and the DataLoader's settings: what the advisor writes
``Loader``         augmented batches on the device, by a plan
``BucketBatchSampler``  examples of similar length in one batch: ``Loader(batch_sampler=...)``
``Monitor``        around a training loop: what it waits for and what it uses, live and logged
``Frames``         frame-level labels that follow the audio: ``Loader(targets={"active": Frames(0.01)})``
``Stamps``         time stamps that follow the audio
``Segments``       labels with start and end that follow the audio
``Label``          the class of an example, mixed where examples are
``prefetch``       the device part after a DataLoader of your own
``SpecAugment``    masks and warps spectrograms inside a model, drawn by key
``AudioFolder``    a folder or manifest of audio as a Dataset
``recommend``      the advisor: measures a model with a chain and a dataset, and returns a ``Report``
``Report``         the results of the advisor: ``report.plan``, ``report.to_html(path)``
``errors``         all exceptions, in one tree
=================  =====================================================================================================

The advisor is a command, too: ``audioaug advise --model mymodel.py``.

Names are imported on first use, so that ``audioaug --help`` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audioaug import errors, ops
    from audioaug.advise import recommend
    from audioaug.audio.folder import AudioFolder
    from audioaug.core import Chain, Draws
    from audioaug.engine import build_cpu, build_device, split
    from audioaug.features import SpecAugment
    from audioaug.loader import BucketBatchSampler, Frames, Label, Loader, Monitor, Segments, Stamps, prefetch
    from audioaug.records import Plan, Report

__version__ = "0.2.0"
__all__ = [
    "AudioFolder",
    "BucketBatchSampler",
    "Chain",
    "Draws",
    "Frames",
    "Label",
    "Loader",
    "Monitor",
    "Plan",
    "Report",
    "Segments",
    "SpecAugment",
    "Stamps",
    "build_cpu",
    "build_device",
    "errors",
    "ops",
    "prefetch",
    "recommend",
    "split",
]

_MODULES = {
    "advise": ("recommend",),
    "audio.folder": ("AudioFolder",),
    "engine": ("build_cpu", "build_device", "split"),
    "features": ("SpecAugment",),
    "core": ("Chain", "Draws"),
    "records": ("Plan", "Report"),
    "loader": ("BucketBatchSampler", "Frames", "Label", "Loader", "Monitor", "Segments", "Stamps", "prefetch"),
}
"""The public names by the module that defines them; ``errors`` and ``ops`` are modules themselves."""

if not TYPE_CHECKING:  # type checkers follow the imports above

    def __getattr__(name):
        """Import a public name on first use."""
        if name in ("errors", "ops"):
            return import_module(f"audioaug.{name}")
        for module, names in _MODULES.items():
            if name in names:
                import_module("audioaug.ops")  # registers the ops, which Chain.from_yaml looks up by name
                value = globals()[name] = getattr(import_module(f"audioaug.{module}"), name)
                return value
        raise AttributeError(f"module 'audioaug' has no attribute {name!r}")

    def __dir__():
        return [*__all__, "__version__"]
