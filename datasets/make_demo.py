"""Build the bundled demo audio (``datasets/demo``) from Debian packages.

Debian packages read: alsa-utils, pocketsphinx-testdata, sonic-pi-samples,
minetest-mod-xdecor. Debian packages run: espeak-ng, flite.
Python packages: numpy, soundfile, soxr, pyroomacoustics.

A package can be installed (``apt-get install``) or only unpacked
(``apt-get download NAME`` and ``dpkg -x NAME*.deb FOLDER``, then ``--unpacked FOLDER``).
Every random choice is seeded by the name of the file it is for.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyroomacoustics as pra
import soundfile as sf
import soxr

Audio = npt.NDArray[np.float64]

RATE = 16000
NOISE_SECONDS = 5.0
LABELS = ("front", "rear", "side", "center", "left", "right", "up", "down", "yes", "no", "go", "stop")

ALSA = "usr/share/sounds/alsa"
SPHINX = "usr/share/pocketsphinx/test/data"
SONIC_PI = "usr/share/sonic-pi/samples"
XDECOR = "usr/share/games/minetest/mods/xdecor/sounds"
PACKAGES = {
    ALSA: "alsa-utils",
    SPHINX: "pocketsphinx-testdata",
    SONIC_PI: "sonic-pi-samples",
    XDECOR: "minetest-mod-xdecor",
}

ALSA_PHRASES = (
    "front center",
    "front left",
    "front right",
    "rear center",
    "rear left",
    "rear right",
    "side left",
    "side right",
)

# file name part -> espeak-ng voice and variant
ESPEAK_VOICES = {
    "us-m3": "en-us+m3",
    "us-f2": "en-us+f2",
    "us-f4": "en-us+f4",
    "nyc-m1": "en-us-nyc+m1",
    "gb-m7": "en-gb+m7",
    "gb-f5": "en-gb+f5",
    "lancaster-f1": "en-gb-x-gbclan+f1",
    "caribbean-m4": "en-029+m4",
}
FLITE_VOICES = ("slt", "rms", "awb", "kal16")


class DemoError(Exception):
    """A source is missing or cannot be used; the message says what to do."""


class Sources:
    """Finds the files of the Debian packages, installed or unpacked."""

    def __init__(self, unpacked: list[Path]) -> None:
        """Look in the system's folders first, then in the folders of ``unpacked``."""
        self.roots = [Path("/"), *unpacked]

    def find(self, folder: str, name: str) -> Path:
        """Path of one source file, or an error that names its Debian package."""
        for root in self.roots:
            path = root / folder / name
            if path.is_file():
                return path
        package = PACKAGES[folder]
        raise DemoError(
            f"/{folder}/{name} is missing: install the Debian package '{package}', "
            "or unpack it and name the folder with --unpacked."
        )


def seeded(name: str) -> np.random.Generator:
    """Random generator that depends only on ``name``."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def load(path: Path, rate: int = RATE, mono: bool = True) -> Audio:
    """Read a sound file (``.raw`` is 16 kHz mono 16-bit) at ``rate``; shape (n,) or (n, channels)."""
    if path.suffix == ".raw":
        audio, source_rate = np.fromfile(path, "<i2") / 32768.0, 16000
    else:
        audio, source_rate = sf.read(path, dtype="float64")
    if mono and audio.ndim == 2:
        audio = audio.mean(axis=1)
    resampled: Audio = soxr.resample(audio, source_rate, rate, quality="VHQ")
    return resampled


def save(path: Path, audio: Audio, rate: int = RATE) -> None:
    """Write 16-bit audio (Vorbis for ``.ogg``), scaled down to a peak of 0.98 if it would clip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    peak = float(np.abs(audio).max())
    if peak > 0.98:
        audio = audio * (0.98 / peak)
    sf.write(path, audio, rate, subtype="VORBIS" if path.suffix == ".ogg" else "PCM_16")


def rms(audio: Audio) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(audio**2)))


def at_level(audio: Audio, dbfs: float, peak: float = 0.9) -> Audio:
    """Scale to an RMS of ``dbfs``, or to ``peak`` where that would be louder."""
    gain = min(10 ** (dbfs / 20) / rms(audio), peak / float(np.abs(audio).max()))
    return audio * gain


def fade(audio: Audio, seconds: float) -> Audio:
    """Linear fade in and out."""
    n = int(seconds * RATE)
    ramp = np.ones(len(audio))
    ramp[:n] = np.linspace(0.0, 1.0, n)
    ramp[-n:] = np.linspace(1.0, 0.0, n)
    return audio * ramp


def pad_to(audio: Audio, seconds: float) -> Audio:
    """Add silence after the audio up to at least ``seconds``."""
    return np.pad(audio, (0, max(0, int(seconds * RATE) - len(audio))))


