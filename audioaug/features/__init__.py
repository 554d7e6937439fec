"""Features: augmentation of spectrograms, after the audio: ``SpecAugment``."""

from audioaug.features.policy import Policy
from audioaug.features.spec_augment import PreparedMasks, SpecAugment

__all__ = ["Policy", "PreparedMasks", "SpecAugment"]
