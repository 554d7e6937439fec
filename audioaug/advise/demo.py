"""What a model file leaves open: the bundled demo audio and a chain of common augmentations on it."""

from pathlib import Path

from audioaug import ops
from audioaug.core import Chain
from audioaug.errors import DataError

FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "demo"
CLIP_SECONDS = 1.0
SAMPLE_RATE = 16000


def demo_folder(name: str, instead: str) -> str:
    """Return one of the folders of demo audio; raise ``DataError`` saying what to name instead if there is none."""
    folder = FOLDER / name
    if not folder.is_dir():
        raise DataError(f"The demo audio is not installed ({folder} is missing).", instead)
    return str(folder)


def demo_chain(sample_rate: int) -> Chain:
    """Return a chain for speech in rooms with background noise."""
    instead = "Define `augment` in the model file or name --augment."
    return Chain(
        [
            ops.Shift(p=0.5),
            ops.ApplyImpulseResponse(ir_path=demo_folder("rooms", instead), p=0.5),
            ops.AddBackgroundNoise(sounds_path=demo_folder("noise", instead), p=0.7),
            ops.LowPassFilter(p=0.3),
            ops.Gain(p=0.5),
            ops.TimeMask(p=0.3),
        ],
        sample_rate,
    )
