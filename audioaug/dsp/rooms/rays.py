"""Late reverberation of box-shaped rooms by ray tracing, as pyroomacoustics computes it; on the host.

Rays leave the source in all directions, and each wall takes its share of their energy. Those that come past the
microphone, within a radius, make a histogram of energy over time. Impulses with random signs, at random times, are
given that energy.

Where a ray is after a hundred walls depends on every rounding on its way: here all is float32, and rounded one
operation after the other as there. Where compilers add products without rounding them first, on ARM, one ray in a
thousand comes past here and not there, or the other way round.

References: D. Schroeder, Physically based real-time auralization of interactive virtual environments (2011), sections
5.2 and 5.3.4. ``pyroomacoustics.Room.ray_tracing``, ``pyroomacoustics.simulation.rt.compute_rt_rir``.

Shapes: B rooms, N rays, H bins of a histogram, M impulses, T samples.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.dsp.dispatch import primitive
from audioaug.dsp.loops import Doubles, Floats, Integers, loop_as_written, run
from audioaug.dsp.rooms import SPEED_OF_SOUND

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
EDGE = 1e-5
"""By this many metres a ray may miss the microphone; and one that meets two walls within it is lost in the edge."""
HITS = 20
"""Rays that come past the microphone in each bin, on average, if no number of rays is given."""
PLACED = 6
"""Numbers that the reference draws before, to see that the source and the microphone are inside the room."""
MOST_IMPULSES = 10_000.0
"""In a second, however many reflections there are."""
LEAST_POWER = 1e-10
BLOCK = 128
"""Rays that are traced together, so that what is known of them stays in the cache."""


class Rays(NamedTuple):
    """How rays are traced: how many (or for each room as many as it needs), and how near to the microphone they count.

    A ray ends at a share of its energy, or after a number of seconds. The histogram has bins of ``step`` samples.
    """

    number: int | None
    radius: float
    least_energy: float
    seconds: float
    step: int


def tails(
    size_B3: FloatArray,
    source_B3: FloatArray,
    microphone_B3: FloatArray,
    absorption_B: FloatArray,
    order_B: IntArray,
    key_B: IntArray,
    sample_rate: int,
    rays: Rays,
) -> list[FloatArray]:
    """Return for each room the impulses of its reverberation, from when the source sounds, before air dampens them.

    Args:
        size_B3: of each room, in metres.
        source_B3: inside its room.
        microphone_B3: inside its room.
        absorption_B: share of the energy that a wall absorbs, 0 to 1.
        order_B: of the reflections that image sources are for; rays count once they were reflected as often.
        key_B: seeds of the random times and signs.
        sample_rate: in Hz.
        rays: how they are traced.
    """
    metres = SPEED_OF_SOUND * rays.step / sample_rate
    number_B = _numbers(size_B3, rays.radius, metres) if rays.number is None else np.full(len(size_B3), rays.number)
    walls, order = list(map(_walls, size_B3)), torch.from_numpy(order_B)
    size, source, microphone, absorption, normals = (
        torch.from_numpy(each.astype(np.float32))
        for each in (size_B3, source_B3, microphone_B3, absorption_B, np.stack([each.normals_23 for each in walls]))
    )
    farthest = SPEED_OF_SOUND * rays.seconds
    bins = int((farthest + float(np.sqrt(np.square(size_B3).sum(axis=1).max()))) / metres) + 3
    limits = rays.radius, rays.least_energy, farthest, metres, bins
    energy_BH = size.new_zeros(len(size_B3), bins, dtype=torch.float64)
    for number in np.unique(number_B[number_B > 0]).tolist():
        rows = torch.from_numpy(np.flatnonzero(number_B == number))
        rooms = size[rows], source[rows], microphone[rows], absorption[rows], normals[rows], order[rows]
        energy_BH[rows] = trace(_directions(number), *rooms, *limits)
    first_B = np.sqrt(np.square(source_B3 - microphone_B3).sum(axis=1)) / SPEED_OF_SOUND
    numbers = zip(energy_BH.numpy(), walls, first_B.tolist(), key_B.tolist())
    return [
        _impulses(energy_H, each.volume, first, key, sample_rate, rays.step) for energy_H, each, first, key in numbers
    ]


def _numbers(size_B3: FloatArray, radius: float, metres: float) -> IntArray:
    """Return how many rays each room needs, for what the reference has as the volume before a room has a height."""
    x_B, y_B = size_B3[:, :2].T.astype(np.float32)
    volume_B = 2 * x_B * y_B / 3
    return (HITS * (volume_B / np.float32(math.pi * radius**2 * metres))).astype(np.int64)


class Walls(NamedTuple):
    """What the reference's rounding makes of a room: its volume, and the lengths of normals of near and far walls."""

    normals_23: Floats
    volume: Any


