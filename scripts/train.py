"""A complete training program, to copy and change: the keyword spotter of `models/keyword_cnn.py` on the demo speech.

    python scripts/train.py                                         a minute or two on a CPU
    python scripts/train.py --plan plan.json                        with what the advisor wrote, or --plan auto
    python scripts/train.py --precision bf16 --accumulate 2 --tensorboard runs --trace trace.json

Ctrl-C ends it after the update under way and keeps all in a checkpoint: the same command with --resume continues there,
in the middle of an epoch, as if it had not stopped.
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
import torch
from models import keyword_cnn as example
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch.nn.functional import cross_entropy
from torch.utils.data import Subset, random_split

import audioaug
from audioaug.command import run
from audioaug.errors import AudioaugError, OutputError, UsageError, first_line
from audioaug.loader.prefetch import as_device

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
HELD_OUT = 0.2
"""Share of the examples that are never trained on, the same in every run."""

PARTS = ("model", "optimizer", "schedule", "scaler", "loader")
"""What has a state of its own in a checkpoint."""

Batch = tuple[torch.Tensor, torch.Tensor]
"""Audio (B, 1, T) and labels (B,)."""


class Training:
    """The state that one update passes to the next: model, optimizer, schedule, and the position in the data."""

    def __init__(self, model: torch.nn.Module, loader: Any, options: dict[str, Any]) -> None:
        device, precision = loader.device, options["precision"]
        self.reached = 0.0  # accuracy after the last epoch
        self.loader, self.accumulate, self.updates = loader, options["accumulate"], 0
        self.model = model.to(device)
        self.forward = torch.compile(self.model) if options["compile"] else self.model
        self.autocast = torch.autocast(device.type, DTYPES[precision], enabled=precision != "fp32")
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options["learning_rate"])
        total = options["epochs"] * -(-len(loader) // self.accumulate)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, options["learning_rate"], total)

    def update(self, batches: Sequence[Batch]) -> torch.Tensor:
        """Change the weights once, by the gradient of the mean loss over all examples of these batches; return it."""
        self.model.train()
        examples, total = sum(len(label) for _, label in batches), torch.zeros((), device=self.loader.device)
        for audio, label in batches:
            with self.autocast:
                loss = cross_entropy(self.forward(audio), label, reduction="sum") / examples
            self.scaler.scale(loss).backward()
            total += loss.detach()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step()
        self.updates += 1
        return total

    @torch.inference_mode()
    def accuracy(self, batches: Any) -> float:
        """Return the share of the examples that the model classifies correctly."""
        self.model.eval()
        hits: list[torch.Tensor] = []
        for audio, label in batches:
            with self.autocast:
                hits.append(self.model(audio).argmax(dim=1) == label)
        return torch.cat(hits).float().mean().item()

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically."""
        state = {name: getattr(self, name).state_dict() for name in PARTS}
        state |= {"updates": self.updates, "reached": self.reached, "random": torch.get_rng_state()}
        written = path.with_name(path.name + ".new")
        try:
            torch.save(state, written)
            os.replace(written, path)
        except (OSError, RuntimeError) as error:  # torch's own, if the disk is full
            written.unlink(missing_ok=True)
            raise OutputError(f"Cannot write {path}: {first_line(error)}.", "Is the disk full?") from None

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        if not path.exists():
            raise UsageError(f"--resume: there is no checkpoint {path}.", "Name one with --checkpoint.")
        try:
            state = torch.load(path, map_location=self.loader.device, weights_only=True)
            for name in PARTS:
                getattr(self, name).load_state_dict(state[name])
            self.updates, self.reached = state["updates"], state["reached"]
            torch.set_rng_state(state["random"].cpu())
        except AudioaugError:
            raise
        except Exception as error:  # a damaged file, or another program's
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"--resume: {path} is no checkpoint of this program and model ({reason}).") from None


class Stop:
    """While it is entered, Ctrl-C only notes that it was ``pressed``; pressed again, it interrupts as usual."""

    def __init__(self) -> None:
        self.pressed = False

    def __enter__(self) -> "Stop":
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _press(self, *_: object) -> None:
        self.pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


class View(contextlib.ExitStack):
    """What the program says: a bar on a terminal, a line an epoch, and TensorBoard's scalars if asked for."""

    def __init__(self, total: int, folder: str | None) -> None:
        super().__init__()
        console = Console(stderr=True)
        text = "epoch {task.fields[epoch]}  loss {task.fields[loss]:.2f}  stall {task.fields[stall]:.0%}"
        columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("", total=total, epoch=0, loss=0.0, stall=0.0)
        self.looks = 0
        self.board: Any = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = self.enter_context(SummaryWriter(folder))
        self.enter_context(self.bar)

    def update(self, training: Training, epoch: int, loss: torch.Tensor, monitor: audioaug.Monitor[Batch]) -> None:
        """Show an update; the loss is fetched only where the monitor has looked, since that waits for the device."""
        looks = len(monitor.windows)
        seen = {"loss": loss.item(), "stall": monitor.windows[-1].stall} if looks and looks != self.looks else {}
        self.looks = looks
        self.bar.update(self.task, completed=training.updates, epoch=epoch, **seen)
        if seen:
            self._write({"loss": seen["loss"], "learning_rate": training.schedule.get_last_lr()[0]}, training.updates)

    def epoch(self, training: Training, epoch: int, losses: Sequence[torch.Tensor]) -> None:
        """Print an epoch's results; after a stop at its last update, there are no losses left."""
        found = {"epoch_loss": torch.stack([*losses]).mean().item()} if losses else {}
        words = "".join(f"loss {loss:.2f}, " for loss in found.values())
        self.bar.console.print(f"epoch {epoch}: {words}{training.reached:.0%} of the held-out words", highlight=False)
        self._write({**found, "accuracy": training.reached}, training.updates)

    def _write(self, scalars: dict[str, float], step: int) -> None:
        for name, value in scalars.items() if self.board is not None else ():
            self.board.add_scalar(f"train/{name}", value, step)


