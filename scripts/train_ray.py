"""Training through Ray Data, to copy and change: actors on any number of nodes augment, and this program trains.

    python scripts/train_ray.py                          two actors on this machine, a few minutes
    python scripts/train_ray.py --address auto --actors 32 --plan plan.json        on the cluster that this node is in

It is the keyword spotter of `models/keyword_cnn.py` on the demo speech. An example's audio follows from its key, its
path, whichever actor makes it. Ctrl-C ends the program after the step under way and keeps all in a checkpoint: the same
command with --resume continues there, in the middle of an epoch, also with another number of actors.
"""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from models import keyword_cnn as example
from torch.nn.functional import cross_entropy
from torch.utils.data import random_split
from train import HELD_OUT, Stop

import audioaug
from audioaug.command import run
from audioaug.errors import UsageError
from audioaug.integrations.ray import Augment, Batches, SharedEpoch, batches

PARTS = ("model", "optimizer", "batches")
"""What has a state of its own in a checkpoint."""


def read(row: dict[str, Any], folder: audioaug.AudioFolder) -> dict[str, Any]:
    """Read an example, in a process of Ray's."""
    wave, label, key = folder[row["number"]]
    return {"audio": wave, "label": label, "key": key}


def batches_of(folder: audioaug.AudioFolder, numbers: Sequence[int], options: dict[str, Any]) -> Batches:
    """Return batches of these examples of a folder, which actors read and augment up to the plan's cut."""
    import ray

    plan = None if options["plan"] is None else audioaug.Plan.load(options["plan"])
    epoch, seed = SharedEpoch(), options["seed"]
    how = {"chain": example.augment, "plan": plan, "seed": seed, "epoch": epoch}
    ds = ray.data.from_items([{"number": number} for number in numbers]).random_shuffle()
    ds = ds.map(read, fn_kwargs={"folder": folder})
    actors = ray.data.ActorPoolStrategy(size=options["actors"], max_tasks_in_flight_per_actor=8)
    ds = ds.map_batches(Augment, fn_constructor_kwargs=how, batch_size=options["batch_size"], compute=actors)
    ways = {"batch_size": options["batch_size"], "device": options["device"], "seed": seed, "epoch": epoch}
    return batches(ds, example.augment, plan, drop_last=True, **ways)


class Training:
    """Model, optimizer and the position in the data."""

    def __init__(self, found: Batches, options: dict[str, Any]) -> None:
        self.batches, self.device, self.steps = found, found.device, 0
        self.model = example.build_model().to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options["learning_rate"])

    def step(self, batch: dict[str, Any]) -> None:
        """Train on one batch."""
        self.model.train()
        loss = cross_entropy(self.model(batch["audio"]), batch["label"])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.steps += 1

    @torch.inference_mode()
    def accuracy(self, held_out: Any) -> float:
        """Return the share of the examples that the model classifies correctly."""
        self.model.eval()
        hits = [self.model(audio).argmax(dim=1) == label for audio, label, *_ in held_out]
        return torch.cat(hits).float().mean().item()

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically."""
        written = path.with_name(path.name + ".new")
        torch.save({name: getattr(self, name).state_dict() for name in PARTS} | {"steps": self.steps}, written)
        os.replace(written, path)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        if not path.exists():
            raise UsageError(f"--resume: there is no checkpoint {path}.", "Name one with --checkpoint.")
        state = torch.load(path, map_location=self.device, weights_only=True)
        for name in PARTS:
            getattr(self, name).load_state_dict(state[name])
        self.steps = state["steps"]


@click.command(context_settings={"max_content_width": 100})
@click.option("--address", help="Of a Ray cluster, or auto for the one that this node is in. [default: a local one]")
@click.option("--actors", type=click.IntRange(1), default=2, show_default=True, help="Processes that augment.")
@click.option("--plan", metavar="FILE", help="From the advisor. [default: all of the chain in actors]")
@click.option("--epochs", type=click.IntRange(1), default=20, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=16, show_default=True)
@click.option("--learning-rate", type=float, default=2e-3, show_default=True)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--seed", default=0, show_default=True, help="Of the weights and the augmentation.")
@click.option("--examples", type=click.IntRange(0), default=0, help="Train on the first few only. [default: all]")
@click.option("--checkpoint", type=click.Path(path_type=Path), default="checkpoint.pt", show_default=True)
@click.option("--resume", is_flag=True, help="Continue from the checkpoint.")
def program(**options: Any) -> None:
    """Train a keyword spotter on the demo speech, augmented by actors of Ray Data."""
    import ray

    address = options["address"] or "local"
    local = {"num_cpus": options["actors"] + 2, "include_dashboard": False} if address == "local" else {}
    ray.init(address, log_to_driver=False, logging_level="error", **local)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    torch.manual_seed(options["seed"])
    split = torch.Generator().manual_seed(0)
    folder = audioaug.AudioFolder(example.dataset, example.sample_rate, example.clip_seconds, key="path")
    kept, held_out = random_split(folder, [1 - HELD_OUT, HELD_OUT], generator=split)
    training = Training(batches_of(folder, kept.indices[: options["examples"] or None], options), options)
    if options["resume"]:
        training.load(options["checkpoint"])
    ways = {"batch_size": options["batch_size"], "device": training.device}
    words = audioaug.Loader(held_out, example.augment, augment=False, **ways)
    with Stop() as stop:
        for epoch in range(training.batches.state_dict()["epoch"], options["epochs"]):
            for batch in training.batches:
                training.step(batch)
                if stop.pressed:
                    training.save(options["checkpoint"])
                    raise click.Abort("the same command with --resume continues from the checkpoint")
            print(f"epoch {epoch}: {training.accuracy(words):.0%} of the held-out words", file=sys.stderr, flush=True)
            training.save(options["checkpoint"])
    print(f"accuracy {training.accuracy(words):.0%} on words held out, after {training.steps} steps")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; every error is one sentence on stderr."""
    return run(program, arguments)


if __name__ == "__main__":
    sys.exit(main())
