"""Take the picture of a report for the README and the documentation's home page: the top of its page, in Chromium.

    python scripts/docs_picture.py [REPORT.json]        writes docs/images/report.png

It needs the system's Chromium. The usual report is recorded: its numbers are those of one real run.
"""

import io
import shutil
import tempfile
from pathlib import Path

import click

from audioaug.records import Report, read_record
from audioaug.report.to_html import render

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "datasets/profiles/report_cpu_2_cores.json"
PICTURE = ROOT / "docs/images/report.png"
WIDTH, HEIGHT, MARGIN, SCALE = 1000, 800, 28, 1.5
COLOURS = 256


def screenshot(html: str, chromium: str) -> bytes:
    """Return the top of a page as a PNG file."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_file = Path(folder, "report.html")
        page_file.write_text(html, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=120_000)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE)
        page.goto(page_file.as_uri())
        second = page.locator("h2").nth(1).bounding_box()  # of which the picture shows nothing
        height = HEIGHT if second is None else min(HEIGHT, second["y"] - MARGIN)
        content = page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": height}, timeout=120_000)
        browser.close()
    return content


def fewer_colours(png: bytes) -> bytes:
    """Return a picture of text as a smaller file that looks the same."""
    from PIL import Image

    file = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=RECORDED)
def main(report: Path) -> None:
    """Write the picture."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise click.ClickException("Chromium is not installed: apt-get install chromium.")
    picture = fewer_colours(screenshot(render(read_record(report, Report)), chromium))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(picture)
    click.echo(f"{PICTURE.relative_to(ROOT)}: {len(picture) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
