"""Files that are read as data: chains, plans, reports, manifests, logs, models and checkpoints, in hostile forms."""

import contextlib
import copy
import io
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import yaml

from audioaug import AudioFolder, Chain, Plan, Report
from audioaug.advise.__main__ import main as advise
from audioaug.advise.model_file import load_training_job
from audioaug.errors import AudioaugError
from audioaug.monitor import read_log
from audioaug.records import MonitoredRun, Window, to_json
from audioaug.report import monitor as monitor_page
from tests.campaign.case import COUNT, LOADERS, RATE, Case, check_all, check_sentence, indices
from tests.campaign.faults import Violation, kind
from tests.helpers.planted_reports import planted_report

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**400,
    -(10**18),
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 1000,
    "\x1b[31m\u202e{{ 7 * 7 }}<script>alert(1)</script>",
    [],
    {},
    [[[[]]]],
    {"cut": {"cut": {}}},
    ["x"] * 1000,
    "2020-01-01",
    "\ud800",
    [None],
)
WAYS = (
    "value",
    "value",
    "value",
    "value",
    "missing",
    "more",
    "bytes",
    "cut",
    "deep",
    "enormous",
    "empty",
    "list",
    "number",
    "nul",
)
TAGS = (
    "!!python/object/apply:os.system ['touch ran']",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/object/new:tuple [[1]]",
    "!!binary aGVsbG8=",
    "!!set {a, b}",
    "!!timestamp 2020-01-01",
    "!unknown x",
    "&a [*a]",
    "*undefined",
    "{{ cycler.__init__.__globals__.os.system('touch ran') }}",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to each value in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(each for key, part in inside for each in places(part, (*path, key)))]


def changed(document: Any, way: str, chance: random.Random) -> Any:
    """Return a document with another value in one place, without it, or with one more."""
    document = copy.deepcopy(document)
    *above, last = chance.choice(places(document))
    holder = document
    for key in above:
        holder = holder[key]
    if way == "missing":
        del holder[last]
    elif way == "more" and isinstance(holder, dict):
        holder[chance.choice(["x", "\x1b[2J", "__class__", "", "cut "])] = chance.choice(ODD_VALUES)
    else:
        holder[last] = chance.choice(ODD_VALUES)
    return document


