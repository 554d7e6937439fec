"""How fast are rooms simulated by image sources, and by rays? Beside pyroomacoustics, in turns, as ratios.

    python scripts/bench_rooms.py                                 batches of 32 rooms, orders 1, 3, 6 and 12, on the CPU
    python scripts/bench_rooms.py --rays --orders 1               with ray tracing, as RoomSimulator's default is
    python scripts/bench_rooms.py --device cuda --orders 3 --json result.json

All simulate the rooms of the same draws, from drawing to the response:

* audioaug: ``RoomSimulator`` on a batch of clicks, prepared and on the device;
* audiomentations: the room that its ``RoomSimulator`` builds for each example, wall by wall;
* shoe box: ``pyroomacoustics.ShoeBox`` with the same sizes and places, which finds images by a formula.
"""

import itertools
import statistics
from typing import Any

import click
import numpy as np
import pyroomacoustics
import torch
from bench_spec_augment import Work, in_turns, ratios
from compact_records import write_compact

from audioaug import Chain, build_device, ops
from audioaug.loader.prefetch import as_device

RATE = 16000


def contenders(order: int, batch: int, device: torch.device, rays: bool = False) -> dict[str, Work]:
    """Return what is timed, by name: ours first. Each call has draws of its own."""
    op = ops.RoomSimulator(use_ray_tracing=rays, max_order=order, p=1.0)
    chain, epochs = Chain([op], RATE), itertools.count()
    module, clicks_BCT = build_device(chain).to(device), torch.ones(batch, 1, 1, device=device)

    def drawn() -> dict[str, np.ndarray]:
        draws = chain.draw(range(batch), epoch=next(epochs))
        return {name: draws[f"0:{name}"] for name in op.distributions()}

    def ours() -> torch.Tensor:
        return module(clicks_BCT, draws=chain.draw(range(batch), epoch=next(epochs)))

    def by_audiomentations() -> list[dict[str, Any]]:
        draw = drawn()  # which was never simulated before
        rows = [{name: values[row] for name, values in draw.items()} for row in range(batch)]
        return [op.replay(row, np.zeros(1, np.float32), RATE) for row in rows]

    def in_shoe_boxes() -> list[np.ndarray]:
        found = op.parameters(drawn())
        rows = [{name: float(values[row]) for name, values in found.items()} for row in range(batch)]
        return [_in_shoe_box(row, rays) for row in rows]

    return {"audioaug": ours, "audiomentations": by_audiomentations, "shoe box": in_shoe_boxes}


def _in_shoe_box(found: dict[str, float], rays: bool) -> np.ndarray:
    size, source, microphone = ([found[f"{what}_{axis}"] for axis in "xyz"] for what in ("size", "source", "mic"))
    walls, order = pyroomacoustics.Material(found["absorption_coefficient"]), int(found["max_order"])
    room = pyroomacoustics.ShoeBox(size, RATE, materials=walls, max_order=order, air_absorption=True)
    if rays:
        room.set_ray_tracing(n_rays=10_000, receiver_radius=0.5, energy_thres=1e-5)  # audiomentations' defaults
    room.add_source(source)
    room.add_microphone(microphone)
    room.compute_rir()
    return room.rir[0][0]


@click.command()
@click.option("--device", default="cpu", show_default=True, help="auto, cpu or cuda.")
@click.option("--batch", default=32, show_default=True, help="Rooms in a batch.")
@click.option("--orders", default="1,3,6,12", show_default=True, metavar="N,N", help="Of reflections.")
@click.option("--rays", is_flag=True, help="With ray tracing, too.")
@click.option("--rounds", default=7, show_default=True, help="How often each is timed.")
@click.option("--threads", default=1, show_default=True, help="Of torch.")
@click.option("--json", "json_", metavar="FILE", help="Write the result as JSON.")
def main(device: str, batch: int, orders: str, rays: bool, rounds: int, threads: int, json_: str | None) -> None:
    """Time the simulation of rooms beside pyroomacoustics."""
    torch.set_num_threads(threads)
    where, found = as_device(device), {}
    print(f"{batch} rooms at {RATE} Hz on {where}, {threads} threads, {rounds} rounds")
    for order in map(int, orders.split(",")):
        seconds = in_turns(contenders(order, batch, where, rays), rounds, where)
        for name, ratio in ratios(seconds).items():
            (low, high), ms = ratio.interval, 1e3 * statistics.median(seconds[name]) / batch
            found[f"{name}, order {order}"] = {
                "ms_a_room": ms,
                "ratio": ratio.median,
                "ratio_low": low,
                "ratio_high": high,
            }
            print(
                f"order {order:2} {name:16} {ms:9.3f} ms a room   {ratio.median:8.2f} x ours ({low:.2f} .. {high:.2f})"
            )
    if json_:
        write_compact(found, json_)


if __name__ == "__main__":
    main()
