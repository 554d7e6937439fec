"""Ray Data: a chain on any number of nodes, with the audio that the Loader gives by key.

``Augment`` is the worker part, in actors; ``batches`` the device part, where the model trains.
"""

from audioaug.integrations.ray.augment import Augment
from audioaug.integrations.ray.batches import Batches, batches
from audioaug.integrations.ray.epochs import SharedEpoch

__all__ = ["Augment", "Batches", "SharedEpoch", "batches"]
