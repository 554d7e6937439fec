"""The HTML report: well formed, self-contained, escaped, small, and complete without a script."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from audioaug.errors import printable
from audioaug.records import MonitoredRun, Notice, Window
from audioaug.report import monitor
from audioaug.report.candidates import COLUMNS
from audioaug.report.charts import candidate_axis
from audioaug.report.parts import Line
from audioaug.report.sounds import Example, Listening, rendered_sounds
from audioaug.report.templating import page_from
from audioaug.report.to_html import CHART, SECTIONS, chart_row, render, with_chart
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
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on") or name == "style"]
    assert all(re.fullmatch(r"#[\w-]+", value) for _, name, value in parsed.attributes if name == "href")
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
        "<a href=x></a>",
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
    page = render(report, {"axes": [], "candidates": [name], "times": []})
    assert_safe(page, scripts=2)  # the table of the panel is the second
    shown = " ".join(printable(name).split())
    assert text_of(page).count(shown) >= 8
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page.replace("\n", ""))
    table = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1]
    assert json.loads(table)["candidates"] == [name]


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
            "today : 284 ms = model 38.0 ms + waiting 246 ms",
            race.recommendation.because,
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
    assert NAMES[1] in text_of(page) and NAMES[0] in text_of(page) and "<details" not in render(race)


def test_thousands_of_candidates_stay_under_3_mb(race):
    many = tuple(candidate(cut, workers, 50.0 + workers) for cut in range(1, 4) for workers in range(700))
    assert 1_000_000 < len(render(replace(race, candidates=many)).encode()) < 3_000_000


def test_sliders_at_rest_are_the_table(race):
    panel = {"axes": [], "candidates": [], "times": []}
    page = render(race, panel)
    table = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])
    name = race.recommendation.name
    assert table["rest"][0] == ["use", name, "40.1 (39.8 .. 40.4)", "measured", "1,596"]
    names = [name for _, name, *_ in table["rest"]]
    assert len(names) == 14 and "today" in {mark for mark, *_ in table["rest"]}
    assert [how for *_, how, _ in table["rest"]] == ["measured"] * 5 + ["predicted"] * 9
    assert "sliders" not in render(race).partition("<main>")[2].partition("</main>")[0]


def test_ids_link_to_their_explanations(race):
    page = render(race)
    assert '<a href="#id-augment_cpu_bound">augment_cpu_bound</a>' in page
    for id in ("augment_cpu_bound", "thread_oversubscription", "cpu_only_transform"):
        assert page.count(f'id="id-{id}"') == 1
    assert "A transform takes most of a worker's time. Take the plan that the report recommends" in text_of(page)
    assert "id-page_faults" not in page
    unknown = render(replace(race, cause="of_a_later_version"))
    assert "of_a_later_version" in text_of(unknown) and "#id-of_a_later_version" not in unknown


def test_contents_lead_to_the_sections_in_their_order(race, bare):
    for report, last in ((race, "facts"), (bare, "facts")):
        page = render(report)
        contents = re.findall(r'<li><a href="#(.*?)">', page)
        assert contents == re.findall(r'<h2 id="(.*?)">', page) and contents[-1] == last
    assert re.findall(r'<li><a href="#(.*?)">', render(replace(race, what_if=("Faster.",)))) == list(SECTIONS)


def test_title_is_short_and_has_the_date(race):
    page = render(replace(race, date="2026-11-25T14:19:10+00:00"))
    assert "<title>mymodel.py:Wav2Small: audioaug report</title>" in page
    assert "audioaug report, 2026-11-25 14:19:10 UTC" in text_of(page)
    assert "UTC" not in render(race)


def test_a_page_without_sounds_says_why(race):
    assert "No examples to listen to: they are made at the end of a run with --html" in text_of(render(race))


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


def test_a_monitored_run_without_a_step_has_no_empty_sections():
    page = monitor.render(MonitoredRun(HOST), [])
    assert "No training step was recorded." in text_of(page)
    assert re.findall("<h2>(.*?)</h2>", page) == ["Measured with"] and "<table>" not in page


def test_a_monitored_run_states_how_often_its_targets_were_met():
    run = MonitoredRun(HOST, ceiling_ms=40.0)
    slow, fast = Window(1.0, 30, 30, 50.0, 0.0, 640.0, 0.8), Window(2.0, 40, 10, 39.0, 0.0, 820.0, 1.03)
    page = text_of(monitor.render(run, [slow, fast]))
    assert "throughput , at the end 820 clips/s, 103 % of the ceiling target 95 % to 100 %, met in 25 % of" in page
    free = monitor.render(MonitoredRun(HOST), [replace(it, ceiling_share=None) for it in (slow, fast)])
    assert "throughput , at the end 820 clips/s" in text_of(free) and "ceiling" not in text_of(free)
    assert "0.0,15.8 480.0,0.0" in free and "820 clips/s 0" in text_of(free)  # to the scale of the fastest


def test_charts_have_axes_with_units():
    seen = [Window(60.0 * n, n, 1, 50.0, 10.0, 640.0, 0.9, 2.0, 50.0, vram_bytes=1 << 33) for n in range(1, 4)]
    page = text_of(monitor.render(MonitoredRun(HOST, ceiling_ms=40.0, capacity=8), seen))
    for full in ("100 %", "the ceiling", "80.0 GiB", "8 ready"):
        assert f" {full} 0 60 s 2 min 0 s 3 min 0 s" in page
    assert " 100 % 0 60 s throughput" in text_of(monitor.render(MonitoredRun(HOST, ceiling_ms=40.0), seen[:1]))


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