def trim(audio: Audio, below_peak_db: float = 60.0) -> Audio:
    """Cut off what is quieter than the peak by ``below_peak_db`` at both ends."""
    loud = np.flatnonzero(np.abs(audio) > np.abs(audio).max() * 10 ** (-below_peak_db / 20))
    return audio[loud[0] : loud[-1] + 1]


def run_speaker(program: str, arguments: list[str], text: str) -> Audio:
    """Run espeak-ng or flite on ``text`` and return its audio at 16 kHz, trimmed."""
    if shutil.which(program) is None:
        raise DemoError(f"The program {program} is missing: install the Debian package '{program}'.")
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder, "speech.wav")
        output, spoken = (["-w", str(wav)], [text]) if program == "espeak-ng" else (["-o", str(wav)], ["-t", text])
        subprocess.run([program, *arguments, *output, *spoken], check=True, capture_output=True)
        return trim(load(wav))


def espeak(text: str, voice: str, rng: np.random.Generator) -> Audio:
    """Speak with espeak-ng at a random speed and pitch."""
    speed, pitch = int(rng.integers(110, 171)), int(rng.integers(30, 71))
    return run_speaker("espeak-ng", ["-v", voice, "-s", str(speed), "-p", str(pitch)], text)


def flite(text: str, voice: str, rng: np.random.Generator) -> Audio:
    """Speak with flite at a random speed."""
    stretch = float(rng.uniform(0.95, 1.35))
    return run_speaker("flite", ["-voice", voice, "--setf", f"duration_stretch={stretch:.2f}"], text)


def quiet_middle(audio: Audio) -> int:
    """Sample in the middle of the quietest 80 ms between 0.4 s and 1.0 s: the pause of a two-word phrase."""
    width, hop = int(0.08 * RATE), int(0.01 * RATE)
    starts = np.arange(int(0.4 * RATE), int(1.0 * RATE) - width, hop)
    energy = [rms(audio[start : start + width]) for start in starts]
    return int(starts[int(np.argmin(energy))]) + width // 2


def build_alsa_words(out: Path, sources: Sources) -> None:
    """Cut the spoken channel names of alsa-utils into words."""
    seen: dict[str, int] = {}
    for phrase in ALSA_PHRASES:
        audio = load(sources.find(ALSA, phrase.title().replace(" ", "_") + ".wav"))
        cut = quiet_middle(audio)
        for word, part in zip(phrase.split(), (audio[:cut], audio[cut:]), strict=True):
            seen[word] = seen.get(word, 0) + 1
            save(out / "speech" / word / f"alsa_speaker_{seen[word]:02d}.flac", pad_to(fade(part, 0.005), 0.6))


def build_sphinx_words(out: Path, sources: Sources) -> None:
    """Cut the word "go" from two pocketsphinx test recordings (times read off the envelope, in seconds)."""
    for voice, start, end in (("goforward", 0.0, 0.655), ("something", 0.0, 0.66)):
        audio = load(sources.find(SPHINX, f"{voice}.raw"))[int(start * RATE) : int(end * RATE)]
        save(out / "speech" / "go" / f"pocketsphinx_{voice}_01.flac", fade(audio, 0.01))


def build_synthetic_words(out: Path) -> None:
    """Speak every label with every voice, with a varying pause around the word and noise at -80 dBFS."""
    voices = [("espeak", name) for name in ESPEAK_VOICES] + [("flite", name) for name in FLITE_VOICES]
    for label in LABELS:
        for source, voice in voices:
            rng = seeded(f"{label}/{source}_{voice}")
            word = espeak(label, ESPEAK_VOICES[voice], rng) if source == "espeak" else flite(label, voice, rng)
            word = at_level(fade(word, 0.005), float(rng.uniform(-22.0, -15.0)))
            before, after = rng.uniform(0.05, 0.3, size=2)
            clip = pad_to(np.pad(word, (int(before * RATE), int(after * RATE))), 0.6)
            clip += 1e-4 * rng.standard_normal(len(clip))
            save(out / "speech" / label / f"{source}_{voice}_01.flac", clip)


def build_long(out: Path, sources: Sources) -> None:
    """Longer speech: whole pocketsphinx recordings and two synthetic sentences."""
    recordings = {"numbers_01": "numbers.raw", "something_01": "something.raw"}
    for n, part in enumerate(("0870", "0890", "0920", "0930"), start=1):
        recordings[f"reader_{n:02d}"] = f"librivox/sense_and_sensibility_01_austen_64kb-{part}.wav"
    for name, source in recordings.items():
        save(out / "long" / f"pocketsphinx_{name}.flac", pad_to(load(sources.find(SPHINX, source)), 3.0))
    sentences = {
        "flite_slt_01": "The rain had stopped, so we opened the windows and let the noise of the street in.",
        "espeak_gb-f5_01": "Please turn the volume down, go to the left, and stop in front of the second door.",
    }
    for name, text in sentences.items():
        rng = seeded(f"long/{name}")
        audio = flite(text, "slt", rng) if name.startswith("flite") else espeak(text, ESPEAK_VOICES["gb-f5"], rng)
        save(out / "long" / f"{name}.flac", at_level(audio, -20.0))