def hostile(text: str, document: Any, write: Callable[[Any], str], way: str, chance: random.Random) -> bytes:
    """Return the content of a file in a hostile form."""
    content = text.encode()
    if way in ("value", "missing", "more"):
        return write(changed(document, way, chance)).encode("utf-8", "surrogatepass")
    if way == "bytes":
        changes = bytearray(content)
        for _ in range(chance.choice([1, 10, 1000])):
            changes[chance.randrange(len(changes))] = chance.randrange(256)
        return bytes(changes)
    forms: dict[str, Callable[[], bytes]] = {
        "cut": lambda: content[: chance.randrange(len(content))],
        "deep": lambda: chance.choice([b"[", b'{"a":', b"- ", b"{a: "]) * chance.choice([100, 5000, 200_000]),
        "enormous": lambda: content * (chance.choice([2, 3_000_000 // len(content)])),
        "empty": lambda: b"",
        "list": lambda: b"[" + b"1," * 1000 + b"1]",
        "number": lambda: b"9" * chance.choice([1, 400, 5000]),
        "nul": lambda: content.replace(b"0", b"\0"),
    }
    return forms[way]()


def one_sentence(read: Callable[[], Any], *names: str) -> str:
    """Call a function, which may refuse in one sentence that names the file."""
    try:
        read()
    except AudioaugError as error:
        return check_sentence(error, *names)
    return "accepted"


def check_nothing_ran(case: Case) -> None:
    """Check that no code in a file was run."""
    if (case.folder / "ran").exists():
        raise Violation("sentence", "a file ran code")


CHAIN_TEXT = """
sample_rate: 16000
transforms:
  - Gain: {min_gain_db: -6.0, max_gain_db: 6.0, p: 1.0}
  - OneOf: {transforms: [{PolarityInversion: {p: 1.0}}, {TimeMask: {max_band_part: 0.2, p: 0.5}}], p: 0.5}
  - LowPassFilter: {min_cutoff_freq: 1000.0, max_cutoff_freq: 4000.0, p: 0.3}
"""


@kind(
    "hostile chain file",
    ["Chain.from_yaml"],
    weight=8,
    way=(*WAYS, "tag", "tag", "anchors"),
    tag=tuple(range(len(TAGS))),
)
def chain_file(case: Case) -> str:
    file, way = case.folder / "chain.yaml", case.values["way"]
    if way == "tag":
        line = case.chance.choice(["a: ", "sample_rate: ", "transforms: [Gain: {p: 1.0}, ", "  - "])
        file.write_text(CHAIN_TEXT + line + TAGS[case.values["tag"]])
    elif way == "anchors":
        levels = case.chance.choice([3, 9, 30])
        rows = [f"l{k}: &l{k} [{', '.join([f'*l{k - 1}'] * 9)}]" for k in range(1, levels)]
        file.write_text("\n".join(["l0: &l0 [x]", *rows, f"transforms: *l{levels - 1}", "sample_rate: 16000"]))
    else:
        document = yaml.safe_load(CHAIN_TEXT)
        file.write_bytes(hostile(CHAIN_TEXT, document, lambda each: yaml.safe_dump(each), way, case.chance))
    ended = one_sentence(lambda: Chain.from_yaml(file), "chain.yaml")
    check_nothing_ran(case)
    file.write_text(CHAIN_TEXT)
    Chain.from_yaml(file)
    return ended


@cache
def texts() -> dict[str, str]:
    """Return a plan, a report and a log as their files have them."""
    report = replace(planted_report(), complete=True)
    window = Window(seconds=1.0, step=5, steps=5, step_ms=10.0, wait_ms=1.0)
    log = [json.loads(to_json(each)) for each in (MonitoredRun(report.host), window, window)]
    return {
        "plan": to_json(Plan(cut=1, num_workers=2)),
        "report": to_json(report),
        "log": "".join(json.dumps(each) + "\n" for each in log),
    }


def hostile_json(case: Case, name: str) -> bytes:
    """Return a hostile form of one of them."""
    text = texts()[name]
    if name == "log":
        rows = [json.loads(line) for line in text.splitlines()]
        return hostile(
            text, rows, lambda rows: "".join(json.dumps(each) + "\n" for each in rows), case.values["way"], case.chance
        )
    return hostile(text, json.loads(text), json.dumps, case.values["way"], case.chance)


@kind("hostile plan file", ["Plan.load"], weight=6, way=WAYS)
def plan_file(case: Case) -> str:
    file = case.folder / "plan.json"
    file.write_bytes(hostile_json(case, "plan"))
    ended = one_sentence(lambda: Plan.load(file), "plan.json")
    if ended == "accepted":
        plan = Plan.load(file)
        if 0 <= plan.num_workers <= 2:  # more may be meant for a larger machine
            case.target = "Loader, map"
            case.values = {**case.values, "workers": 0}
            ended = f"accepted, {one_sentence(lambda: list(case.loader([[0.0] * 40] * 4)))}"
    Plan(cut=1).save(file)
    Plan.load(file)
    return ended


@kind("hostile report file", ["advise --load"], weight=8, way=WAYS, output=("--html", "--markdown", "--json", "none"))
def report_file(case: Case) -> str:
    file, output = case.folder / "report.json", case.values["output"]
    file.write_bytes(hostile_json(case, "report"))
    more = [] if output == "none" else [output, str(case.folder / "out")]
    ended = command(lambda: advise(["--load", str(file), *more]), {0, 2})
    check_nothing_ran(case)
    if (
        "<script>alert" in (text := (case.folder / "out").read_text() if (case.folder / "out").exists() else "")
        and output == "--html"
    ):
        raise Violation("sentence", f"the page has a script of the report: {text[:100]}")
    file.write_text(texts()["report"])
    Report.load(file)
    return ended


def command(run: Callable[[], int], codes: set[int]) -> str:
    """Run a command in this process: its exit code is one of these, and an error is one line on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run()
    if code not in codes:
        raise Violation("exit code", f"{code}: {err.getvalue()[:500]}")
    said = err.getvalue()
    if code and (not said.startswith("error: ") or said.count("\n") != 1 or not said[:-1].isprintable()):
        raise Violation("sentence", repr(said[:500]))
    if "\x1b[31m" in out.getvalue() + said or "\u202e" in out.getvalue() + said:
        raise Violation("sentence", f"escape codes of the file reach the terminal: {out.getvalue()[:200]!r}")
    return f"exit code {code}"


@kind("hostile log", ["audioaug monitor"], weight=5, way=WAYS)
def log_file(case: Case) -> str:
    file = case.folder / "run.jsonl"
    file.write_bytes(hostile_json(case, "log"))
    ended = one_sentence(lambda: monitor_page.render(*read_log(file)), "run.jsonl")
    file.write_text(texts()["log"])
    monitor_page.render(*read_log(file))
    return ended


MANIFEST = [{"path": f"clip {k}.wav", "label": str(k % 2), "duration": 0.1, "id": f"clip-{k}"} for k in range(COUNT)]


def as_csv(rows: Any) -> str:
    """Return rows as CSV, as far as they are rows."""
    lines = ["path,label,duration,id"]
    for row in rows:
        lines.append(",".join(str(value) for value in row.values()) if isinstance(row, dict) else str(row))
    return "\n".join(lines) + "\n"


@kind("hostile manifest", ["AudioFolder"], weight=6, way=WAYS, suffix=("csv", "tsv", "jsonl"), key=(None, "id"))
def manifest(case: Case) -> str:
    from tests.campaign.kinds.audio_files import good

    write = {
        "csv": as_csv,
        "tsv": lambda rows: as_csv(rows).replace(",", "\t"),
        "jsonl": lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
    }[case.values["suffix"]]
    for row in MANIFEST:
        (case.folder / str(row["path"])).write_bytes(good("wav"))
    file = case.folder / f"list.{case.values['suffix']}"
    file.write_bytes(hostile(write(MANIFEST), MANIFEST, write, case.values["way"], case.chance))

    def read() -> None:
        folder = AudioFolder(file, RATE, key=case.values["key"])
        folder.lengths()
        for index in range(min(3, len(folder))):
            folder[index]

    ended = one_sentence(read, "list.", "clip ", "cannot be decoded", "There is no")
    file.write_text(write(MANIFEST))
    if len(AudioFolder(file, RATE)) != COUNT:
        raise Violation("next run", "the manifest cannot be read again")
    return ended


MODELS = {
    "bytes": b"\x00\xff\xfe" * 100,
    "no Python": b"this is no program",
    "raises": b"raise ValueError('planted')",
    "exits": b"import sys; sys.exit(3)",
    "exits well": b"raise SystemExit",
    "interrupts": b"raise GeneratorExit",
    "no model": b"x = 1",
    "imports itself": b"import mymodel",
    "imports nothing": b"import no_such_module_at_all",
    "deep": b"x = " + b"(" * 5000 + b")" * 5000,
    "endless recursion": b"def f(): return f()\nf()",
    "a number": b"model = 3",
    "needs arguments": b"import torch\nclass M(torch.nn.Module):\n    def __init__(self, a): super().__init__()",
    "raises in init": b"import torch\nclass M(torch.nn.Module):\n    def __init__(self): raise KeyError('planted')",
    "odd settings": b"import torch\nmodel = torch.nn.Linear(1, 1)\nsample_rate = 'x'\nbatch_size = -1",
    "odd dataset": b"import torch\nmodel = torch.nn.Linear(1, 1)\nsample_rate = 16000\ndataset = 7",
    "odd augment": b"import torch\nmodel = torch.nn.Linear(1, 1)\nsample_rate = 16000\naugment = 'loud'",
    "empty": b"",
    "utf-16": "model = 1".encode("utf-16"),
    "nul": b"model = 1\0",
    "tabs": b"if 1:\n\tx = 1\n        y = 2",
    "odd coding": b"# -*- coding: klingon -*-\n",
    "folder": None,
    "missing": None,
    "pipe": None,
}


@kind("hostile model file", ["advise --model"], weight=1.2, limit=90, model=tuple(MODELS))
def model_file(case: Case) -> str:
    file, name = case.folder / "mymodel.py", case.values["model"]
    if (content := MODELS[name]) is not None:
        file.write_bytes(content)
    elif name == "folder":
        file.mkdir()
    elif name == "pipe":
        os.mkfifo(file)
    ended = command(lambda: advise(["--model", str(file), "--quick", "--budget", "5"]), {1, 2})
    if file.exists() or file.is_fifo():
        file.rename(case.folder / "bad")
    file.write_text("import torch\nmodel = torch.nn.Linear(1, 1)\nsample_rate = 16000\n")
    load_training_job(str(file), "cpu")
    return ended


STATES: dict[str, Callable[[dict[str, Any], random.Random], Any]] = {
    "other seed": lambda state, chance: {**state, "seed": 99_999_999},
    "other dataset": lambda state, chance: {**state, "batches": 77, "examples": 308},
    "other batch size": lambda state, chance: {**state, "batch_size": 2, "batches": 6},
    "other ranks": lambda state, chance: {**state, "ranks": 2},
    "other order": lambda state, chance: {**state, "order": "DistributedSampler(seed=4)"},
    "earlier version": lambda state, chance: {key: state[key] for key in ("epoch", "batch", "seed", "batches")},
    "later version": lambda state, chance: {**state, "schema_version": 99, "more": [1]},
    "a missing key": lambda state, chance: {key: state[key] for key in chance.sample(sorted(state), len(state) - 1)},
    "odd value": lambda state, chance: {**state, chance.choice(sorted(state)): chance.choice(ODD_VALUES)},
    "odd position": lambda state, chance: {
        **state,
        chance.choice(["epoch", "batch", "offset"]): chance.choice(ODD_VALUES),
    },
    "beyond the end": lambda state, chance: {**state, "batch": 10**9},
    "before the start": lambda state, chance: {**state, "batch": -2},
    "no state": lambda state, chance: chance.choice([None, [], "x", 7, {}, {"model": {}}]),
}


@kind("state of another run", LOADERS[:4], weight=7, state=tuple(STATES), after=(0, 1, 3), workers=(0, 0, 0, 1))
def state_dict(case: Case) -> str:
    """Resume from a state that is not this run's; then from one that is."""
    before, done = case.batches(), list[int]()
    for step, batch in enumerate(before):
        if step == case.values["after"]:
            break
        done += [int(index) for index in batch["index"]]
        state = before.state_dict()
    else:
        state = before.state_dict()
    state = state if case.values["after"] else before.state_dict()
    other = case.batches()
    epoch_done = case.values["after"] == 3
    try:
        other.load_state_dict(STATES[case.values["state"]](dict(state), case.chance))
        found = indices(other)
    except AudioaugError as error:
        ended = check_sentence(error)
    else:
        if len(set(found)) < len(found) or not set(found) <= set(range(COUNT)):
            raise Violation("lost or twice", f"delivered {found} after {done}")
        ended = "resumed"
    again = case.batches()
    if case.values["after"] in (1,):
        again.load_state_dict(state)
        check_all(done + indices(again), verdict="next run")
    else:
        check_all(indices(again), verdict="next run")
    return ended if not epoch_done else f"{ended}, epoch done"
