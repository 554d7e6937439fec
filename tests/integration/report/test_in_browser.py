"""The pages in headless Chromium, opened from disk: no errors, no network requests, and working controls."""

import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

pytest.importorskip("axe_core_python")
pytest.importorskip("playwright")

from axe_core_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from audioaug.decide.what_if import grid
from audioaug.errors import printable
from audioaug.records import MonitoredRun, Notice, Window
from audioaug.report import monitor
from audioaug.report.parts import Line
from audioaug.report.sounds import Example, Listening, rendered_sounds
from audioaug.report.to_html import render
from tests.helpers.planted_reports import planted_report
from tests.unit.report.conftest import HOST
from tests.unit.report.test_to_html import NAMES

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
    return opened(render(race, grid(planted_report())))


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
        {"axes": [], "answers": [[name]]},
        Listening((Line(name),), (Example(name, name, rendered_sounds({name: np.zeros((1, 8), np.float32)}, 8000)),)),
    )


def column(page, header):
    place = page.locator("#candidates thead th").all_inner_texts().index(header) + 1
    candidates = page.locator(f"#candidates tbody tr:not([data-fixed]):visible td:nth-child({place})")
    return [text.strip() for text in candidates.all_inner_texts()]


def sort_by(page, header):
    place = page.locator("#candidates thead th").all_inner_texts().index(header) + 1
    page.locator(f"#candidates th:nth-child({place}) button").click()
    return page.locator(f"#candidates th:nth-child({place})")


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


def test_sliders_show_pythons_predictions(report_page):
    axes, answers = (grid(planted_report())[name] for name in ("axes", "answers"))
    places = list(product(*(range(len(axis["values"])) for axis in axes)))
    shown = report_page.evaluate(
        """([names, places]) => places.map((place) => {
            names.forEach((name, at) => { document.getElementById(name).value = place[at]; });
            document.getElementById(names[0]).dispatchEvent(new Event("input"));
            return [...document.querySelectorAll("#what-if-answer li")].map((item) => item.textContent);
        })""",
        [[axis["name"] for axis in axes], places],
    )
    assert shown == answers and len({tuple(answer) for answer in answers}) > 100


def test_slider_moves_with_the_keyboard_and_announces_its_value(report_page):
    slider, answer = report_page.locator("#cores"), report_page.locator("#what-if-answer")
    slider.focus()
    before, start = answer.inner_text(), report_page.locator("#at-cores").inner_text()
    slider.press("Home")
    assert (
        report_page.locator("#what-if-at")
        .inner_text()
        .startswith("Predicted for cores: 1, model step at batch size 32:")
    )
    assert report_page.locator("#at-cores").inner_text() == slider.get_attribute("aria-valuetext") == "1" != start
    assert answer.inner_text() != before


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


@pytest.mark.parametrize("kind", ["report", "monitor"])
def test_it_fits_and_everybody_can_read_it(opened, race, kind):
    page = opened(render(race, grid(planted_report())) if kind == "report" else monitor_page())
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