def loaders_of(options: dict[str, Any]) -> tuple[audioaug.Loader, audioaug.Loader]:
    """Return the Loader to train with and, without augmentation, that of the examples held out."""
    dataset = audioaug.AudioFolder(example.dataset, example.sample_rate, example.clip_seconds)
    split = torch.Generator().manual_seed(0)
    kept, held_out = random_split(dataset, [1 - HELD_OUT, HELD_OUT], generator=split)
    if options["examples"]:
        kept = Subset(kept, range(min(options["examples"], len(kept))))
    named = options["plan"]
    plan = named if named in (None, "auto") else audioaug.Plan.load(named)
    ways = {"batch_size": options["batch_size"], "device": as_device(options["device"]), "seed": options["seed"]}
    loader = audioaug.Loader(kept, example.augment, plan, shuffle=True, drop_last=True, **ways)
    if not len(loader):
        raise UsageError(f"{len(kept)} examples make no batch of {options['batch_size']}.", "Lower --batch-size.")
    return loader, audioaug.Loader(held_out, example.augment, augment=False, **ways)


class Trace:
    """A profiler trace of updates 3 to 7 of this run (of as many as there are), if a file is named."""

    def __init__(self, path: str | None) -> None:
        self.path, self.updates = path, 0
        self.running: torch.profiler.profile | None = None

    def step(self) -> None:
        self.updates += 1
        if self.path is not None and self.updates == 2:
            self.running = torch.profiler.profile(acc_events=True)
            self.running.start()
        elif self.updates == 7:
            self.close()

    def close(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.stop()
            running.export_chrome_trace(self.path)


def groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    while group := list(islice(batches, size)):
        yield group


def train(training: Training, held_out: Any, options: dict[str, Any], view: View, stop: Stop) -> None:
    """Train until the last epoch or until stopped."""
    monitor = audioaug.Monitor(
        training.loader, html=options["html"], tensorboard=options["tensorboard"], live=False, every=0.5
    )
    with monitor, contextlib.closing(Trace(options["trace"])) as trace:
        for epoch in range(training.loader.state_dict()["epoch"], options["epochs"]):
            training.loader.set_epoch(epoch)
            losses: list[torch.Tensor] = []
            for batches in groups(iter(monitor), training.accumulate):
                losses.append(training.update(batches))
                view.update(training, epoch, losses[-1], monitor)
                trace.step()
                if stop.pressed:
                    return
            training.reached = training.accuracy(held_out)
            view.epoch(training, epoch, losses)
            training.save(options["checkpoint"])


@click.command(context_settings={"max_content_width": 100})
@click.option("--plan", metavar="FILE|auto", help="From the advisor; auto tries some in the first steps.")
@click.option("--epochs", type=click.IntRange(1), default=40, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=16, show_default=True)
@click.option("--learning-rate", type=float, default=5e-3, show_default=True, help="The highest of the schedule.")
@click.option("--precision", type=click.Choice(list(DTYPES)), default="fp32", show_default=True)
@click.option("--accumulate", type=click.IntRange(1), default=1, show_default=True, help="Batches in an update.")
@click.option("--compile", is_flag=True, help="Compile the model (it needs a C++ compiler).")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--seed", default=0, show_default=True, help="Of the weights, the order and the augmentation.")
@click.option("--examples", type=click.IntRange(0), default=0, help="Train on the first few only. [default: all]")
@click.option("--checkpoint", type=click.Path(path_type=Path), default="checkpoint.pt", show_default=True)
@click.option("--resume", is_flag=True, help="Continue from the checkpoint.")
@click.option("--tensorboard", metavar="FOLDER", help="Write scalars for TensorBoard.")
@click.option("--html", metavar="FILE", help="Write the monitor's page.")
@click.option("--trace", metavar="FILE", help="Write a profiler trace of a few updates.")
def program(**options: Any) -> None:
    """Train a keyword spotter on the demo speech, augmented by a plan."""
    if not options["checkpoint"].absolute().parent.is_dir():
        raise UsageError(f"--checkpoint: there is no folder {options['checkpoint'].parent}.", "Make it first.")
    torch.manual_seed(options["seed"])
    loader, held_out = loaders_of(options)
    training = Training(example.build_model(), loader, options)
    if options["resume"]:
        training.load(options["checkpoint"])
    with Stop() as stop, View(training.schedule.total_steps, options["tensorboard"]) as view:
        train(training, held_out, options, view, stop)
        if stop.pressed:
            training.save(options["checkpoint"])
            raise click.Abort("the same command with --resume continues from the checkpoint")
    print(f"accuracy {training.reached:.0%} on words held out, after {training.updates} updates")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; every error is one sentence on stderr."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("audioaug").setLevel(logging.INFO)
    return run(program, arguments)


if __name__ == "__main__":
    sys.exit(main())
