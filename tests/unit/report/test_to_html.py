"""The HTML report: well formed, self-contained, escaped, small, and complete without a script."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from audioaug.decide.what_if import grid, what_if
from audioaug.errors import printable
from audioaug.records import MonitoredRun, Notice, Window
from audioaug.report import monitor
from audioaug.report.candidates import COLUMNS
from audioaug.report.charts import candidate_axis
from audioaug.report.parts import Line
from audioaug.report.sounds import Example, Listening, rendered_sounds
from audioaug.report.templating import page_from
from audioaug.report.to_html import CHART, chart_row, render, with_chart
from tests.helpers.planted_reports import planted_report
from tests.unit.report.conftest import HOST, candidate

VOID = {"meta", "br", "input", "link", "img"}
SVG_LEAVES = {"rect", "circle", "line", "polyline"}
NAMES = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>'",
    "</style></title></textarea><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "n" * 5000,
    "\u202eltr\u2066 \u05e9\u05dc\u05d5\u05dd \u0627\u0644\u0639",
    "javascript:alert(1)",
    "&lt;b&gt; \x1b[31m\x00",
)


class Outline(HTMLParser):
    """Collects the tags and attributes, checks that each is closed, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.words, self.attributes, self.scripts = [], [], [], [], 0

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in SVG_LEAVES
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)


def outline(page):
    """The page, parsed."""
    parsed = Outline()
    parsed.feed(page)
    parsed.close()
    assert parsed.open == []
    return parsed


def text_of(page):
    return " ".join(" ".join(outline(page).words).split())


def assert_safe(page, scripts):
    """Check that there is only our script, no external content, and no handler in an attribute."""
    parsed = outline(page)
    assert parsed.seen.count("script") == scripts and not {"link", "iframe", "object", "form"} & set(parsed.seen)
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on") or name in ("style", "href")]
    addresses = [value for _, name, value in parsed.attributes if name == "src"]
    assert all(re.fullmatch("data:(audio/flac|image/png);base64,[A-Za-z0-9+/=]+", address) for address in addresses)
    for address in addresses:
        page = page.replace(address, "")
    assert not re.search(r"https?:|url\(|@import|//[a-z]", page)


def test_the_page_is_well_formed_and_needs_nothing_else(report):
    assert_safe(render(report), scripts=1)
    assert len(render(report)) < 200_000


def test_the_check_detects_foreign_content():
    for evil in (
        "<script>1</script>",
        "<p onclick=x></p>",
        "<p style=x></p>",
        "<p>http://x</p>",
        "<iframe></iframe>",
        "<img src=x>",
    ):
        with pytest.raises(AssertionError):
            assert_safe(f"<script>ours</script>{evil}", scripts=1)
    with pytest.raises(AssertionError):
        outline("<p><b></p></b>")


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_hostile_names_are_text(race, name):
    report = replace(
        race,
        verdict=f"Use {name}.",
        cause=name,
        chain=replace(race.chain, ops=(name, *race.chain.ops[1:])),
        workload=replace(race.workload, model=name, dataset=name, sources={name: name}),
        host=replace(HOST, device=name, device_name=name, cpu=name, versions={name: name}),
        candidates=(replace(race.candidates[0], reason=name), *race.candidates[1:]),
        notices=(Notice(name, name),),
        what_if=(name,),
    )
    page = render(report, {"axes": [], "answers": [[name]]})
    assert_safe(page, scripts=2)  # the table of the panel is the second
    shown = " ".join(printable(name).split())
    assert text_of(page).count(shown) >= 8
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page.replace("\n", ""))
    table = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1]
    assert json.loads(table)["answers"] == [[name]]


def test_names_are_shown_as_they_are(hostile):
    assert r"Use <script>|alert(1)|</script>`[x](y)`\x1b[31m\n[bold]* now." in text_of(render(hostile))


def test_only_our_script_and_style_may_run(race):
    page = render(race)
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    assert "default-src 'none'" in policy and "unsafe" not in policy and policy.count("'sha256-") == 2


def test_the_verdict_comes_first_and_the_numbers_follow(race):
    shown = text_of(render(race))
    places = [
        shown.index(words)
        for words in (
            race.recommendation.because,
            "today : 284 ms = model 38.0 ms + waiting 246 ms",
            "plan = audioaug.Plan(cut=2, num_workers=4",
            "40.1 (39.8 .. 40.4)",
            "cut at 2: what is above runs in the workers",
            "Measured: the ceiling, 14 stages alone, 5 candidates end to end",
            "NVIDIA H100 80GB HBM3",
        )
    ]
    assert shown.index(race.verdict) < places[0] and places == sorted(places)


def test_all_candidates_are_there_with_their_marks(race):
    page = render(race)
    assert page.count('data-measured="true"') == 5 and page.count('data-measured="false"') == 9
    assert page.count('class="dot"') == 5 + 1 and page.count('class="hollow"') == 14 + 1  # and in the legend
    assert page.count('class="ceiling"') == 14 + 1


@pytest.mark.parametrize(("cut", "above"), [(0, "op transform"), (2, "AddBackgroundNoise"), (4, "Gain")])
def test_the_cut_is_drawn_between_its_neighbours(race, cut, above):
    shown = text_of(render(replace(race, recommendation=replace(race.recommendation, cut=cut))))
    before, _, after = shown.partition(f"cut at {cut}:")
    assert above in before[before.index("The chain, and what") :]
    following = ["Mp3Compression", None, "PitchShift", None, "the codec"][cut]
    assert following in after[:150]


