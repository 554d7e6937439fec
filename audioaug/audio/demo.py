"""Demo: the audio that is installed with the package: speech, noise and room impulse responses."""

from importlib.resources import files

SAMPLE_RATE = 16000


def demo_folder(name: str) -> str:
    """Return the path of ``speech``, ``noise`` or ``rooms``, or of a folder in one of them."""
    return str(files("audioaug.audio") / "demo_data" / name)
