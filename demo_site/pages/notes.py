"""Finds the notes in a recording, with basic-pitch. Runs in the page, in Pyodide.

The model (Bittner et al., "A Lightweight Instrument-Agnostic Model for Polyphonic Note Transcription and Multipitch
Estimation", 2022) tells for every frame how likely each key of a piano sounds, and how likely it begins to.
"""

import json
import time

import numpy as np

from onnxlet import InferenceSession

RATE = 22050
"""Samples per second."""
HOP = 256
"""Samples of a frame."""
WINDOW = 43844
"""Samples that the model looks at: two seconds, less a frame."""
OVERLAP = 30
"""Frames that two windows share; the outer half of them is not used."""
LOWEST = 21
"""The MIDI number of a piano's first key."""
ONSET, SOUNDING = 0.5, 0.3
"""Probabilities from which on a note begins, and is taken to sound."""
PATIENCE = 11
"""Frames that a note may seem to be silent in between."""
SHORTEST = 11
"""Frames of a note that counts: 128 ms."""

state = {}


async def load(address, providers, progress):
    """Load the model from `address`; `providers` is a list of names, the preferred one first."""
    made = await InferenceSession.create(address + "model.onnx", providers=list(providers), progress=progress)
    return json.dumps(start(made))


def start(session):
    """Keep a session for `transcribe`; an earlier one is closed."""
    if "session" in state:
        state["session"].close()
    state["session"] = session
    return {"providers": session.get_providers()}


async def transcribe(samples, progress):
    """The notes of a recording, mono at 22050 Hz, with how likely every key sounds in every frame."""
    return json.dumps(await analyse(np.frombuffer(samples.to_py(), np.float32), progress))


async def analyse(samples, progress=None):
    """What `transcribe` tells, for float32 samples from -1 to 1."""
    before = time.perf_counter()
    sounding, onsets = await likelihoods(samples, progress)
    notes = find_notes(sounding, onsets)
    frame = HOP / RATE
    return {
        "notes": [
            {"key": key, "from": begin * frame, "to": end * frame, "strength": strength}
            for key, begin, end, strength in notes
        ],
        "seconds": len(samples) / RATE,
        "milliseconds": (time.perf_counter() - before) * 1e3,
        "explain": state["session"].explain().to_dict(),
    }


async def likelihoods(samples, progress=None):
    """(frames, 88) how likely each key sounds, and how likely it begins to, from overlapping windows."""
    session = state["session"]
    step = WINDOW - OVERLAP * HOP
    lead = OVERLAP * HOP // 2
    count = max(1, -(-(len(samples) + lead) // step))
    padded = np.zeros(count * step + OVERLAP * HOP, np.float32)
    padded[lead : lead + len(samples)] = samples
    name = session.get_inputs()[0].name
    parts = []
    for number in range(count):
        window = padded[number * step : number * step + WINDOW].reshape(1, -1, 1)
        # Their names end in numbers: contours are 0, sounding keys 1, onsets 2.
        outputs = dict(
            zip([o.name for o in session.get_outputs()], await session.run_async(None, {name: window}), strict=True)
        )
        sounding, onsets = (next(v for n, v in outputs.items() if n.endswith(f":{i}")) for i in (1, 2))
        inner = slice(OVERLAP // 2, sounding.shape[1] - OVERLAP // 2)
        parts.append((sounding[0, inner], onsets[0, inner]))
        if progress is not None:
            progress("listening", number + 1, count)
    frames = -(-len(samples) // HOP)
    return tuple(np.concatenate([part[i] for part in parts])[:frames] for i in (0, 1))


def find_notes(sounding, onsets):
    """Notes (key, first frame, frame after the last, mean strength) by time.

    A note begins at a peak of its key's onsets and goes on while the key sounds; what sounds without a beginning that
    was heard is a note too, if it is loud enough.
    """
    left = sounding.copy()
    found = []
    for begin, key in peaks(onsets)[::-1]:  # the last first: a note ends where the next of its key begins
        end = follow(left[:, key], begin)
        take(found, sounding, left, key, begin, end)
    while left.size and left.max() > ONSET:
        middle, key = (int(i) for i in np.unravel_index(int(left.argmax()), left.shape))
        begin = len(left) - follow(left[::-1, key], len(left) - 1 - middle)
        take(found, sounding, left, key, begin, follow(left[:, key], middle))
        left[middle, key] = 0  # so that this ends, also where the note was too short
    return sorted(found, key=lambda note: (note[1], note[0]))


def peaks(onsets):
    """Frames and keys where onsets are likely, and more so than in the frames around, by frame."""
    inner = onsets[1:-1]
    higher = (inner > onsets[:-2]) & (inner >= onsets[2:]) & (inner >= ONSET)
    return [(int(frame) + 1, int(key)) for frame, key in np.argwhere(higher)]


def follow(line, begin):
    """The frame after the last in which a key sounds, from `begin` on: it may be silent for some frames in between."""
    silent, at = 0, begin
    while at < len(line) and silent < PATIENCE:
        silent = silent + 1 if line[at] < SOUNDING else 0
        at += 1
    return at - silent


def take(found, sounding, left, key, begin, end):
    """Add a note unless it is too short, and count its sound as used, with what its neighbours have of it."""
    if end - begin < SHORTEST:
        return
    found.append((key + LOWEST, begin, end, float(sounding[begin:end, key].mean())))
    left[begin:end, max(0, key - 1) : key + 2] = 0