def test_examples_can_be_listened_to_and_are_as_safe(race):
    sounds = rendered_sounds({"dry": np.zeros((1, 800), np.float32), NAMES[0]: np.ones((1, 800), np.float32)}, 8000)
    page = render(race, None, Listening((Line(NAMES[2]),), (Example(NAMES[1], NAMES[2], sounds),)))
    assert_safe(page, scripts=1)
    assert page.count("<audio") == page.count("<img") == 2 and "spectrogram of dry: 0.1 s, 0 to 4 kHz" in page
    assert NAMES[1] in text_of(page) and NAMES[0] in text_of(page) and "<h2>Listen" not in render(race)


def test_thousands_of_candidates_stay_under_3_mb(race):
    many = tuple(candidate(cut, workers, 50.0 + workers) for cut in range(1, 4) for workers in range(700))
    assert 1_000_000 < len(render(replace(race, candidates=many)).encode()) < 3_000_000


def test_the_panel_shows_pythons_predictions():
    report = planted_report()
    panel = grid(report)
    axes = panel["axes"]
    assert json.loads(json.dumps(panel))["answers"] == panel["answers"]
    texts = [axis["values"] for axis in axes]
    for cores, step, batch in ((0, 0, 0), (4, 5, 2), (9, 10, 4), (3, 7, 1)):
        place = (cores * len(texts[1]) + step) * len(texts[2]) + batch
        size = int(texts[2][batch])
        step_ms = float(texts[1][step].removesuffix(" ms").replace(",", "")) * size / report.workload.batch_size
        lines = what_if(report, {"cores": float(texts[0][cores]), "step_ms": step_ms, "batch_size": size})
        assert len(panel["answers"][place]) == len(lines) == 3
        for answer, line in zip(panel["answers"][place], lines):
            name, ms = re.fullmatch(r"(.*): ([\d.,]+) ms a step, .*", answer).groups()
            assert f"{name} would take" in line
            reported = float(re.search(r"take ([\d.,]+) ms", line)[1].replace(",", ""))
            assert float(ms.replace(",", "")) == pytest.approx(reported, rel=0.01)
    assert [axis["values"][axis["start"]] for axis in axes] == ["8", "10.0 ms", "32"]


def test_without_stages_there_is_no_panel(bare):
    assert grid(bare) is None and "what-if" not in text_of(render(bare, grid(bare)))


def test_a_monitored_run_is_as_safe():
    evil = NAMES[1]
    run = MonitoredRun(replace(HOST, cpu=evil), ceiling_ms=40.0, capacity=4)
    seen = Window(1.0, 5, 5, 50.0, 10.0, 640.0, 0.8, 1.5, 50.0, (70.0, 80.0), 1 << 30, 30.0, 1 << 20, 90.0, 1 << 33)
    seen = replace(seen, bottleneck="fetch_bound", message=evil)
    page = monitor.render(run, [replace(seen, seconds=float(n), step=5 * n) for n in range(2000)])
    assert_safe(page, scripts=1)
    assert evil in text_of(page) and "20 % of the training was spent waiting for data" in text_of(page)
    assert page.count("<polyline") == page.count("<figcaption>") == 10 and page.count('class="band"') == 5
    assert_safe(monitor.render(run, []), scripts=1)


def test_a_monitored_run_states_how_often_its_targets_were_met():
    run = MonitoredRun(HOST, ceiling_ms=40.0)
    slow, fast = Window(1.0, 30, 30, 50.0, 0.0, 640.0, 0.8), Window(2.0, 40, 10, 39.0, 0.0, 820.0, 1.03)
    page = text_of(monitor.render(run, [slow, fast]))
    assert "throughput , at the end 820 clips/s, 103 % of the ceiling target 95 % to 100 %, met in 25 % of" in page
    free = monitor.render(MonitoredRun(HOST), [replace(it, ceiling_share=None) for it in (slow, fast)])
    assert "throughput , at the end 820 clips/s" in text_of(free) and "ceiling" not in text_of(free)
    assert "0.0,15.8 480.0,0.0" in free  # to the scale of the fastest


def test_a_phase_begins_where_the_last_one_ended():
    seen = [Window(5.0, 100, 100, 50.0, 40.0), Window(10.0, 150, 50, 50.0, 0.0), Window(30.0, 250, 100, 80.0, 0.0)]
    names = ("fetch_bound", "fetch_bound", "model_bound")
    found = monitor.phases([replace(it, bottleneck=name) for it, name in zip(seen, names)])
    assert [row.values for row in found.rows] == [
        ("start", "10 s", "150", "53 %", "reading the data"),
        ("10 s", "30 s", "100", "0.0 %", "the model's own step"),
    ]


def test_unknown_numbers_sort_last(race):
    it, axis = replace(race.candidates[2], stall=None), candidate_axis(race.ceiling, race.candidates)
    keys = chart_row(race, it, axis, range(len(COLUMNS))).keys
    found = dict(zip((column.header for column in with_chart(COLUMNS, CHART)), keys, strict=True))
    assert found["stall"] == math.inf
    assert (found["candidate"], found["workers"], found["measured\nms"]) == (it.name, 4, 40.3)


def test_a_move_of_the_bottleneck_is_marked_in_every_chart():
    seen = [Window(float(n), n, 1, 50.0, 10.0, 640.0, cpu_percent=50.0) for n in range(1, 6)]
    page = monitor.render(MonitoredRun(HOST), [*seen[:2], replace(seen[2], message="It moved."), *seen[3:]])
    assert page.count('class="move" x1="240.0"') == page.count("<figcaption>") == 3
    assert "dashed" in page and "dashed" not in text_of(monitor.render(MonitoredRun(HOST), seen))


def test_templates_know_all_they_use():
    with pytest.raises(Exception, match="undefined"):
        page_from("monitor.html")
