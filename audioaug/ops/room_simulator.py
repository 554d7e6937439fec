"""RoomSimulator: a simulated box-shaped room around the sound.

``audioaug.dsp.rooms`` simulates the responses; where rounding decides what the reference does, the reference does it.

Shapes: B examples, C channels, T samples, L samples of the responses.
"""

import functools
import importlib.metadata
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from audioaug.core import (
    FLOATS,
    FRACTION,
    HOST_ONLY,
    INTS,
    LENGTHS,
    NOISE_KEY,
    STATIC,
    BatchInfo,
    Capabilities,
    Contract,
    DeviceBatchInfo,
    Distribution,
    ListType,
    Op,
    Params,
    ParamType,
    Timeline,
    arguments,
)
from audioaug.core.distributions import FloatArray
from audioaug.core.fields import plain_scalar
from audioaug.dsp.convolution import convolve
from audioaug.dsp.rooms import SPEED_OF_SOUND, Late, Rooms, responses
from audioaug.dsp.rooms.plan import WIDTH_STEP, plan, plan_late
from audioaug.dsp.rooms.rays import Rays, tails
from audioaug.errors import ChainError, did_you_mean
from audioaug.internals import keep_room_generator

SHARES = ("size_x", "size_y", "size_z", "walls", "source_x", "source_y", "source_z", "distance", "azimuth", "elevation")
"""Where each number lies in its range: in the order in which the reference asks for them."""

UNSET_RAYS: dict[str, Any] = {
    "n_rays": None,
    "receiver_radius": 0.5,
    "energy_thres": 1e-7,
    "time_thres": 10.0,
    "hist_bin_size": 0.004,
}
"""Options for ray tracing of pyroomacoustics, with its defaults for those that are not given."""
DEFAULT_RAYS: dict[str, Any] = {**UNSET_RAYS, "n_rays": 10_000, "energy_thres": 1e-5}
"""What the reference has if no options are given."""
REMEMBERED = 256

ROOMS = ListType(
    Rooms,
    (
        *((name, FLOATS) for name in ("offset", "reflected", "decay", "bands", "highpass", "taps")),
        *((name, INTS) for name in ("length", "bank", "images")),
        ("sizes", STATIC),
    ),
)
"""What ``dsp.rooms.plan`` returns, and ``dsp.rooms.responses`` takes on the device."""

LATE = ListType(
    Late,
    (
        *((name, FLOATS) for name in ("impulses", "bands", "highpass")),
        *((name, INTS) for name in ("ends", "bank", "length")),
        ("width", STATIC),
    ),
)
"""What rays add to it."""

LEAST_METRES, LEAST_RADIANS = 1e-3, 1e-3
"""Closer to a degenerate place, the reference's rounding decides whether it counts some images once or twice."""


class Room(NamedTuple):
    """A room as the reference has it: its ``parameters``, and the response from the source to the microphone."""

    parameters: dict[str, Any]
    response: FloatArray


