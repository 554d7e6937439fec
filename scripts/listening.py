"""One clip through both builds of an op: what came out, whether the contract holds, and how to see and hear it.

Shapes: T samples; F frequencies, W windows.
"""

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from audioaug.core import Op
from audioaug.records import DeviceEngine
from audioaug.verify.contracts import Verdict, check
from audioaug.verify.replay import intended_levels, replay

SAMPLE_RATE = 16000
LOUDEST_DB, RANGE_DB = 0.0, 80.0
HEIGHT = 80
"""Pixels of a spectrogram."""


@dataclass(frozen=True)
class Heard:
    """A clip (T,) before, after the reference, and after the build, with the contract's verdict on it."""

    op: Op
    dry: NDArray[np.float32]
    reference: NDArray[np.float32]
    built: NDArray[np.float32]
    verdict: Verdict

    @property
    def kept(self) -> bool:
        """Whether the contract is kept."""
        return self.verdict.status == "passed"


def hear(op: Op, dry_T: NDArray[np.float32], engine: DeviceEngine = "batched", seed: int = 0) -> Heard:
    """Run a clip at 16 kHz through both builds of an op, with the same draws, and judge the result."""
    clips = [dry_T[None]]
    _, reference, built = replay(op, clips, SAMPLE_RATE, engine=engine, seed=seed)
    intended = intended_levels(op, clips, SAMPLE_RATE, seed) if op.contract.kind == "statistical" else None
    verdict = check(
        op.contract, clips, reference, built, op=op.name, engine=engine, intended=intended, sample_rate=SAMPLE_RATE
    )
    return Heard(op, dry_T, reference[0][0], built[0][0], verdict)


def verdict_words(verdict: Verdict) -> str:
    """Return in words what the contract promises, and what was found."""
    if verdict.error is None or verdict.limit is None:
        return f"{verdict.contract}: {verdict.reason}"
    return f"{verdict.contract}: {verdict.error:.2g} {verdict.unit}, at most {verdict.limit:.2g} allowed"


def gallery(heard: Iterable[Heard]) -> str:
    """Return HTML with a row for each op: dry, reference and device build side by side, to see and to hear."""
    return f"<table>{''.join(map(_row, heard))}</table>"


def _row(heard: Heard) -> str:
    name, verdict = heard.op.name, heard.verdict
    title = f"<b>{escape(name)}</b> ({escape(verdict.engine)})<br>{escape(verdict_words(verdict))}: {verdict.status}"
    library = heard.op.capabilities.library
    sides = {"dry": heard.dry, library: heard.reference, "device build": heard.built}
    cells = "".join(f"<td>{side}<br>{shown(samples_T, f'{name}, {side}')}</td>" for side, samples_T in sides.items())
    return f"<tr><td style='text-align:left;max-width:18em'>{title}</td>{cells}</tr>"


def shown(samples_T: NDArray[np.float32], label: str) -> str:
    """Return HTML with a clip's spectrogram and player."""
    picture = base64.b64encode(spectrogram_png(samples_T)).decode()
    sound = base64.b64encode(flac(samples_T)).decode()
    return (
        f"<img alt='spectrogram: {escape(label)}' src='data:image/png;base64,{picture}' width='200' height='{HEIGHT}'>"
        f"<br><audio controls preload='metadata' aria-label='{escape(label)}' style='width:200px' "
        f"src='data:audio/flac;base64,{sound}'></audio>"
    )


def flac(samples_T: NDArray[np.float32]) -> bytes:
    """Return a clip as a FLAC file of 16 bits; what is beyond full scale is clipped."""
    file = io.BytesIO()
    soundfile.write(file, samples_T.clip(-1, 1), SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def spectrogram_png(samples_T: NDArray[np.float32]) -> bytes:
    """Return a picture of 0 to 8 kHz over time, 80 dB from dark to bright, in 32 colours."""
    from matplotlib import colormaps
    from PIL import Image

    levels_FW = spectrogram_db(samples_T)
    shade_FW = np.clip((levels_FW - LOUDEST_DB + RANGE_DB) / RANGE_DB, 0, 1)[::-1]
    palette = (colormaps["magma"](np.linspace(0, 1, 32))[:, :3] * 255).round().astype(np.uint8)
    picture: Any = Image.fromarray((shade_FW * 31).round().astype(np.uint8), mode="P")
    picture.putpalette(palette.tobytes())
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def spectrogram_db(samples_T: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return levels (F, W) in decibels, 0 for a sine at full scale."""
    size = 2 * HEIGHT
    window = torch.hann_window(size)
    spectrum_FW = torch.stft(
        torch.from_numpy(samples_T.copy()), size, max(1, len(samples_T) // 200), window=window, return_complex=True
    )
    level_FW = spectrum_FW.abs().numpy()[1:] * 2 / float(window.sum())
    return 20 * np.log10(level_FW + 1e-6)
