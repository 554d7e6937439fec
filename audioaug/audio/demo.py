"""The bundled demo audio, where this is a checkout of the repository."""

from pathlib import Path

from audioaug.errors import DataError

SAMPLE_RATE = 16000
FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "demo"


def demo_folder(name: str, instead: str) -> str:
    """Return one of the folders of demo audio; raise ``DataError`` saying what to do instead if there is none."""
    folder = FOLDER / name
    if not folder.is_dir():
        raise DataError(f"The demo audio is not installed ({folder} is missing).", instead)
    return str(folder)
