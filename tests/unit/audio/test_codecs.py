"""Codecs keep the length, the place and the level of a clip: in whatever libsndfile adds before and after it.

What was measured, at rates from 8 to 48 kHz and qualities from 0 to 1, is in ``LIMITS``. MP3 is decoded 1105 samples
late where its frames are too short for the header that declares the delay: below 24 to 80 kbit/s.
"""

import gc
import io
import random

import numpy as np
import psutil
import pytest
import soundfile

from audioaug.audio import codecs, demo
from audioaug.audio.codecs import CODECS, MP3_DELAY, allowed_rate, through_codec, why_missing
from audioaug.audio.files import read_audio
from audioaug.errors import DataError, LibraryMissing

RATES = (8000, 11025, 16000, 22050, 44100, 48000)
QUALITIES = (0.0, 0.1, 0.3, 1.0)
LIMITS = {
    "mulaw": (-0.05, 0.05),
    "alaw": (-0.05, 0.05),
    "gsm": (-0.2, 0.1),
    "adpcm": (-0.1, 0.1),
    "mp3": (-0.8, 0.1),
    "vorbis": (-0.2, 0.2),
    "opus": (-1.3, 0.1),
}
"""By how many dB speech may be softer and louder. Measured: mulaw, alaw 0.02; gsm -0.10, 0.01; adpcm -0.05;
mp3 -0.71, 0.00; vorbis -0.05, 0.08; opus -1.12, 0.03."""

CASES = [
    (codec, rate, quality)
    for codec, encoding in CODECS.items()
    for rate in RATES
    for quality in (QUALITIES if encoding.has_quality else (1.0,))
]


def burst(rate: int) -> np.ndarray:
    """Return a click of 4 ms that survives the band limits of a telephone: one peak, most of it around 700 Hz."""
    half = int(0.002 * rate)
    phase_T = (np.pi * 700 * np.arange(-half, half) / rate) ** 2
    return (0.5 * (1 - 2 * phase_T) * np.exp(-phase_T)).astype(np.float32)


def clicks_at(places: list[int], length: int, rate: int) -> np.ndarray:
    """Return silence with a click around each place."""
    x_T, click_T = np.zeros(length, np.float32), burst(rate)
    for place in places:
        x_T[place - len(click_T) // 2 : place + len(click_T) // 2] += click_T
    return x_T


def lag_near(place: int, y_T: np.ndarray, x_T: np.ndarray, rate: int) -> int:
    """Return by how many samples what is around a place comes late, in samples; within 8 ms."""
    reach = int(0.008 * rate)
    part = slice(max(0, place - reach), place + reach)
    return int(np.argmax(np.correlate(y_T[part].astype(float), x_T[part].astype(float), "full"))) - len(x_T[part]) + 1


def most_samples(codec: str, rate: int) -> int:
    """Return how early or late a click may come. Measured: 5 samples at 48 kHz for Opus at its lowest bit rate."""
    return int(np.ceil(1.5e-4 * rate)) if codec == "opus" else 1


def speech(rate: int) -> np.ndarray:
    return read_audio(demo.demo_folder("speech/go/flite_slt_01.flac"), rate)[0]


@pytest.mark.parametrize(("codec", "rate", "quality"), CASES)
def test_clicks_stay_in_place(codec, rate, quality):
    places = [rate * tenth // 10 + tenth for tenth in range(1, 8)]
    x_T = clicks_at(places, rate * 3 // 4, rate)
    y_T = through_codec(x_T, rate, codec, quality)
    assert y_T.shape == x_T.shape and y_T.dtype == np.float32
    assert max(abs(lag_near(place, y_T, x_T, rate)) for place in places) <= most_samples(codec, rate)


@pytest.mark.parametrize(("codec", "rate", "quality"), CASES)
def test_speech_keeps_its_level(codec, rate, quality):
    x_T = speech(rate)
    change_db = 20 * np.log10(np.std(through_codec(x_T, rate, codec, quality)) / np.std(x_T))
    low, high = LIMITS[codec]
    assert low <= change_db <= high


@pytest.mark.parametrize("length", [250, 320, 505, 641, 1017, 1104, 1105, 1152, 1153, 1728, 3001])
@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("codec", CODECS)
def test_the_last_click_of_a_clip_of_any_length_is_in_place(codec, rate, length):
    place = length - int(0.003 * rate)
    x_T = clicks_at([place], length, rate)
    for quality in (0.1, 1.0):
        y_T = through_codec(x_T, rate, codec, quality)
        assert len(y_T) == length and abs(lag_near(place, y_T, x_T, rate)) <= most_samples(codec, rate)


@pytest.mark.parametrize("codec", CODECS)
def test_clips_of_few_samples_and_none_keep_their_shape(codec):
    for rate in (8000, 11025, 44100):
        for shape in [(0,), (2, 0), (1,), (2,), (7,), (1, 1), (2, 3), (3, 5)]:
            x = np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32)
            for quality in (0.0, 1.0):
                y = through_codec(x, rate, codec, quality)
                assert y.shape == shape and y.dtype == np.float32 and np.isfinite(y).all()


@pytest.mark.parametrize("codec", CODECS)
def test_channels_stay_apart_and_in_order(codec):
    x_T = speech(16000)
    for levels in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.25, 1.0]):
        y_CT = through_codec(np.stack([level * x_T for level in levels]), 16000, codec, 0.3)
        rms_C = np.sqrt(np.square(y_CT).mean(axis=1)) / np.sqrt(np.square(x_T).mean())
        assert rms_C == pytest.approx(levels, abs=0.06)