@dataclass(frozen=True, kw_only=True)
class RoomSimulator(Op):
    """Convolve an example with the response of a random room between a random source and a microphone close to it.

    The responses of a batch are simulated together. By image sources, on the device: on a CPU in 0.3 ms for each
    example, 2 ms for 12 orders of reflections, at 16 kHz. The reference places images in float32, which the tolerance
    allows for. At 16 kHz and the default distances, differences are below 1e-4 of the peak for up to 3 orders; they
    grow with the order, the sample rate and the distance, to 1.6e-3 (8 orders, 44.1 kHz, up to 9 m). Memory: 2048
    samples or more for each of 5 to 9 octaves of each example, twice.

    With ray tracing, the default, rays are traced on the host, where a batch is prepared: 3 ms for each example. What
    comes of them is filtered on the device: on a CPU in 2 ms, elsewhere in memory for each octave of the longest
    response, twice. Rays are rounded as the reference rounds them, and meet the same walls: differences are
    5e-6 of the peak in the middle, 6e-5 at most (60 responses by default). On ARM, whose compilers round otherwise, one
    ray in a thousand differs, and the response by up to 2e-4; of few rays each counts for more.

    Where the microphone may be less than 1 mm from two walls or from the source (``padding``, ``min_mic_distance``), or
    always is in line with the source along an axis, the reference counts some images twice. It simulates the responses
    then, on the host: in 15 ms each, 0.2 s with rays, 2 s for 12 orders.

    Args:
        min_size_x: least width of the room, in metres; so for y and z.
        max_size_x: greatest width.
        min_absorption_value: least absorption coefficient of the walls, 0 to 1; for ``"absorption"``.
        max_absorption_value: greatest absorption coefficient.
        min_target_rt60: shortest reverberation time, in seconds; for ``"rt60"``.
        max_target_rt60: longest reverberation time.
        min_source_x: least x of the source, in metres; so for y and z. The source stays ``padding`` off the walls.
        max_source_x: greatest x of the source.
        min_mic_distance: least distance of the microphone from the source, in metres, before it is moved into the
            room, ``padding`` off the walls.
        max_mic_distance: greatest distance.
        min_mic_azimuth: least azimuth of the microphone, seen from the source, in radians; so for the elevation.
        max_mic_azimuth: greatest azimuth.
        calculation_mode: whether the walls have a random absorption or one that gives a random reverberation time.
        use_ray_tracing: trace rays for the late part: slower, and much more accurate.
        max_order: how many reflections the image sources go back to.
        leave_length_unchanged: cut the tail off. With ``False`` the clips get longer.
        padding: least distance from the walls, in metres.
        p: probability of applying it, 0 to 1.
        ray_tracing_options: of ``pyroomacoustics.Room.set_ray_tracing``.

    Raises:
        ChainError: no source fits into the smallest room, or no reverberation time into the largest; or, when a chain
            is made of it, pyroomacoustics is not installed.

    Reference: ``audiomentations.RoomSimulator`` with pyroomacoustics, whose random numbers are seeded with the draw.
    (The state of its C++ generator cannot be read, hence it is not put back afterwards; its numpy generator is.)
    """

    min_size_x: float = 3.6
    max_size_x: float = 5.6
    min_size_y: float = 3.6
    max_size_y: float = 3.9
    min_size_z: float = 2.4
    max_size_z: float = 3.0
    min_absorption_value: float = 0.075
    max_absorption_value: float = 0.4
    min_target_rt60: float = 0.15
    max_target_rt60: float = 0.8
    min_source_x: float = 0.1
    max_source_x: float = 3.5
    min_source_y: float = 0.1
    max_source_y: float = 2.7
    min_source_z: float = 1.0
    max_source_z: float = 2.1
    min_mic_distance: float = 0.15
    max_mic_distance: float = 0.35
    min_mic_azimuth: float = -math.pi
    max_mic_azimuth: float = math.pi
    min_mic_elevation: float = -math.pi
    max_mic_elevation: float = math.pi
    calculation_mode: Literal["rt60", "absorption"] = "absorption"
    use_ray_tracing: bool = True
    max_order: int = 1
    leave_length_unchanged: bool = False
    padding: float = 0.1
    ray_tracing_options: dict[str, float] | None = None

    contract = Contract.exact(rtol=2e-3)
    limits = {
        "min_absorption_value": (0.0, 1.0),
        "max_absorption_value": (0.0, 1.0),
        "max_order": (0, float("inf")),
        "padding": (0.0, float("inf")),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_places(self)
        _check_reverberation(self)
        object.__setattr__(self, "ray_tracing_options", _checked_ray_tracing(self.ray_tracing_options))

    def distributions(self) -> dict[str, Distribution]:
        check_installed()
        return {**{f"{name}_share": FRACTION for name in SHARES}, "rays_key": NOISE_KEY}

    @property
    def capabilities(self) -> Capabilities:
        longer = not self.leave_length_unchanged
        return Capabilities(needs_length=longer, changes_length=longer, changes_timing=longer)

    @property
    def param_types(self) -> dict[str, ParamType]:
        return {
            **{f"{name}_share": HOST_ONLY for name in SHARES},
            "rays_key": HOST_ONLY,
            **self._response_types,
            **({} if self.leave_length_unchanged else {"length_out": LENGTHS}),
        }

    @property
    def _response_types(self) -> dict[str, ParamType]:
        if self.is_simulated_on_host:
            return {"taps": FLOATS, "longest": STATIC}
        return {"rooms": ROOMS, "late": LATE} if self.use_ray_tracing else {"rooms": ROOMS}

    @property
    def is_simulated_on_host(self) -> bool:
        """Whether the reference simulates the responses, since its rounding decides what it does."""
        return min(self.padding, abs(self.min_mic_distance)) < LEAST_METRES or _is_in_line(self)

    def resolve(self, draw: Params, batch: BatchInfo) -> Params:
        found, length_B = (self._simulated if self.is_simulated_on_host else self._planned)(draw, batch.sample_rate)
        if not self.leave_length_unchanged:
            found["length_out"] = np.where(batch.lengths > 0, batch.lengths + length_B - 1, 0)
        return {**draw, **found}

    def _simulated(self, draw: Params, sample_rate: int) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """Return the responses of the reference's rooms, one after the other, and their lengths."""
        rows = range(len(draw["rays_key"]))
        responses = [self._room({name: draw[name][row] for name in draw}, sample_rate).response for row in rows]
        length_B = np.asarray([len(response) for response in responses])
        longest = -(-int(length_B.max()) // WIDTH_STEP) * WIDTH_STEP
        taps_BL = np.stack([np.pad(response, (0, longest - len(response))) for response in responses])
        return {"taps": taps_BL.ravel(), "longest": longest}, length_B

    def _planned(self, draw: Params, sample_rate: int) -> tuple[dict[str, Any], NDArray[np.int64]]:
        """Return what the device needs to simulate the responses, and their lengths."""
        found = self.parameters(draw)
        size_B3, source_B3, microphone_B3 = (
            np.stack([found[f"{what}_{axis}"] for axis in "xyz"], axis=1) for what in ("size", "source", "mic")
        )
        numbers = size_B3, source_B3, microphone_B3, found["absorption_coefficient"], found["max_order"]
        rooms = plan(*numbers, sample_rate)
        if not self.use_ray_tracing:
            return {"rooms": [rooms]}, rooms.length
        impulses = tails(*numbers, draw["rays_key"].astype(np.int64), sample_rate, self._rays(sample_rate))
        late = plan_late(impulses, rooms.length, sample_rate)
        return {"rooms": [rooms], "late": [late]}, late.length

    def _rays(self, sample_rate: int) -> Rays:
        """Return how the reference traces rays with these options."""
        options = DEFAULT_RAYS if self.ray_tracing_options is None else {**UNSET_RAYS, **self.ray_tracing_options}
        step = math.floor(sample_rate * options["hist_bin_size"])
        if step < 2:
            raise ChainError(
                f"{self.name}: hist_bin_size is {options['hist_bin_size']:g} s, but it must be 2 samples or more: "
                f"{2 / sample_rate:.2g} s at {sample_rate} Hz."
            )
        return Rays(options["n_rays"], options["receiver_radius"], options["energy_thres"], options["time_thres"], step)

    def parameters(self, draw: Params) -> dict[str, NDArray[Any]]:
        """Return the reference's own ``parameters`` for B examples, without building their rooms."""
        found = {f"size_{axis}": self._between(draw, f"size_{axis}") for axis in "xyz"}
        for axis in "xyz":
            low = max(getattr(self, f"min_source_{axis}"), self.padding)
            high = np.minimum(getattr(self, f"max_source_{axis}"), found[f"size_{axis}"] - self.padding)
            found[f"source_{axis}"] = low + draw[f"source_{axis}_share"] * (high - low)
        radius, azimuth, elevation = (self._between(draw, f"mic_{n}", n) for n in ("distance", "azimuth", "elevation"))
        level = radius * np.cos(elevation)
        away = -level * np.sin(azimuth), level * np.cos(azimuth), radius * np.sin(elevation)
        for axis, off in zip("xyz", away):
            high = found[f"size_{axis}"] - self.padding
            found[f"mic_{axis}"] = np.maximum(self.padding, np.minimum(high, found[f"source_{axis}"] + off))
        return {
            **found,
            "mic_radius": radius,
            "mic_azimuth": azimuth,
            "mic_elevation": elevation,
            **self._walls(draw, found),
        }

    def _walls(self, draw: Params, found: dict[str, FloatArray]) -> dict[str, NDArray[Any]]:
        """Return the parameters of walls of rooms of these sizes."""
        if self.calculation_mode == "absorption":
            absorption = self._between(draw, "absorption_value", "walls")
            return {"absorption_coefficient": absorption, "max_order": np.full(len(absorption), self.max_order)}
        seconds = self._between(draw, "target_rt60", "walls")
        absorption, order = _by_sabine(seconds, *(found[f"size_{axis}"] for axis in "xyz"))
        order = np.minimum(order, self.max_order)
        return {"target_rt60": seconds, "absorption_coefficient": absorption, "max_order": order}

    def _between(self, draw: Params, field: str, share: str | None = None) -> FloatArray:
        """Return numbers in the range that ``min_`` and ``max_`` this field are the ends of."""
        low, high = getattr(self, f"min_{field}"), getattr(self, f"max_{field}")
        return np.asarray(low + draw[f"{share or field}_share"] * (high - low))

    def replay(self, params: Params, samples: NDArray[np.float32], sample_rate: int) -> dict[str, Any]:
        return self._room(params, sample_rate).parameters

    def apply_reference(
        self,
        reference: Any,
        params: Params,
        samples: NDArray[np.float32],
        sample_rate: int,
        others: Sequence[NDArray[np.float32]] = (),
    ) -> Any:
        reference.room = SimpleNamespace(rir=[[self._room(params, sample_rate).response]])
        return super().apply_reference(reference, params, samples, sample_rate)

    def batched(self, x_BCT: torch.Tensor, params: Params, batch: DeviceBatchInfo) -> torch.Tensor:
        samples_out = x_BCT.shape[-1] if self.leave_length_unchanged else None
        if self.is_simulated_on_host:
            taps_BL = params["taps"].view(len(x_BCT), params["longest"])
        else:
            late = params["late"][0] if self.use_ray_tracing else None
            taps_BL = responses(params["rooms"][0], batch.sample_rate, late)
        return convolve(x_BCT, taps_BL[:, None], samples_out=samples_out)

    def timeline(self, params: Params, length: int, sample_rate: int) -> Timeline:
        return Timeline.identity(length, params["length_out"])

    def _room(self, params: Params, sample_rate: int) -> Room:
        room_arguments = {name: value for name, value in arguments(self).items() if name not in ("p", UNUSED)}
        shares = tuple(float(params[f"{name}_share"]) for name in SHARES)
        return simulated(json.dumps(room_arguments), sample_rate, shares, int(params["rays_key"]))

    @classmethod
    def from_reference(cls, reference: Any) -> dict[str, Any]:
        found = super().from_reference(reference)
        default = cls().reference().ray_tracing_options
        return found if found["ray_tracing_options"] != default else {**found, "ray_tracing_options": None}


UNUSED = "leave_length_unchanged"
"""What does not change the room, so that it is simulated once for both."""


def check_installed() -> None:
    """Raise ``ChainError`` if pyroomacoustics is missing, or too old to be seeded."""
    try:
        version = importlib.metadata.version("pyroomacoustics")
    except importlib.metadata.PackageNotFoundError:
        raise ChainError(
            "RoomSimulator needs pyroomacoustics, which is not installed.", "Run: pip install pyroomacoustics"
        ) from None
    if tuple(int(part) for part in version.split(".")[:2]) < (0, 10):
        raise ChainError(
            f"RoomSimulator needs pyroomacoustics 0.10 or later, whose random numbers can be seeded, not {version}.",
            "Run: pip install --upgrade pyroomacoustics",
        )


def _by_sabine(
    seconds_B: FloatArray, x_B: FloatArray, y_B: FloatArray, z_B: FloatArray
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the absorption of walls that gives a reverberation time, and the orders of reflections that it lasts.

    Reference: ``pyroomacoustics.inverse_sabine``.
    """
    pairs = (x_B, y_B), (x_B, z_B), (y_B, z_B)
    surface_B = 2 * np.sum([one * other for one, other in pairs], axis=0)
    absorption_B = 24 * np.log(10) * (x_B * y_B * z_B) / (SPEED_OF_SOUND * surface_B * seconds_B)
    nearest_B = np.min([one * other / np.sqrt(one**2 + other**2) for one, other in pairs], axis=0)
    return absorption_B, np.ceil(SPEED_OF_SOUND * seconds_B / nearest_B - 1).astype(np.int64)


def _is_in_line(op: RoomSimulator) -> bool:
    """Return whether the microphone and the source differ along one axis only, in every room."""
    elevation, azimuth = (
        (getattr(op, f"min_mic_{angle}"), getattr(op, f"max_mic_{angle}")) for angle in ("elevation", "azimuth")
    )
    vertical = _is_fixed(math.pi / 2, math.pi, *elevation)
    return vertical or (_is_fixed(0.0, math.pi, *elevation) and _is_fixed(0.0, math.pi / 2, *azimuth))


def _is_fixed(angle: float, period: float, low: float, high: float) -> bool:
    """Return whether a range of angles is next to no others than this one and multiples of a period away from it."""
    nearest = angle + round((low - angle) / period) * period
    return max(abs(low - nearest), abs(high - nearest)) < LEAST_RADIANS


@functools.lru_cache(maxsize=REMEMBERED)
def simulated(arguments: str, sample_rate: int, shares: tuple[float, ...], key: int) -> Room:
    """Return the room that the reference builds when its random numbers are these; ``arguments`` are its own, as JSON.

    Its own ``randomize_parameters`` runs here, with another ``random`` among its globals: nothing outside changes.
    """
    simulator = _simulator()(**json.loads(arguments))
    place = iter(shares)
    numbers = SimpleNamespace(uniform=lambda low, high: low + next(place) * (high - low))
    theirs = simulator.randomize_parameters.__func__
    build = FunctionType(theirs.__code__, {**theirs.__globals__, "random": numbers}, closure=theirs.__closure__)
    with _seeded(key):
        build(simulator, np.zeros(1, np.float32), sample_rate)
    del simulator.parameters["should_apply"]
    return Room(simulator.parameters, simulator.room.rir[0][0])


@functools.cache
def _simulator() -> Any:
    """Return the reference's class without its coin toss, which would use Python's global generator."""
    from audiomentations import RoomSimulator as Reference
    from audiomentations.core.transforms_interface import BaseWaveformTransform

    class Always(BaseWaveformTransform):  # type: ignore[misc]
        def randomize_parameters(self, samples: NDArray[np.float32], sample_rate: int) -> None:
            self.parameters = {"should_apply": True}

    class Simulator(Reference, Always):  # type: ignore[misc]
        """Its base asks ``Always``, next in line, whether to apply."""

    return Simulator


@contextmanager
def _seeded(key: int) -> Iterator[None]:
    """Seed pyroomacoustics' generators; afterwards put the one of numpy's kind back as it was."""
    import pyroomacoustics

    generator = pyroomacoustics.random.generator
    with keep_room_generator(generator):
        generator.seed(numpy=key, libroom=key)
        yield


def _check_places(op: RoomSimulator) -> None:
    """Raise ``ChainError`` if the source always lies outside of the smallest room, or the padding fills it."""
    for axis in "xyz":
        size, low, high = (getattr(op, f"{name}_{axis}") for name in ("min_size", "min_source", "max_source"))
        if size <= op.padding:
            raise ChainError(f"{op.name}: min_size_{axis} is {size:g}, but it must be greater than padding.")
        if high <= 0:
            raise ChainError(f"{op.name}: max_source_{axis} is {high:g}, but it must be greater than 0.")
        if low >= size:
            raise ChainError(f"{op.name}: min_source_{axis} is {low:g}, but it must be less than min_size_{axis}.")


def _check_reverberation(op: RoomSimulator) -> None:
    """Raise ``ChainError`` if even walls that absorb everything leave more reverberation in the largest room."""
    # Sabine: rt60 = 24 ln(10) V / (c S a), for a box V / S = 1 / (2 (1/x + 1/y + 1/z)); the absorption a is at most 1.
    inverse = sum(1.0 / getattr(op, f"max_size_{axis}") for axis in "xyz")
    shortest = 12.0 * math.log(10.0) / (SPEED_OF_SOUND * inverse)
    if op.calculation_mode == "rt60" and op.min_target_rt60 < shortest:
        raise ChainError(
            f"{op.name}: min_target_rt60 is {op.min_target_rt60:g}, but the largest room has {shortest:.3g} s or more.",
            "Make max_size_x, max_size_y or max_size_z smaller, or the time longer.",
        )


def _checked_ray_tracing(options: Any) -> dict[str, Any] | None:
    """Return options for ray tracing with plain numbers; raise ``ChainError`` for those that it has not."""
    if not isinstance(options, dict | None):
        raise ChainError(f"RoomSimulator: ray_tracing_options is {options!r}, but it must be a mapping.")
    if options is None:
        return None
    options = {name: plain_scalar(value) for name, value in options.items()}
    for name, value in options.items():
        if name not in UNSET_RAYS:
            raise ChainError(
                f"RoomSimulator: there is no ray_tracing_options {name!r}.",
                did_you_mean(str(name), UNSET_RAYS),
            )
        if not isinstance(value, int | float) or not value > 0:
            raise ChainError(f"RoomSimulator: {name} is {value!r}, but it must be a number greater than 0.")
        if name == "n_rays" and not isinstance(value, int):
            raise ChainError(f"RoomSimulator: {name} is {value!r}, but it must be a whole number.")
    return options