def looped(audio: Audio, seconds: float, overlap: float = 0.1) -> Audio:
    """Repeat a short recording with equal-power crossfades."""
    n = int(overlap * RATE)
    rise = np.sin(np.linspace(0.0, np.pi / 2, n))
    result = audio
    while len(result) < seconds * RATE:
        joint = result[-n:] * rise[::-1] + audio[:n] * rise
        result = np.concatenate([result[:-n], joint, audio[n:]])
    return result[: int(seconds * RATE)]


def shaped_noise(name: str, knee: float, slope: float) -> Audio:
    """Gaussian noise, flat up to ``knee`` Hz, then falling with frequency to the power ``-slope``."""
    n = int(NOISE_SECONDS * RATE)
    spectrum = np.fft.rfft(seeded(name).standard_normal(n))
    frequency = np.fft.rfftfreq(n, 1 / RATE)
    spectrum *= np.minimum(1.0, knee / np.maximum(frequency, 1.0)) ** slope
    spectrum[frequency < 20.0] = 0.0
    noise: Audio = np.fft.irfft(spectrum, n)
    return noise


def babble(sources: Sources) -> Audio:
    """Sum twelve shifted and slightly resampled copies of all pocketsphinx recordings put end to end."""
    folder = sources.find(SPHINX, "goforward.raw").parent
    paths = sorted(folder.glob("librivox/*.wav")) + sorted(folder.glob("cards/*.wav"))
    paths += [folder / "numbers.raw", folder / "something.raw", folder / "tidigits" / "dhd.2934z.raw"]
    speech = np.concatenate([at_level(load(path), -24.0) for path in paths])
    rng = seeded("noise/babble")
    n = int(NOISE_SECONDS * RATE)
    total = np.zeros(n)
    for start in np.linspace(0, len(speech), 12, endpoint=False).astype(int):
        voice = soxr.resample(np.roll(speech, -start)[: 2 * n], RATE, RATE * rng.uniform(0.88, 1.12), quality="VHQ")
        total += voice[:n] * rng.uniform(0.5, 1.0)
    centred: Audio = total - total.mean()
    return centred


def mains_hum() -> Audio:
    """50 Hz and its harmonics over faint noise."""
    rng = seeded("noise/mains_hum")
    t = np.arange(int(NOISE_SECONDS * RATE)) / RATE
    hum = np.zeros(len(t))
    for k in range(1, 25):
        strength = (1.0 if k % 2 else 0.45) / k**1.1
        hum += strength * np.sin(2 * np.pi * 50.0 * k * t + rng.uniform(0, 2 * np.pi))
    return at_level(hum, -24.0) + at_level(shaped_noise("noise/mains_hum/floor", 300.0, 0.5), -44.0)


def fan() -> Audio:
    """Low noise whose strength and blade tone follow a turning speed."""
    t = np.arange(int(NOISE_SECONDS * RATE)) / RATE
    phase = 2 * np.pi * 21.0 * t + 0.6 * np.sin(2 * np.pi * 0.35 * t)
    air = at_level(shaped_noise("noise/fan", 350.0, 1.1), -24.0)
    blades = np.sin(5 * phase) + 0.5 * np.sin(10 * phase + 0.7)
    return air * (1.0 + 0.15 * np.sin(phase)) + at_level(blades, -34.0)


def build_noise(out: Path, sources: Sources) -> None:
    """Recorded background noises, then made ones, all at about -24 dBFS."""
    recorded = {"sauna": ("ambi_sauna", 1.2), "printer": ("loop_3d_printer", 0.5)}
    recorded |= {"vinyl": ("vinyl_hiss", 1.0), "music": ("loop_garzul", 0.0)}
    noises: dict[str, Audio] = {"babble": babble(sources), "mains_hum": mains_hum(), "fan": fan()}
    for name, (sample, start) in recorded.items():
        audio = load(sources.find(SONIC_PI, f"{sample}.flac"))
        noises[name] = audio[int(start * RATE) : int((start + NOISE_SECONDS) * RATE)]
    noises["boiling_water"] = looped(load(sources.find(XDECOR, "xdecor_boiling_water.ogg")), NOISE_SECONDS)
    for name, audio in noises.items():
        save(out / "noise" / f"{name}.flac", fade(at_level(audio, -24.0), 0.01))


