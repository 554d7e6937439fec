"""Codec: which codec, at which quality, follows from the key. G711: the same bits in workers and on the device."""

import sys

import numpy as np
import pytest
import torch

from audioaug import build_cpu, build_device, ops
from audioaug.audio.codecs import CODECS, through_codec
from audioaug.core import Chain
from audioaug.errors import ChainError, DataError, LibraryMissing
from audioaug.verify import material
from audioaug.verify.replay import replay

RATE = 16000
SPEECH = material.signals(RATE)[0][0]
EVERY = ops.Codec(p=1.0)


def drawn(op: ops.Codec, count: int) -> list[tuple[str, float]]:
    """Return the codec and the quality for that many keys."""
    draws = Chain([op], RATE).draw(range(count))
    return [(op.codecs[int(place)], quality) for place, quality in zip(draws["0:codec"], draws["0:quality"].tolist())]


@pytest.mark.parametrize("op", [EVERY, ops.Codec(codecs=["opus", "gsm"], max_quality=1.0, p=1.0)])
def test_a_key_decides_on_codec_and_quality(op: ops.Codec) -> None:
    worker = build_cpu(Chain([op], RATE))
    for key, (codec, quality) in enumerate(drawn(op, 12)):
        found = worker(SPEECH, key=key)
        assert np.array_equal(found, through_codec(SPEECH, RATE, codec, quality))
        assert np.array_equal(found, worker(SPEECH, key=key))
    assert not np.array_equal(worker(SPEECH, key=0), worker(SPEECH, key=0, epoch=1))


def test_codecs_are_picked_by_weight_and_qualities_lie_in_their_range() -> None:
    op = ops.Codec(codecs=["gsm", "mp3", "opus"], weights=[1, 0, 3], min_quality=0.2, max_quality=0.4, p=1.0)
    codecs, qualities = zip(*drawn(op, 2000))
    assert set(codecs) == {"gsm", "opus"} and codecs.count("opus") == pytest.approx(1500, abs=80)
    assert 0.2 <= min(qualities) < 0.21 and 0.39 < max(qualities) < 0.4
    assert {codec for codec, _ in drawn(EVERY, 200)} == set(CODECS)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"codecs": ["ogg"]}, f"Codec: there is no codec 'ogg'. Known: {', '.join(sorted(CODECS))}."),
        ({"codecs": [["gsm"]]}, "Codec: there is no codec ['gsm']. Did you mean gsm?"),
        ({"codecs": ["aac"]}, "Codec: there is no codec 'aac'. Did you mean alaw?"),
        ({"codecs": []}, "Codec: codecs is [], but it must be a list of names, at least one of them."),
        ({"codecs": "mp3"}, "Codec: codecs is 'mp3', but it must be a list of names, at least one of them."),
        (
            {"codecs": ["mp3", "gsm"], "weights": [1.0]},
            "Codec: weights is [1.0], but there must be a number for each of the 2 codecs, none negative, and not all "
            "zero.",
        ),
        ({"max_quality": 1.5}, "Codec: max_quality is 1.5, but it must be between 0 and 1."),
        (
            {"min_quality": 0.5},
            "Codec: min_quality is 0.5, but it must not be greater than max_quality (0.3).",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ChainError) as caught:
        ops.Codec(**arguments)
    assert str(caught.value) == sentence


def test_names_are_kept_in_order_and_in_files() -> None:
    chain = Chain([ops.Codec(codecs=["opus", "gsm"], weights=(1, 2), max_quality=0.5)], RATE)
    [written] = chain.to_dict()["transforms"]
    assert written == {"Codec": {"codecs": ["opus", "gsm"], "weights": [1, 2], "max_quality": 0.5}}
    assert Chain.from_dict(chain.to_dict()) == chain


def test_a_codec_that_libsndfile_lacks_is_named_when_a_clip_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["audioaug.ops.codec"], "why_missing", lambda codec: "there is no Opus." * (codec == "opus")
    )
    worker = build_cpu(Chain([EVERY], RATE))  # which may be declared, written and sent without it
    with pytest.raises(LibraryMissing) as caught:
        worker(SPEECH, key=0)
    assert str(caught.value) == "Codec: there is no Opus. Upgrade soundfile, or leave 'opus' out of codecs."
    build_cpu(Chain([ops.Codec(codecs=["gsm"], p=1.0)], RATE))(SPEECH, key=0)


def test_codec_runs_in_workers_only() -> None:
    chain = Chain([ops.Gain(), EVERY, ops.G711()], RATE)
    assert chain.device_from == 2
    assert chain.why_not_cut(1) == "Codec: libsndfile encodes one clip at a time, on the CPU."


def test_clips_without_samples_and_of_one_pass() -> None:
    for op in (EVERY, ops.G711(p=1.0)):
        worker = build_cpu(Chain([op], RATE))
        for key in range(8):
            assert worker(np.zeros(0, np.float32), key=key).shape == (0,)
            assert worker(np.full((2, 1), 0.5, np.float32), key=key).shape == (2, 1)


@pytest.mark.parametrize("op", [EVERY, ops.G711(p=1.0)], ids=lambda op: op.name)
def test_a_clip_that_is_not_finite_is_refused_in_a_worker(op: ops.Codec) -> None:
    with pytest.raises(DataError, match="values that are not finite"):
        build_cpu(Chain([op], RATE))(np.asarray([0.0, np.inf], np.float32), key=0)


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
@pytest.mark.parametrize("channels", [1, 2])
def test_g711_gives_the_same_bits_in_workers_and_on_the_device(law: str, channels: int) -> None:
    for rate in (8000, 11025, 44100):
        clips = material.signals(rate, channels)
        replayed = replay(ops.G711(law=law, p=1.0), clips, rate)  # type: ignore[arg-type]
        assert all(np.array_equal(*pair) for pair in zip(replayed.reference, replayed.built))
        assert any(not np.array_equal(*pair) for pair in zip(clips, replayed.built))


def test_silence_stays_silent_but_for_a_law() -> None:
    """A-law has no code for zero: its smallest value is half a step of 16 from it, of 32768."""
    silence = torch.zeros(1, 1, 5)
    assert not build_device(Chain([ops.G711(law="mulaw", p=1.0)], RATE))(silence).any()
    assert build_device(Chain([ops.G711(law="alaw", p=1.0)], RATE))(silence).unique().tolist() == [8 / 32768]
