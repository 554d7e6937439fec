"""Training: the Loader that users train with and the advisor races, and what it is made of.

``examples`` finds the audio in whatever a dataset returns, ``fetch`` is what runs in the workers, ``targets`` are
labels that follow the audio, ``device_prefetch`` keeps the next batch under way, ``loader`` puts them together, for a
``stream`` too; ``trial`` finds it a plan; ``own_dataloader`` is for those who keep theirs. ``monitor`` looks at the
loop around it; ``monitor_outputs`` is where that goes.
"""

from audioaug.loader.loader import Loader
from audioaug.loader.monitor import Monitor
from audioaug.loader.own_dataloader import prefetch
from audioaug.loader.targets import Frames, Label, Segments, Stamps

__all__ = ["Frames", "Label", "Loader", "Monitor", "Segments", "Stamps", "prefetch"]