def _walls(size_3: FloatArray) -> Walls:
    """Return what the reference has, from walls that it makes itself: their corners are in an order that it uses."""
    import pyroomacoustics

    x, y, z = size_3.tolist()
    near, far = (
        [pyroomacoustics.wall_factory(np.asarray(corners), [0.0], [0.0]) for corners in walls]
        for walls in (
            (
                (4 * [0], [y, 0, 0, y], [0, 0, z, z]),
                ([0, x, x, 0], 4 * [0], [0, 0, z, z]),
                ([0, 0, x, x], [0, y, y, 0], 4 * [0]),
            ),
            (
                (4 * [x], [0, y, y, 0], [0, 0, z, z]),
                ([x, 0, 0, x], 4 * [y], [0, 0, z, z]),
                ([x, x, 0, 0], [0, y, y, 0], 4 * [z]),
            ),
        )
    )
    normals_23 = np.asarray([[abs(wall.normal[axis]) for axis, wall in enumerate(walls)] for walls in (near, far)])
    volume: Any = np.float32(0.0)
    for wall in far:  # the others have no distance from the origin
        volume += np.dot(wall.normal / np.linalg.norm(wall.normal), wall.corners[:, 0]) * np.float32(wall.area())
    return Walls(normals_23, np.float32(volume / 3))


@functools.lru_cache(maxsize=4)
def _directions(number: int) -> torch.Tensor:
    """Return unit vectors in all directions, (3, N), on a spiral with the golden angle from pole to pole."""
    step = 2.0 / number
    z_N = (np.arange(number) * step - 1) + step / 2
    angle_N, level_N = np.arange(number) * (np.pi * (3.0 - np.sqrt(5.0))), np.sqrt(1.0 - z_N**2)
    return torch.from_numpy(np.stack([np.cos(angle_N) * level_N, np.sin(angle_N) * level_N, z_N]).astype(np.float32))


