"""The page in headless Chromium, where there is one: it opens from disk, and what the script adds works."""

import shutil

import pytest

from audioaug.decide.what_if import grid
from audioaug.report.to_html import render
from tests.decide.planted import planted_report

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@pytest.fixture
def opened(race, tmp_path):
    """A page with a panel, and what the browser complained of and asked for while it was open."""
    (tmp_path / "page.html").write_text(render(race, grid(planted_report())), encoding="utf-8")
    complaints, requests = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        yield page
        browser.close()
    assert complaints == [] and [url for url in requests if not url.startswith("file:")] == []


def column(page, place):
    cells = page.locator(f"#cells tbody tr:not([data-fixed]):visible td:nth-child({place})")
    return [text.strip() for text in cells.all_inner_texts()]


def test_the_table_sorts_with_the_keyboard_too(opened):
    workers = column(opened, 6)
    header = opened.locator("#cells th:nth-child(6) button")
    header.click()
    assert column(opened, 6) == sorted(workers, key=int) != workers
    header.press("Enter")
    assert column(opened, 6) == sorted(workers, key=int, reverse=True)
    assert opened.locator("#cells th:nth-child(6)").get_attribute("aria-sort") == "descending"
    opened.locator("#cells th:nth-child(3) button").click()
    assert column(opened, 6) == workers  # by step time: as it was
    opened.locator("#cells th:nth-child(8) button").click()
    measured = column(opened, 8)
    assert measured[0].startswith("40.1") and measured[5:] == ["-"] * 9  # what is unknown comes last


def test_the_table_filters(opened):
    assert opened.locator("#shown").inner_text() == "14 of 14 cells"
    opened.locator("#find").fill(" 4  Workers ")  # and not those with 14
    assert opened.locator("#shown").inner_text() == f"{len(column(opened, 2))} of 14 cells"
    assert len(column(opened, 2)) == 4 and all(", 4 workers" in name for name in column(opened, 2))
    opened.locator("#only-measured").check()
    assert len(column(opened, 2)) == 3


def test_the_code_is_copied(opened):
    opened.locator("button.copy").click()
    opened.locator(".copied", has_text="Copied.").wait_for()
    assert opened.evaluate("navigator.clipboard.readText()").startswith("import audioaug\n\nplan = audioaug.Plan(cut=2")


def test_the_sliders_show_what_python_predicts(opened):
    panel = grid(planted_report())
    sizes = [len(axis["values"]) for axis in panel["axes"]]
    for places in ((0, 0, 0), (3, 7, 1), tuple(size - 1 for size in sizes)):
        for axis, place in zip(panel["axes"], places):
            opened.locator(f"#{axis['name']}").fill(str(place))
            assert opened.locator(f"#at-{axis['name']}").inner_text() == axis["values"][place]
        index = (places[0] * sizes[1] + places[1]) * sizes[2] + places[2]
        assert opened.locator("#what-if-answer li").all_inner_texts() == panel["answers"][index]


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out(opened, width, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 900})
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    dark = opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark == (scheme == "dark")


def test_on_paper_it_is_light_and_without_controls(opened):
    opened.emulate_media(media="print", color_scheme="dark")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not opened.locator(".controls:visible, button.copy:visible").count()
