"""Put what ``scripts/check_gpu.sh`` left in a folder into one file, result.json, with card, driver, versions and date.

python scripts/gather_results.py FOLDER --device cuda
"""

import json
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
from compact_records import write_compact

from audioaug.errors import AudioaugError, OutputError
from audioaug.loader.prefetch import as_device
from audioaug.measure import host_facts
from audioaug.records import HostFacts

STEPS = ("smoke", "smoke_without_compiler", "memory", "epochs", "syncs", "capture", "profile")
PARTS = (*STEPS, "verify", "bench", "advisor_cold", "advisor_warm")


def gather(folder: Path, host: HostFacts, date: str) -> dict[str, Any]:
    """Return everything; a part whose step wrote no JSON is ``None``."""
    steps = (folder / "steps.txt").read_text(encoding="utf-8").splitlines()
    return {
        "schema_version": 1,
        "date": date,
        "card": host.device_name if host.has_gpu else None,
        "driver": host.versions.get("nvidia driver"),
        "versions": host.versions,
        "host": asdict(host),
        "steps": dict(line.split(": ", 1) for line in steps),
        **{part: _content(folder / f"{part}.json") for part in PARTS},
    }


def _content(path: Path) -> Any:
    """Return what a file holds; ``None`` if there is none, or if a step was ended while it wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--device", default="cuda", show_default=True, help="The device that was checked.")
def main(folder: Path, device: str) -> None:
    """Write result.json."""
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        if not (folder / "steps.txt").is_file():
            raise OutputError(f"There are no results in {folder}.", "Run scripts/check_gpu.sh with this folder.")
        content = gather(folder, host_facts(as_device(device)), date)
    except AudioaugError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    write_compact(content, folder / "result.json")


if __name__ == "__main__":
    main()
