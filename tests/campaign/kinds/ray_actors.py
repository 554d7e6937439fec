"""What Ray Data hands to ``Augment``: odd batches; and actors that die or raise in mid-epoch, on a cluster."""

import importlib.util
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from audioaug.errors import AudioaugError
from audioaug.integrations.ray import Augment
from tests.campaign.case import CHAIN, COUNT, SAMPLES, Case, check_all, check_once, check_sentence
from tests.campaign.faults import Violation, kind
from tests.helpers.local_ray import local_ray

WAVES = np.random.default_rng(0).standard_normal((COUNT, SAMPLES)).astype(np.float32) * 0.1
Batch = dict[str, Any]


def rows(first: int, stop: int) -> Batch:
    """Return some examples as a dict batch."""
    numbers = np.arange(first, stop)
    return {"audio": WAVES[first:stop], "key": np.asarray([f"clip-{k}" for k in numbers]), "index": numbers}


def with_audio(batch: Batch, odd: Any) -> Batch:
    """Return a batch of objects whose second clip is something else."""
    column = np.empty(len(batch["key"]), dtype=object)
    for row, wave in enumerate(batch["audio"]):
        column[row] = odd if row == 1 else wave
    return {**batch, "audio": column}


ODD: dict[str, Callable[[Batch], Batch]] = {
    "integers": lambda batch: with_audio(batch, np.ones(9, np.int16)),
    "no array": lambda batch: with_audio(batch, "audio"),
    "missing clip": lambda batch: with_audio(batch, None),
    "empty clip": lambda batch: with_audio(batch, np.zeros(0, np.float32)),
    "three dimensions": lambda batch: with_audio(batch, np.zeros((1, 1, 9), np.float32)),
    "no dimension": lambda batch: with_audio(batch, np.float32(1)),
    "NaN": lambda batch: with_audio(batch, np.full(9, np.nan, np.float32)),
    "denormal": lambda batch: with_audio(batch, np.full(9, 1e-42, np.float32)),
    "double precision": lambda batch: with_audio(batch, np.full(9, 0.1)),
    "two channels": lambda batch: with_audio(batch, np.full((2, 9), 0.1, np.float32)),
    "no audio": lambda batch: {"key": batch["key"]},
    "no keys": lambda batch: {"audio": batch["audio"]},
    "short keys": lambda batch: {**batch, "key": batch["key"][:-1]},
    "float keys": lambda batch: {**batch, "key": np.arange(4) + 0.5},
    "missing keys": lambda batch: {**batch, "key": np.array([None] * 4)},
    "equal keys": lambda batch: {**batch, "key": np.array(["a"] * 4)},
    "no examples": lambda batch: {name: column[:0] for name, column in batch.items()},
    "nothing": lambda batch: {},
    "no dict": lambda batch: list(batch.values()),  # type: ignore[dict-item,return-value]
}


@kind(
    "odd Ray batch",
    ["Ray, Augment"],
    weight=4,
    odd=tuple(ODD),
    wire=("float32", "int16", "float16"),
    cut=(0, 1, 3),
    engine=("audiomentations", "batched"),
)
def odd_batch(case: Case) -> str:
    augment = Augment(CHAIN, case.plan, seed=case.fault.number, wire=case.values["wire"])
    expected = augment(rows(0, 4))
    odd = ODD[case.values["odd"]](rows(0, 4))
    try:
        found = augment(odd)
    except AudioaugError as error:
        ended = check_sentence(error)
    else:
        if len(found["audio"]) != len(odd["audio"]) or set(odd) - set(found):
            raise Violation("lost or twice", f"{len(found['audio'])} of {len(odd['audio'])} clips, {sorted(found)}")
        ended = "delivered"
    again = augment(rows(0, 4))
    if not np.array_equal(again["audio"], expected["audio"]):
        raise Violation("next run", "the same batch has other audio now")
    return ended


class Faulty(Augment):
    """Does something once, when it gets one of the examples."""

    def __init__(self, folder: str, index: int, fault: str, **how: Any) -> None:
        super().__init__(**how)
        self.flag, self.index, self.fault = Path(folder) / "there", index, fault

    def __call__(self, batch: Any) -> Batch:
        """Augment, or do it."""
        if self.index in batch["index"] and self.flag.exists():
            if self.fault == "raise":
                raise ValueError("planted")
            if self.fault == "integers":
                batch = {**batch, "audio": np.ones((len(batch["index"]), 9), np.int16)}
            else:
                self.flag.unlink()
                os.kill(os.getpid(), signal.Signals[self.fault])
        return super().__call__(batch)


@kind(
    "Ray actor fails",
    ["Ray, actors"],
    weight=0.25,
    limit=300,
    fault=("SIGKILL", "SIGTERM", "SIGSEGV", "raise", "integers"),
    index=(0, 5, 11),
    actors=(1, 2),
)
def actor_fails(case: Case) -> str:
    """Actors that die are started again by Ray; what they raise must be found in what Ray raises."""
    if importlib.util.find_spec("ray") is None:
        return "without Ray"
    fault, flag = case.values["fault"], case.folder / "there"
    flag.touch()
    case.may_leave = ("file ",)  # Ray keeps its logs and sockets open in a process that has been connected
    with local_ray(2) as ray:
        try:
            ended, found = "delivered", epoch(case, ray)
        except Exception as error:
            wanted = {"raise": "planted", "integers": "must be floating point"}.get(fault)
            if wanted is None or wanted not in str(error):
                raise Violation("sentence", f"{fault} became {type(error).__name__}: {str(error)[-600:]}") from error
            ended = type(error).__name__
        if ended != "delivered":  # not in the except clause: its traceback could keep Ray's actors
            flag.unlink()
            found = epoch(case, ray)
        expected = Augment(CHAIN, seed=case.fault.number)(rows(0, COUNT))["audio"]
        check_all(list(found))
        for index, wave in found.items():
            if not np.array_equal(wave, expected[index]):
                raise Violation("lost or twice", f"example {index} has other audio after {fault}")
    shutil.rmtree(case.folder / "tmp/ray")  # the logs of the cluster
    return ended


def epoch(case: Case, ray: Any) -> dict[int, Any]:
    """Return the audio of each example after the actors."""
    how = {"chain": CHAIN, "seed": case.fault.number, "folder": str(case.folder)}
    how |= {"index": case.values["index"], "fault": case.values["fault"]}
    examples = [{name: column[0] for name, column in rows(k, k + 1).items()} for k in range(COUNT)]
    ds = ray.data.from_items(examples, override_num_blocks=6).map_batches(
        Faulty,
        fn_constructor_kwargs=how,
        batch_size=2,
        compute=ray.data.ActorPoolStrategy(size=case.values["actors"], max_tasks_in_flight_per_actor=8),
    )
    delivered = [(int(row["index"]), row["audio"]) for row in ds.iter_rows()]
    check_once([index for index, _ in delivered], range(COUNT))
    return dict(delivered)