@primitive
def trace(
    direction_3N: torch.Tensor,
    size_B3: torch.Tensor,
    source_B3: torch.Tensor,
    microphone_B3: torch.Tensor,
    absorption_B: torch.Tensor,
    normals_B23: torch.Tensor,
    order_B: torch.Tensor,
    radius: float,
    least_energy: float,
    farthest: float,
    metres: float,
    bins: int,
) -> torch.Tensor:
    """Return the energy of rays that come past the microphone over the distance that they went, (B, H) of float64.

    Args:
        direction_3N: of the rays; unit vectors.
        size_B3: of the rooms.
        source_B3: where the rays start.
        microphone_B3: where it is.
        absorption_B: share of the energy that a wall takes.
        normals_B23: lengths of the normals of the walls at 0 and of those far away, about 1.
        order_B: rays count from this many reflections on.
        radius: around the microphone, in which rays count.
        least_energy: share of a ray's energy at which it ends.
        farthest: distance at which it ends.
        metres: that a bin is long.
        bins: H; enough for all distances.
    """
    energy_BH = size_B3.new_zeros(len(size_B3), bins, dtype=torch.float64)
    reach, step = np.float32(radius) + np.float32(EDGE), float(np.float32(metres))
    for row, (size_3, source_3, microphone_3) in enumerate(zip(size_B3, source_B3, microphone_B3)):
        at_3N, along_3N = source_3[:, None].expand_as(direction_3N), direction_3N
        longest = float(_norm(size_3)) + 1.0
        gone_N, axes_31 = torch.zeros_like(along_3N[0]), torch.arange(3, device=along_3N.device)[:, None]
        kept, energy = np.float32(1.0 - absorption_B[row].item()), np.float32(2.0) / np.float32(len(gone_N))
        least = energy * np.float32(least_energy)
        for hop in itertools.count():
            far_3N = along_3N > 0
            to_3N = (at_3N + along_3N * longest) - at_3N
            normal_3N = torch.where(far_3N, normals_B23[row, 1, :, None], normals_B23[row, 0, :, None])
            share_3N = normal_3N * (torch.where(far_3N, size_3[:, None], 0.0) - at_3N) / (normal_3N * to_3N)
            share_3N = share_3N.where((normal_3N * to_3N).abs() > EDGE, torch.inf)
            share_N, axis_N = share_3N.min(0)
            wall_3N = share_N * to_3N + at_3N
            hop_N = _norm(wall_3N - at_3N)
            if hop >= int(order_B[row]):
                microphone_3N = microphone_3[:, None] - at_3N
                past_N = _dot(microphone_3N, along_3N)
                passes_N = (past_N > -EDGE) & (past_N < hop_N + EDGE) & (hop_N > EDGE) & (gone_N <= farthest)
                passes_N &= _norm(microphone_3N - along_3N * past_N) < float(reach)
                distance_M = (gone_N + past_N.abs())[passes_N]
                square_M = distance_M.double().square()
                share_M = 1.0 - (1.0 - radius**2 / square_M.clamp(min=radius**2)).sqrt()
                energy_BH[row].index_add_(0, (distance_M / step).long(), float(energy) / (square_M * share_M))
            gone_N, energy = (gone_N + hop_N).where(hop_N > EDGE, torch.inf), energy * kept
            if energy < least or not (gone_N <= farthest).any():
                break
            met_3N = axes_31 == axis_N
            along_3N = torch.where(met_3N, along_3N - normal_3N * 2.0 * (along_3N * normal_3N), along_3N)
            at_3N = wall_3N
    return energy_BH


def _dot(x_3N: torch.Tensor, y_3N: torch.Tensor) -> torch.Tensor:
    """Return scalar products, added up as the reference's library does it."""
    x, y, z = x_3N * y_3N
    return x + (y + z)


def _norm(x_3N: torch.Tensor) -> torch.Tensor:
    return _dot(x_3N, x_3N).sqrt()


@trace.loop()
def _trace_by_loop(
    direction_3N: torch.Tensor,
    size_B3: torch.Tensor,
    source_B3: torch.Tensor,
    microphone_B3: torch.Tensor,
    absorption_B: torch.Tensor,
    normals_B23: torch.Tensor,
    order_B: torch.Tensor,
    radius: float,
    least_energy: float,
    farthest: float,
    metres: float,
    bins: int,
) -> torch.Tensor:
    energy_BH = size_B3.new_zeros(len(size_B3), bins, dtype=torch.float64)
    rooms = size_B3, source_B3, microphone_B3, absorption_B, normals_B23, order_B
    run(_trace, len(size_B3), direction_3N, *rooms, radius, least_energy, farthest, metres, energy_BH)
    return energy_BH