def test_gsm_and_more_than_two_channels_are_encoded_one_by_one():
    x_CT = np.stack([speech(8000), speech(8000)[::-1], 0.3 * speech(8000)])
    for codec, channels in (("gsm", 2), ("adpcm", 3), ("opus", 3)):
        alone = [through_codec(x_T, 8000, codec, 0.2) for x_T in x_CT[:channels]]
        assert np.array_equal(through_codec(x_CT[:channels], 8000, codec, 0.2), np.stack(alone))


@pytest.mark.parametrize("codec", CODECS)
def test_a_clip_beyond_full_scale_keeps_its_level_and_is_not_clipped(codec):
    x_T = speech(16000)
    x_T = x_T * np.float32(0.6 / np.abs(x_T).max())
    assert np.array_equal(through_codec(16 * x_T, 16000, codec, 0.2), 16 * through_codec(x_T, 16000, codec, 0.2))


@pytest.mark.parametrize("codec", CODECS)
def test_a_full_scale_square_wave_does_not_wrap_around(codec):
    """Resampled, it overshoots, and libsndfile would turn what is above full scale into its opposite."""
    x_T = np.where(np.arange(4410) % 200 < 100, 1.0, -1.0).astype(np.float32)
    y_T = through_codec(x_T, 44100, codec, 1.0)
    assert np.corrcoef(x_T, y_T)[0, 1] > 0.75  # ADPCM takes 15 samples from one side to the other: 0.82


@pytest.mark.parametrize("codec", [codec for codec, encoding in CODECS.items() if encoding.has_quality])
def test_a_higher_quality_leaves_more(codec):
    x_T = speech(16000)
    level = 0.95 if codec == "mp3" else 1.0  # LAME's own
    error = [float(np.std(through_codec(x_T, 16000, codec, quality) / level - x_T)) for quality in (0.0, 0.3, 1.0)]
    assert error[0] > 1.5 * error[1] and error[1] > 1.1 * error[2]


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_gives_the_same_again_and_draws_nothing(codec):
    x_T, before = speech(8000), (random.getstate(), np.random.get_state()[1].tolist())
    first = through_codec(x_T, 8000, codec, 0.2)
    assert np.array_equal(first, through_codec(x_T, 8000, codec, 0.2)) and not np.array_equal(first, x_T)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize(
    ("codec", "rate", "allowed"),
    [
        *(("gsm", 1000, 8000), ("gsm", 44100, 8000), ("opus", 8001, 12000), ("opus", 16000, 16000)),
        *(("opus", 44100, 48000), ("opus", 96000, 48000), ("mp3", 7000, 8000), ("mp3", 96000, 48000)),
        *(("mp3", 23000, 24000), ("vorbis", 500, 1000), ("vorbis", 12345, 12345), ("vorbis", 384000, 192000)),
        *(("mulaw", 384000, 384000), ("adpcm", 12345, 12345)),
    ],
)
def test_the_next_higher_rate_is_used(codec, rate, allowed):
    assert allowed_rate(CODECS[codec], rate) == allowed
    x_T = np.random.default_rng(0).uniform(-0.1, 0.1, 2000).astype(np.float32)
    assert through_codec(x_T, rate, codec).shape == x_T.shape


