"""Copy the part of the demo audio that is installed with the package: ``audioaug/audio/demo_data``.

It has the speech of eight voices, four noises and all rooms, 1.9 MB in all, and nothing under the GPL.
"""

import argparse
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VOICES = (
    "espeak_gb-f5",
    "espeak_gb-m7",
    "espeak_nyc-m1",
    "espeak_us-m3",
    "flite_awb",
    "flite_kal16",
    "flite_rms",
    "flite_slt",
)
NOISES = ("babble", "fan", "mains_hum", "vinyl")
PATTERNS = (*(f"speech/*/{voice}_*.flac" for voice in VOICES), *(f"noise/{name}.flac" for name in NOISES), "rooms/*")


def pick(demo: Path, out: Path) -> None:
    """Copy what is picked of the demo audio into a folder, and its licence beside it."""
    for path in (path for pattern in PATTERNS for path in sorted(demo.glob(pattern))):
        target = out / path.relative_to(demo)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(demo.parent / "licences/BSD-2-Clause-pocketsphinx.txt", out / "BSD-2-Clause-pocketsphinx.txt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Copy the part of the demo audio that is installed with the package.")
    default = ROOT / "audioaug/audio/demo_data"
    parser.add_argument("--out", type=Path, default=default, metavar="FOLDER", help="where to write")
    pick(ROOT / "datasets/demo", parser.parse_args().out)