@loop_as_written
def _trace(
    direction_3N: Floats,
    size_B3: Floats,
    source_B3: Floats,
    microphone_B3: Floats,
    absorption_B: Floats,
    normals_B23: Floats,
    order_B: Integers,
    radius: float,
    least_energy: float,
    farthest: float,
    metres: float,
    energy_BH: Doubles,
    first: int,
    last: int,
) -> None:
    """Trace all rays of rooms, block by block: all of a block from wall to wall together."""
    at_x, at_y, at_z = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    along_x, along_y, along_z = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    gone, passed = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    edge, far_away, none, two = np.float32(EDGE), np.float32(farthest), np.float32(0.0), np.float32(2.0)
    reach, endless, near = np.float32(radius) + edge, np.float32(np.inf), radius * radius
    rays, step = direction_3N.shape[1], np.float32(metres)
    for row in range(first, last):
        size_x, size_y, size_z = size_B3[row, 0], size_B3[row, 1], size_B3[row, 2]
        mic_x, mic_y, mic_z = microphone_B3[row, 0], microphone_B3[row, 1], microphone_B3[row, 2]
        near_x, near_y, near_z = normals_B23[row, 0, 0], normals_B23[row, 0, 1], normals_B23[row, 0, 2]
        far_x, far_y, far_z = normals_B23[row, 1, 0], normals_B23[row, 1, 1], normals_B23[row, 1, 2]
        longest = np.sqrt(size_x * size_x + (size_y * size_y + size_z * size_z)) + np.float32(1.0)
        kept, full = np.float32(1.0) - absorption_B[row], two / np.float32(rays)
        least = full * np.float32(least_energy)
        for since in range(0, rays, BLOCK):
            count = min(BLOCK, rays - since)
            at_x[:], at_y[:], at_z[:] = source_B3[row, 0], source_B3[row, 1], source_B3[row, 2]
            along_x[:count] = direction_3N[0, since : since + count]
            along_y[:count] = direction_3N[1, since : since + count]
            along_z[:count] = direction_3N[2, since : since + count]
            gone[:] = 0.0
            energy, hop, goes_on = full, 0, True
            while goes_on:
                for i in range(count):  # many in one instruction
                    x, y, z = at_x[i], at_y[i], at_z[i]
                    dx, dy, dz = along_x[i], along_y[i], along_z[i]
                    nx, ny, nz = far_x if dx > 0 else near_x, far_y if dy > 0 else near_y, far_z if dz > 0 else near_z
                    to_x, to_y, to_z = (x + dx * longest) - x, (y + dy * longest) - y, (z + dz * longest) - z
                    part_x = nx * ((size_x if dx > 0 else none) - x) / (nx * to_x)
                    part_y = ny * ((size_y if dy > 0 else none) - y) / (ny * to_y)
                    part_z = nz * ((size_z if dz > 0 else none) - z) / (nz * to_z)
                    part_x = part_x if abs(nx * to_x) > edge else endless
                    part_y = part_y if abs(ny * to_y) > edge else endless
                    part_z = part_z if abs(nz * to_z) > edge else endless
                    part = min(part_x, min(part_y, part_z))
                    wall_x, wall_y, wall_z = part * to_x + x, part * to_y + y, part * to_z + z
                    hx, hy, hz = wall_x - x, wall_y - y, wall_z - z
                    length = np.sqrt(hx * hx + (hy * hy + hz * hz))
                    mx, my, mz = mic_x - x, mic_y - y, mic_z - z
                    past = mx * dx + (my * dy + mz * dz)
                    ox, oy, oz = mx - dx * past, my - dy * past, mz - dz * past
                    off = np.sqrt(ox * ox + (oy * oy + oz * oz))
                    passes = (past > -edge) & (past < length + edge) & (off < reach)
                    passes &= (length > edge) & (gone[i] <= far_away)
                    passed[i] = gone[i] + abs(past) if passes else -two
                    gone[i] = gone[i] + length if length > edge else endless
                    is_x = part_x == part
                    is_y = (part_y == part) & (not is_x)
                    along_x[i] = dx - nx * two * (dx * nx) if is_x else dx
                    along_y[i] = dy - ny * two * (dy * ny) if is_y else dy
                    along_z[i] = dz if is_x | is_y else dz - nz * two * (dz * nz)
                    at_x[i], at_y[i], at_z[i] = wall_x, wall_y, wall_z
                goes_on = False
                for i in range(count):
                    goes_on |= gone[i] <= far_away
                    if passed[i] >= none and hop >= order_B[row]:
                        square = np.float64(passed[i]) * np.float64(passed[i])
                        share = 1.0 - np.sqrt(1.0 - near / max(near, square))
                        energy_BH[row, int(passed[i] / step)] += energy / (square * share)
                energy *= kept
                goes_on &= energy >= least
                hop += 1


