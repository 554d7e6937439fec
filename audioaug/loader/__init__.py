"""The Loader that users train with and the advisor races, and what it is made of.

From a dataset to a batch: ``sampling`` chooses the examples (``buckets`` those of similar length), ``worker`` reads,
augments and collates them (``examples`` finds the audio, ``targets`` transforms labels), ``pickling`` sends the batch,
``pipeline`` holds the DataLoader and the device part of one plan, ``prefetch`` stays one batch ahead, and ``loader``
iterates over epochs. ``trial`` chooses a plan, ``failures_*`` say what went wrong, ``processes`` is about several of
them, and ``monitor`` watches a training loop.
"""

from audioaug.loader.buckets import BucketBatchSampler
from audioaug.loader.loader import Loader
from audioaug.loader.monitor import Monitor
from audioaug.loader.prefetch import prefetch
from audioaug.loader.targets import Frames, Label, Segments, Stamps

__all__ = ["BucketBatchSampler", "Frames", "Label", "Loader", "Monitor", "Segments", "Stamps", "prefetch"]
