from __future__ import annotations

import asyncio

import numpy as np
import pytest

import onnxlet


@pytest.fixture
def voice(page_module, pretrained):
    module = page_module("voice")
    session = onnxlet.InferenceSession(pretrained("voice") / "model.onnx")
    module.start(session)
    yield module
    session.close()


def test_noise_and_tones_are_no_speech(voice):
    rng = np.random.default_rng(0)
    time = np.arange(2 * voice.RATE) / voice.RATE
    for sound in (np.zeros_like(time), 0.05 * rng.standard_normal(time.size), 0.3 * np.sin(2 * np.pi * 440 * time)):
        found = asyncio.run(voice.analyse(sound.astype(np.float32)))
        assert found["speech"] == []
        assert len(found["probabilities"]) == 63  # of 512 samples each, the last one filled up
        assert found["seconds"] == 2


def test_a_recording_in_pieces_is_heard_as_a_whole(voice):
    sound = np.random.default_rng(1).standard_normal(10 * voice.CHUNK).astype(np.float32)
    whole = asyncio.run(voice.analyse(sound))["probabilities"]
    voice.begin()
    pieces = [asyncio.run(voice.probabilities(part)) for part in np.split(sound, 5)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_the_model_is_given_what_it_was_made_for(voice, pretrained):
    """The same chunks through onnxruntime: 64 samples before each, and the state handed on."""
    import onnxruntime

    session = onnxruntime.InferenceSession(pretrained("voice") / "model.onnx")
    sound = 0.1 * np.random.default_rng(2).standard_normal(4 * voice.CHUNK).astype(np.float32)
    state, expected = np.zeros((2, 1, 128), np.float32), []
    padded = np.concatenate([np.zeros(64, np.float32), sound])
    for i in range(4):
        feeds = {"input": padded[np.newaxis, i * 512 : i * 512 + 576], "state": state, "sr": np.array(16000)}
        likely, state = map(np.asarray, session.run(None, feeds))
        expected.append(likely[0, 0])
    np.testing.assert_allclose(asyncio.run(voice.analyse(sound))["probabilities"], expected, atol=1e-4)


def test_stretches(voice):
    chunk = voice.CHUNK / voice.RATE
    quiet, loud, unsure = [0.0], [0.9], [0.4]
    found = voice.stretches(
        quiet * 10 + loud * 20 + quiet * 2 + loud * 5 + unsure * 3 + quiet * 20 + loud * 3 + quiet * 9
    )
    # The two chunks of silence in the middle belong to it, the unsure ones too; three chunks alone are too short.
    assert found == [pytest.approx([10 * chunk, 40 * chunk])]
    assert voice.stretches(loud * 20) == [pytest.approx([0, 20 * chunk])]
    assert voice.stretches([]) == []