class Room(NamedTuple):
    """A box room: size, source and microphone in metres, energy absorption of the walls."""

    size: tuple[float, float, float]
    source: tuple[float, float, float]
    microphone: tuple[float, float, float]
    absorption: float
    order: int


ROOMS = {
    "car": Room((2.4, 1.5, 1.25), (0.7, 0.4, 0.9), (1.1, 0.75, 1.0), 0.42, 30),
    "bathroom": Room((2.3, 2.0, 2.4), (0.55, 0.7, 1.65), (1.25, 1.12, 1.3), 0.15, 60),
    "bedroom": Room((4.2, 3.6, 2.5), (1.0, 1.3, 1.6), (2.6, 2.1, 0.7), 0.36, 30),
    "office": Room((4.0, 3.0, 2.7), (1.2, 1.0, 1.2), (1.7, 1.4, 0.8), 0.27, 35),
    "living_room": Room((6.0, 4.5, 2.6), (1.4, 1.1, 1.6), (3.6, 2.5, 1.05), 0.27, 40),
    "meeting_room": Room((7.0, 5.0, 3.0), (2.0, 2.6, 1.2), (4.4, 2.1, 0.8), 0.26, 45),
    "hallway": Room((10.0, 1.8, 2.6), (1.0, 0.8, 1.65), (4.2, 1.15, 1.35), 0.3, 50),
    "classroom": Room((9.0, 7.0, 3.2), (1.5, 3.3, 1.7), (4.9, 2.2, 1.1), 0.3, 45),
}


def impulse_response(room: Room) -> Audio:
    """Image-source response, starting 8 samples before the direct sound, cut at -60 dB or 0.7 s."""
    box = pra.ShoeBox(room.size, fs=RATE, materials=pra.Material(room.absorption), max_order=room.order)
    box.add_source(room.source)
    box.add_microphone(room.microphone)
    box.compute_rir()
    response: Audio = np.asarray(box.rir[0][0], dtype=np.float64)
    direct = float(np.linalg.norm(np.subtract(room.source, room.microphone))) / box.c * RATE
    first = int(direct) + pra.constants.get("frac_delay_length") // 2 - 8
    response = response[first:]
    left = np.cumsum(response[::-1] ** 2)[::-1]
    end = int(np.argmax(left < left[0] * 1e-6)) or len(response)
    end = min(max(end, int(0.15 * RATE)), int(0.7 * RATE), len(response))
    response = response[:end]
    response[-160:] *= np.linspace(1.0, 0.0, 160)
    normalised: Audio = response * (0.9 / np.abs(response).max())
    return normalised


def build_rooms(out: Path) -> None:
    """Room impulse responses."""
    for name, room in ROOMS.items():
        save(out / "rooms" / f"{name}.flac", impulse_response(room))


def build_odd(out: Path, sources: Sources) -> None:
    """Short real audio in other formats, rates and channel counts."""
    sauna = load(sources.find(SONIC_PI, "ambi_sauna.flac"), 44100, mono=False)
    save(out / "odd" / "stereo_44100.ogg", sauna[2 * 44100 : int(2.8 * 44100)], 44100)
    speech = load(sources.find(SPHINX, "goforward.raw"), 8000)
    save(out / "odd" / "mono_8000.wav", speech[int(0.4 * 8000) : int(1.25 * 8000)], 8000)
    printer = load(sources.find(SONIC_PI, "loop_3d_printer.flac"), 48000, mono=False)
    save(out / "odd" / "stereo_48000.flac", printer[48000 : int(1.7 * 48000)], 48000)


def summary(out: Path) -> str:
    """One line per folder: files, seconds, kilobytes."""
    lines = []
    for folder in sorted(path for path in out.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        seconds = sum(sf.info(path).duration for path in files)
        size = sum(path.stat().st_size for path in files)
        lines.append(f"{folder.name:8} {len(files):4d} files {seconds:7.1f} s {size / 1000:8.0f} kB")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(description="Build the bundled demo audio from Debian packages.")
    default_out = Path(__file__).resolve().parent / "demo"
    parser.add_argument("--out", type=Path, default=default_out, metavar="FOLDER", help="where to write")
    parser.add_argument(
        "--unpacked",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="folder with packages unpacked by dpkg -x (may be given more than once)",
    )
    parser.add_argument("--without-gpl", action="store_true", help="leave out the GPL-2 clips of alsa-utils")
    options = parser.parse_args(argv)
    sources = Sources(options.unpacked)
    try:
        if not options.without_gpl:
            build_alsa_words(options.out, sources)
        build_sphinx_words(options.out, sources)
        build_long(options.out, sources)
        build_noise(options.out, sources)
        build_odd(options.out, sources)
        build_rooms(options.out)
        build_synthetic_words(options.out)
    except DemoError as error:
        print(f"make_demo: {error}", file=sys.stderr)
        return 1
    print(summary(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
