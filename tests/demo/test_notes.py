from __future__ import annotations

import asyncio

import numpy as np
import pytest

import onnxlet

TUNE = [(60, 0.0, 0.5), (64, 0.5, 1.0), (67, 1.0, 1.5), (72, 1.5, 2.25), (60, 2.5, 3.5), (64, 2.5, 3.5), (67, 2.5, 3.5)]


@pytest.fixture
def notes(page_module, pretrained):
    module = page_module("notes")
    session = onnxlet.InferenceSession(pretrained("notes") / "model.onnx")
    module.start(session)
    yield module
    session.close()


def played(tune, rate: int) -> np.ndarray:
    """Plucked strings with five harmonics."""
    samples = np.zeros(int((max(to for _, _, to in tune) + 0.5) * rate), np.float32)
    for key, begin, end in tune:
        t = np.arange(int((end - begin) * rate)) / rate
        pitch = 440 * 2 ** ((key - 69) / 12)
        tone = sum(np.sin(2 * np.pi * k * pitch * t) / k**3 for k in range(1, 6))
        shape = np.minimum(np.minimum(1, t / 0.005), (end - begin - t) / 0.02) * np.exp(-1.5 * t)
        start = int(begin * rate)
        samples[start : start + t.size] += (0.15 * tone * shape).astype(np.float32)
    return samples


def test_a_tune_is_written_down(notes):
    found = asyncio.run(notes.analyse(played(TUNE, notes.RATE)))["notes"]
    assert sorted(n["key"] for n in found) == sorted(key for key, _, _ in TUNE)
    for key, begin, end in TUNE:
        (note,) = [n for n in found if n["key"] == key and abs(n["from"] - begin) < 0.1]
        assert abs(note["to"] - end) < 0.25
        assert 0.3 < note["strength"] <= 1


def test_long_recordings_are_looked_at_in_windows(notes):
    late = [(69, 4.0, 4.6)]
    (note,) = asyncio.run(notes.analyse(played(late, notes.RATE)))["notes"]
    assert note["key"] == 69
    assert abs(note["from"] - 4.0) < 0.05  # windows are put together without a shift


def test_silence_has_no_notes(notes):
    for length in (0, 1, 100, 60000):
        found = asyncio.run(notes.analyse(np.zeros(length, np.float32)))
        assert found["notes"] == []
        assert found["seconds"] == pytest.approx(length / 22050)


def test_frames_become_notes(notes):
    sounding, onsets = np.zeros((100, 88), np.float32), np.zeros((100, 88), np.float32)
    sounding[10:40, 5] = 0.8
    onsets[10, 5] = 0.9
    sounding[40:60, 5] = 0.8  # the same key again
    onsets[40, 5] = 0.7
    sounding[20:25, 30] = 0.9  # too short
    onsets[20, 30] = 0.9
    sounding[70:95, 50] = 0.6  # no beginning was heard
    sounding[78:82, 50] = 0.0  # and a gap
    found = [(key, begin, end) for key, begin, end, _ in notes.find_notes(sounding, onsets)]
    assert found == [(26, 10, 40), (26, 40, 60), (71, 70, 95)]