def _impulses(energy_H: FloatArray, volume: Any, first: float, key: int, sample_rate: int, step: int) -> FloatArray:
    """Return impulses with the energy of each bin, which end with the last bin that has any."""
    filled = np.flatnonzero(energy_H)
    if not len(filled):
        return np.zeros(0)
    seconds = step / sample_rate  # rounded as the reference does it, which counts samples with these numbers
    bins = math.ceil(float((filled[-1] + 1) * seconds * sample_rate) / step)
    samples, window = bins * step, int(seconds * sample_rate)
    time_M = _times(_generator(key, PLACED), volume, first, samples / sample_rate)
    generator = _generator(key, PLACED + len(time_M) - 1)
    generator.choice((1, -1), size=len(time_M))  # signs that have no effect, and directions of which there is one
    generator.uniform(size=len(time_M))
    sign_M = generator.choice((1, -1), size=len(time_M))
    place_M = (time_M * sample_rate).astype(np.int64)
    struck_T = np.zeros(place_M[-1] + 1)
    struck_T[place_M] = 1.0
    power_M = _sums(struck_T, 2 * window)[place_M] / 2
    level_M = np.divide(1.0, np.sqrt(power_M), out=np.zeros(len(place_M)), where=power_M > LEAST_POWER)
    noise_T = np.bincount(place_M, sign_M * level_M, samples)[:samples]
    return np.asarray(noise_T * np.sqrt(_interpolated(energy_H, bins, step)))


def _generator(key: int, drawn: int) -> np.random.Generator:
    """Return a generator with this seed, of which this many numbers have been drawn."""
    generator = np.random.default_rng(key)
    generator.uniform(size=drawn)
    return generator


def _times(generator: np.random.Generator, volume: Any, first: float, seconds: float) -> FloatArray:
    """Return when impulses come, as reflections do in a room of this volume: ever more often, up to a limit.

    Every number that is drawn gives the time to the next; the last one comes after the end.
    """
    growth, end = 4 * math.pi * SPEED_OF_SOUND**3 / volume, first + seconds
    times = [first]
    while times[-1] < end and (rate := growth * (first + times[-1]) ** 2) < MOST_IMPULSES:
        times.append(times[-1] + np.log(1 / generator.uniform()) / rate)
    time_M = np.asarray(times)
    while time_M[-1] < end:
        more = np.log(1.0 / generator.uniform(size=int(MOST_IMPULSES * (end - time_M[-1])) + 100)) / MOST_IMPULSES
        time_M = np.concatenate([time_M[:-1], np.cumsum(np.concatenate([time_M[-1:], more]))])
    return time_M[: np.argmax(time_M >= end) + 1]


def _sums(x_T: FloatArray, window: int) -> FloatArray:
    """Return the sum of this many samples around each."""
    before = window - (window - 1) // 2 - 1
    sum_T = np.concatenate([np.zeros(1), np.cumsum(x_T)])
    place_T = np.arange(len(x_T))
    return np.asarray(sum_T[np.minimum(place_T + window - before, len(x_T))] - sum_T[np.maximum(place_T - before, 0)])


def _interpolated(energy_H: FloatArray, bins: int, step: int) -> FloatArray:
    """Return the energy at each sample, interpolated between the middles of bins; nothing after the last middle."""
    samples, half = bins * step, step // 2
    energy_T = np.interp(np.arange(samples), np.linspace(half, samples - 1 - half, bins), energy_H[:bins])
    energy_T[samples - half :] = 0.0
    return energy_T
