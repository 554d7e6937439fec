"""The pages in headless Chromium, opened from disk: no errors, no network requests, and working controls."""

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("axe_core_python")
pytest.importorskip("playwright")

from axe_core_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from audioaug.decide.sliders import grid
from audioaug.errors import printable
from audioaug.records import MonitoredRun, Notice, Report, Window, read_record
from audioaug.report import monitor
from audioaug.report.parts import Line
from audioaug.report.sounds import Example, Listening, rendered_sounds
from audioaug.report.to_html import SECTIONS, render
from tests.unit.report.conftest import HOST
from tests.unit.report.test_to_html import NAMES

RECORDED = Path(__file__).parents[3] / "datasets/profiles/report_cpu_2_cores.json"
CHROMIUM = shutil.which("chromium")
PATIENCE_MS = 120_000
"""A limit against hanging only."""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)


def watched(page, seen):
    """Record a page's errors and network requests."""
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda it: None if it.url.startswith(("file:", "data:")) else seen.append(it.url))
    return page


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page from disk; fail if it has errors or requests."""
    seen, contexts = [], []

    def page_of(html):
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(html, encoding="utf-8")
        contexts.append(browser.new_context(permissions=["clipboard-read", "clipboard-write"]))
        page = watched(contexts[-1].new_page(), seen)
        page.goto(file.as_uri())
        return page

    yield page_of
    for context in contexts:
        context.close()
    assert seen == []


@pytest.fixture
def report_page(opened, race):
    return opened(render(race))


@pytest.fixture(scope="module")
def recorded():
    """A real report, of which every section but the sounds is known."""
    return replace(read_record(RECORDED, Report), what_if=("A sentence.",), date="2026-11-25T14:19:10+00:00")


def windows(message=""):
    """Two minutes of a run whose workers slow down half-way."""
    for second in range(120):
        slow = second >= 60
        yield Window(
            seconds=float(second + 1),
            step=20 * (second + 1),
            steps=20,
            step_ms=60.0 if slow else 41.0,
            wait_ms=21.0 if slow else 1.0,
            clips_per_second=1000.0,
            ceiling_share=0.66 if slow else 0.97,
            ready=0.2 if slow else 5.5,
            cpu_percent=93.0 if slow else 72.0,
            worker_percent=(95.0, 88.0 - second % 7),
            ram_bytes=9 << 30,
            ram_percent=40.0 + second / 10,
            shm_bytes=1 << 30,
            gpu_percent=None if second == 30 else 62.0 if slow else 97.0,
            vram_bytes=30 << 30,
            bottleneck="cores_full" if slow else "model_bound",
            message=message if second == 62 else "",
        )


def monitor_page(name="The bottleneck moved from the model's own step to the cores."):
    run = MonitoredRun(replace(HOST, cpu=name), ceiling_ms=40.0, capacity=8)
    return monitor.render(run, list(windows(name)))


def hostile_page(race, name):
    """The report with this name in every field that a file or a user can set."""
    return render(
        replace(
            race,
            chain=replace(race.chain, ops=(name, *race.chain.ops[1:])),
            workload=replace(race.workload, model=name, dataset=name, sources={name: name}),
            host=replace(HOST, device_name=name, cpu=name),
            candidates=(replace(race.candidates[0], reason=name), *race.candidates[1:]),
            notices=(Notice(name, name),),
            what_if=(name,),
        ),
        None,
        Listening((Line(name),), (Example(name, name, rendered_sounds({name: np.zeros((1, 8), np.float32)}, 8000)),)),
    )


def column(page, header):
    place = page.locator("#candidate-table thead th").all_inner_texts().index(header) + 1
    candidates = page.locator(f"#candidate-table tbody tr:not([data-fixed]):visible td:nth-child({place})")
    return [text.strip() for text in candidates.all_inner_texts()]


def sort_by(page, header):
    place = page.locator("#candidate-table thead th").all_inner_texts().index(header) + 1
    page.locator(f"#candidate-table th:nth-child({place}) button").click()
    return page.locator(f"#candidate-table th:nth-child({place})")


def test_the_table_sorts_with_the_keyboard_too(report_page):
    assert column(report_page, "mark")[:2] == ["use", "tie"]  # measured first
    report_page.locator("#all").click()
    workers = column(report_page, "workers")
    header = sort_by(report_page, "workers")
    assert column(report_page, "workers") == sorted(workers, key=int) != workers
    header.locator("button").press("Enter")
    assert column(report_page, "workers") == sorted(workers, key=int, reverse=True)
    assert header.get_attribute("aria-sort") == "descending"
    sort_by(report_page, "measured\nms")
    measured = column(report_page, "measured\nms")
    assert measured[0].startswith("40.1") and measured[5:] == ["-"] * 9  # what is unknown comes last
    sort_by(report_page, "step time, ms\n(logarithmic)")
    assert column(report_page, "measured\nms")[:3] == [measured[0], measured[1], "-"]  # 40.1, 40.3, predicted 43


def test_a_single_candidate_is_singular(opened, race):
    one = replace(race, candidates=(race.current,), recommendation=None)
    assert opened(render(one)).locator("#shown").inner_text() == "1 of 1 candidate"


def test_the_table_filters(report_page):
    shown = report_page.locator("#shown")
    assert shown.inner_text() == "12 of 14 candidates" and len(column(report_page, "candidate")) == 12
    report_page.locator("#all").click()
    assert shown.inner_text() == "14 of 14 candidates" and len(column(report_page, "candidate")) == 14
    report_page.locator("#find").fill(" 4  Workers ")  # and not those with 14
    names = column(report_page, "candidate")
    assert (
        len(names) == 4 and all(", 4 workers" in name for name in names) and shown.inner_text() == "4 of 14 candidates"
    )
    report_page.locator("#only-measured").check()
    assert len(column(report_page, "candidate")) == 3


def test_the_code_is_copied(report_page):
    report_page.locator("button.copy").click()
    report_page.locator(".copied", has_text="Copied.").wait_for()
    copied = report_page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import audioaug\n\nplan = audioaug.Plan(cut=2")


def rows_of(page, table):
    """The texts of all rows of a table, shown or not."""
    return page.evaluate(
        """(table) => [...document.querySelectorAll(`#${table} tbody tr:not([data-fixed])`)]
            .map((row) => [...row.cells].map((cell) => cell.textContent.trim()))""",
        table,
    )


def test_sliders_at_rest_equal_the_table(opened, recorded):
    page = opened(render(recorded, grid(recorded)))
    header = page.locator("#candidate-table thead th").all_inner_texts()
    mark, name, predicted, measured, rate = (
        header.index(text) for text in ("mark", "candidate", "predicted\nms", "measured\nms", "clips/s")
    )
    table = rows_of(page, "candidate-table")
    assert len(table) == 36 and ["use", recorded.recommendation.name] in [[row[mark], row[name]] for row in table]
    assert any(", 0 workers" in row[name] for row in table)
    expected = []
    for row in table:
        time = (row[predicted], "predicted") if row[measured] == "-" else (row[measured], "measured")
        expected.append([row[mark], row[name], *time, row[rate]])
    assert rows_of(page, "sliders-table") == expected
    page.locator("#step_ms").press("End")
    assert rows_of(page, "sliders-table") != expected
    page.locator("#reset").click()
    assert rows_of(page, "sliders-table") == expected


def test_sliders_show_pythons_predictions(opened, recorded):
    found = grid(recorded)
    axes, names = found["axes"], found["candidates"]
    page = opened(render(recorded, found))
    places = list(product(*(range(len(axis["values"])) for axis in axes)))
    shown = page.evaluate(
        """([names, places]) => places.map((place) => {
            names.forEach((name, at) => { document.getElementById(name).value = place[at]; });
            document.getElementById(names[0]).dispatchEvent(new Event("input"));
            const rows = [...document.querySelectorAll("#sliders-table tbody tr")];
            return rows.map((row) => [row.cells[1].textContent, row.cells[2].textContent, row.cells[3].textContent]);
        })""",
        [[axis["name"] for axis in axes], places],
    )
    assert len(shown) == 10 * 11 * 5
    for (cores, step, batch), rows in zip(places, shown):
        if (cores, step, batch) == tuple(axis["start"] for axis in axes):
            continue
        factor = int(axes[2]["values"][batch]) / recorded.workload.batch_size
        times = {name: ms for name, ms in zip(names, found["times"][cores * 11 + step]) if ms is not None}
        assert [name for name, *_ in rows] == sorted(times, key=times.get)
        assert {how for *_, how in rows} == {"predicted"}
        for name, ms, _ in rows:
            assert float(ms.replace(",", "")) == pytest.approx(times[name] * factor, rel=0.006)


def test_slider_moves_with_the_keyboard_and_announces_its_value(opened, recorded):
    page = opened(render(recorded, grid(recorded)))
    slider, sentence = page.locator("#cores"), page.locator("#sliders-at")
    assert sentence.inner_text() == "This machine, as in the table above:"
    slider.focus()
    slider.press("Home")
    assert sentence.inner_text().startswith("Predicted for cores: 1, model step at batch size 32: 56.0 ms, batch size")
    assert page.locator("#at-cores").inner_text() == slider.get_attribute("aria-valuetext") == "1"


@pytest.mark.parametrize("width", [1280, 400])
def test_contents_lead_to_each_section_in_the_order_of_decisions(opened, recorded, width):
    page = opened(render(recorded, grid(recorded)))
    page.set_viewport_size({"width": width, "height": 800})
    links = page.locator("nav a")
    assert links.all_inner_texts() == list(SECTIONS.values())
    tops = [page.locator("p.verdict").bounding_box()["y"], page.locator("nav").bounding_box()["y"]]
    tops += [page.locator(f"h2#{id}").bounding_box()["y"] for id in SECTIONS]
    assert tops == sorted(tops)
    for place, id in enumerate(SECTIONS):
        links.nth(place).click()
        assert page.evaluate("location.hash") == f"#{id}"
        assert 0 <= page.locator(f"#{id}").bounding_box()["y"] < 800


def test_in_a_notebook_contents_stay_in_the_frame(opened, recorded):
    page = opened(f"<!doctype html><html lang=en><title>notebook</title>{recorded._repr_html_()}</html>")
    frame = page.frames[1]
    frame.locator("nav a", has_text="Facts").click()
    assert frame.url == "about:srcdoc#facts" and frame.evaluate("scrollY") > 0
    assert "notebook" in page.title() and "#" not in page.url


def test_an_id_leads_to_its_explanation(opened, recorded):
    page = opened(render(recorded))
    page.get_by_role("link", name=recorded.cause).click()
    explanation = page.locator("dt:target + dd")
    assert explanation.inner_text().startswith("A transform takes most of a worker's time.")
    assert 0 <= explanation.bounding_box()["y"] < page.viewport_size["height"]


def test_examples_are_closed_until_asked_for(opened, race):
    sounds = rendered_sounds({"dry": np.zeros((1, 8000), np.float32)}, 8000)
    page = opened(render(race, None, Listening((), (Example("clip", "Gain", sounds),))))
    assert not page.locator("audio").is_visible()
    page.locator("summary").press("Enter")
    assert page.locator("audio").is_visible()


def test_the_players_load_and_play_one_at_a_time(opened, race):
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(24000) / 16000).astype(np.float32)[None]
    sounds = rendered_sounds({"dry": tone, "reference build": 3 * tone, "device build": 3 * tone}, 16000)
    page = opened(render(race, None, Listening((), (Example("clip", "Gain", sounds),))))
    page.wait_for_function("[...document.querySelectorAll('audio')].every((player) => player.readyState >= 1)")
    reported = page.evaluate("[...document.querySelectorAll('audio')].map((player) => [player.duration, player.error])")
    assert reported == [[1.5, None]] * 3
    assert page.evaluate("[...document.images].map((image) => image.naturalWidth)") == [240] * 3
    paused = page.evaluate(
        """(async () => {
            const players = [...document.querySelectorAll('audio')];
            for (const it of players) await it.play();
            return players.map((player) => player.paused);  // in the same turn: the last one ends after 1.5 s
        })()
        """
    )
    assert paused == [True, True, False]
    assert faults(page) == []


@pytest.mark.parametrize("kind", ["report", "recorded", "monitor"])
def test_it_fits_and_is_accessible(opened, race, recorded, kind):
    pages = {
        "report": lambda: render(race),
        "recorded": lambda: render(recorded, grid(recorded)),
        "monitor": monitor_page,
    }
    page = opened(pages[kind]())
    for scheme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
        assert faults(page) == []
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def faults(page):
    """The serious violations that axe-core finds."""
    found = Axe().run(page)["violations"]
    return [(it["id"], it["nodes"][0]["html"]) for it in found if it["impact"] in ("serious", "critical")]


def test_forbidden_actions_of_a_page_are_detected(browser):
    page, seen = browser.new_page(), []
    watched(page, seen).set_content("<script>console.log('said'); fetch('http://127.0.0.1:9/asked'); thrown()</script>")
    assert {"said", "http://127.0.0.1:9/asked", "thrown is not defined"} <= set(seen)
    page.close()


def test_faults_would_be_seen(opened):
    page = opened("<!doctype html><html lang=en><title>x</title><p style='color:#eee'>pale</p><button></button></html>")
    assert {name for name, _ in faults(page)} == {"color-contrast", "button-name"}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_hostile_names_are_text_and_do_nothing(opened, race, name):
    words = " ".join(printable(name).split())
    for page in (opened(hostile_page(race, name)), opened(monitor_page(name))):
        page.set_viewport_size({"width": 400, "height": 900})
        assert words in " ".join(page.locator("main").inner_text().split())
        assert page.locator("img:not([src^='data:']), iframe, main script:not([type])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_on_paper_it_is_light_and_without_controls(report_page):
    report_page.emulate_media(media="print", color_scheme="dark")
    assert report_page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not report_page.locator(".controls:visible, button.copy:visible").count()
