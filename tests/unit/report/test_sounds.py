"""Sounds on a page: players hold the given sounds, and spectrograms show them."""

import base64
import io

import numpy as np
import pytest
import soundfile

pytest.importorskip("PIL")

from PIL import Image

from audioaug.report.sounds import LEVELS, WIDTH, flac, png, rendered_sounds, spectrograms

RATE = 16000


def tone(frequency_hz, peak=0.5, seconds=0.5):
    return (peak * np.sin(2 * np.pi * frequency_hz * np.arange(int(seconds * RATE)) / RATE)).astype(np.float32)[None]


def played(sound):
    kind, _, content = sound.audio.partition(";base64,")
    assert kind == "data:audio/flac"
    return soundfile.read(io.BytesIO(base64.b64decode(content)), always_2d=True)


def test_a_player_holds_the_sound():
    x_CT = np.concatenate([tone(440), tone(1000, 0.1), tone(50)])
    y_TC, rate = soundfile.read(io.BytesIO(flac(x_CT, 44100)))
    assert rate == 44100 and y_TC.shape == (8000, 2)  # the third channel is left out
    np.testing.assert_allclose(y_TC.T, x_CT[:2], atol=2**-15)


def test_all_of_an_example_is_made_softer_where_one_would_clip():
    quiet, loud = (played(sound)[0] for sound in rendered_sounds({"dry": tone(440, 0.5), "loud": tone(440, 4.0)}, RATE))
    assert np.abs(loud).max() == pytest.approx(1.0, abs=1e-3) and np.abs(quiet).max() == pytest.approx(0.125, abs=1e-3)


@pytest.mark.parametrize("frequency_hz", [500, 3000, 7000])
def test_a_tone_is_a_line_at_its_height(frequency_hz):
    (picture_HW,) = spectrograms([tone(frequency_hz)], RATE)
    height, width = picture_HW.shape
    middle_H = picture_HW[:, width // 2]
    assert width == WIDTH and middle_H.max() == LEVELS - 1
    assert np.argmax(middle_H) == pytest.approx(height * (1 - frequency_hz / (RATE / 2)), abs=2)
    assert np.median(middle_H) == 0


def test_pictures_of_one_example_share_their_scale():
    loud_HW, soft_HW = spectrograms([tone(1000), tone(1000, 0.005)], RATE)
    assert loud_HW.max() - soft_HW.max() == pytest.approx((LEVELS - 1) / 2, abs=1)  # 40 of 80 dB


@pytest.mark.parametrize("samples", [1, 3, 200, 40000])
def test_any_length_can_be_drawn(samples):
    for x_CT in (np.zeros((1, samples), np.float32), np.ones((2, samples), np.float32)):
        (picture_HW,) = spectrograms([x_CT], RATE)
        assert picture_HW.shape == (128, WIDTH) and picture_HW.max() < LEVELS


def test_a_picture_is_read_as_it_was_written():
    picture_HW = np.arange(6, dtype=np.uint8).reshape(2, 3) * 5
    image = Image.open(io.BytesIO(png(picture_HW)))
    assert image.mode == "P" and np.array_equal(np.asarray(image), picture_HW)
    assert image.convert("RGB").getpixel((0, 0)) == (0, 0, 4)
