"""The demo audio in the package: a copy of a part of ``datasets/demo``, small, and nothing under the GPL."""

import subprocess
import sys
from pathlib import Path

from audioaug.audio.demo import SAMPLE_RATE, demo_folder
from audioaug.audio.files import find_audio
from audioaug.audio.folder import AudioFolder

ROOT = Path(__file__).resolve().parents[3]
LIMIT_BYTES = 2_000_000


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_demo_audio_matches_the_script(tmp_path):
    subprocess.run([sys.executable, ROOT / "datasets/pick_demo.py", "--out", tmp_path], check=True)
    packaged = contents(Path(demo_folder("")))
    readme = packaged.pop("README.md").decode()
    assert packaged == contents(tmp_path)
    assert sum(map(len, packaged.values())) < LIMIT_BYTES
    assert not [name for name in packaged if "alsa" in name] and "BSD-2-Clause" in readme and "CC0-1.0" in readme


def test_demo_audio_has_twelve_labels_noise_and_rooms():
    speech = AudioFolder(demo_folder("speech"), SAMPLE_RATE)
    assert len(speech) == 96 and len(speech.labels) == 12
    assert [len(find_audio((demo_folder(name),))) for name in ("noise", "rooms")] == [4, 8]
