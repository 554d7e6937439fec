"""Features: spectrograms of the audio. ``LogMel`` is the op that makes them, ``SpecAugment`` masks them."""

from audioaug.features.policy import Policy
from audioaug.features.spec_augment import PreparedMasks, SpecAugment
from audioaug.ops.log_mel import LogMel

__all__ = ["LogMel", "Policy", "PreparedMasks", "SpecAugment"]