def test_mp3_is_late_where_its_frames_are_too_short_for_a_header():
    late = set()
    for quality in (0.0, 1.0):
        file, x_T = io.BytesIO(), speech(16000)
        options = {"compression_level": min(1 - quality, 0.9999), "bitrate_mode": "CONSTANT"}
        soundfile.write(file, x_T, 16000, format="MP3", **options)
        file.seek(0)
        y_T = soundfile.read(file, dtype="float32")[0]
        size = 2 * len(y_T)
        product = np.fft.irfft(np.fft.rfft(y_T, size) * np.fft.rfft(x_T, size).conj(), size)
        late.add((len(y_T) > len(x_T), int(np.argmax(product))))
    assert late == {(True, MP3_DELAY), (False, 0)}


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match=r"not finite, which no codec can encode\. Leave such clips out\.$"):
        through_codec(np.asarray([0.0, np.nan], np.float32), 8000, "mulaw")


def test_what_libsndfile_refuses_is_one_sentence(monkeypatch):
    def refuse(*arguments, **options):
        raise soundfile.SoundFileError("no")

    monkeypatch.setattr(soundfile, "write", refuse)
    with pytest.raises(DataError, match=r"^libsndfile refuses to encode a clip as GSM 6\.10: no\.$"):
        through_codec(np.zeros(9, np.float32), 8000, "gsm")


def test_a_codec_that_libsndfile_lacks_is_named(monkeypatch):
    formats = {"WAV": "", "OGG": ""}
    monkeypatch.setattr(soundfile, "available_formats", lambda: formats)
    monkeypatch.setattr(soundfile, "available_subtypes", lambda format: {"ULAW": ""} if format == "WAV" else {})
    missing = why_missing.__wrapped__
    assert missing("mulaw") == ""
    assert missing("mp3") == f"libsndfile {soundfile.__libsndfile_version__} on this machine has no MP3."
    assert missing("opus").endswith("has no Opus.")
    monkeypatch.setattr(codecs, "why_missing", missing)
    with pytest.raises(LibraryMissing, match=r"^Codec 'opus': .* has no Opus\. Upgrade soundfile, or leave"):
        through_codec(np.zeros(9, np.float32), 8000, "opus")


def test_a_soundfile_that_cannot_set_the_quality_is_named(monkeypatch):
    monkeypatch.setattr(soundfile, "write", lambda file, data, samplerate, subtype=None, format=None: None)
    missing = why_missing.__wrapped__
    assert missing("gsm") == ""
    assert missing("vorbis") == f"soundfile {soundfile.__version__} cannot set the quality of Vorbis; 0.13 can."


def test_memory_does_not_grow_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    x_T, process = np.random.default_rng(0).uniform(-0.1, 0.1, 400).astype(np.float32), psutil.Process()
    names = list(CODECS)

    def run(clips: int) -> int:
        for clip in range(clips):
            through_codec(x_T, 8000, names[clip % len(names)], 0.1)
        gc.collect()
        return int(process.memory_info().rss)

    before = run(200)
    assert run(2000) - before < 16 * 2**20
    assert not [thing for thing in gc.get_objects() if type(thing) is soundfile.SoundFile]
    assert not list(tmp_path.iterdir())
