"""What a model file leaves open: the bundled demo audio and a chain of common augmentations on it."""

from audioaug import ops
from audioaug.audio.demo import demo_folder
from audioaug.core import Chain

CLIP_SECONDS = 1.0


def demo_chain(sample_rate: int) -> Chain:
    """Return a chain for speech in rooms with background noise."""
    return Chain(
        [
            ops.Shift(p=0.5),
            ops.ApplyImpulseResponse(ir_path=demo_folder("rooms"), p=0.5),
            ops.AddBackgroundNoise(sounds_path=demo_folder("noise"), p=0.7),
            ops.LowPassFilter(p=0.3),
            ops.Gain(p=0.5),
            ops.TimeMask(p=0.3),
        ],
        sample_rate,
    )
