"""Tells where in a recording somebody speaks, with silero-vad. Runs in the page, in Pyodide.

The model looks at 32 ms at a time, with the 4 ms before them, and remembers what came before in its state.
"""

import json
import time

import numpy as np

from onnxlet import InferenceSession

RATE = 16000
"""Samples per second."""
CHUNK, BEFORE = 512, 64
"""Samples that the model looks at, and those before them that it sees too."""
SPEECH, SILENCE = 0.5, 0.35
"""Probabilities from which on speech begins, and below which it ends."""
SHORTEST = 0.25
"""Seconds of speech that count."""
GAP = 0.1
"""Seconds of silence that end it."""
STEP = 50
"""Chunks between two reports of progress."""

state = {}


async def load(address, providers, progress):
    """Load the model from `address`; `providers` is a list of names, the preferred one first."""
    made = await InferenceSession.create(address + "model.onnx", providers=list(providers), progress=progress)
    return json.dumps(start(made))


def start(session):
    """Keep a session for `listen` and `hear`; an earlier one is closed."""
    if "session" in state:
        state["session"].close()
    state["session"] = session
    begin()
    return {"providers": session.get_providers()}


def begin():
    """Forget what was heard."""
    state.update(memory=np.zeros((2, 1, 128), np.float32), before=np.zeros((1, BEFORE), np.float32))


async def listen(samples, progress):
    """Where somebody speaks in a recording, mono at 16 kHz: probabilities of all chunks, and seconds from and to."""
    return json.dumps(await analyse(np.frombuffer(samples.to_py(), np.float32), progress))


async def hear(samples, fresh, progress):
    """The probabilities of the chunks that come next from a microphone; `fresh` where it was just switched on."""
    if fresh:
        begin()
    return json.dumps(await probabilities(np.frombuffer(samples.to_py(), np.float32)))


async def analyse(samples, progress=None):
    """What `listen` tells, for float32 samples from -1 to 1."""
    begin()
    before = time.perf_counter()
    found = await probabilities(samples, progress)
    return {
        "probabilities": found,
        "speech": stretches(found),
        "seconds": len(samples) / RATE,
        "milliseconds": (time.perf_counter() - before) * 1e3,
        "explain": state["session"].explain().to_dict(),
    }


async def probabilities(samples, progress=None):
    """How likely somebody speaks in each chunk; the last one is filled up with silence."""
    chunks = np.zeros((-(-len(samples) // CHUNK), CHUNK), np.float32)
    chunks.reshape(-1)[: len(samples)] = samples
    session, found = state["session"], []
    rate = np.array(RATE, np.int64)
    for number, chunk in enumerate(chunks):
        heard = np.concatenate([state["before"], chunk[np.newaxis]], axis=1)
        feeds = {"input": heard, "state": state["memory"], "sr": rate}
        likely, state["memory"] = await session.run_async(None, feeds)
        state["before"] = heard[:, -BEFORE:]
        found.append(float(likely[0, 0]))
        if progress is not None and number % STEP == 0:
            progress("listening", number * CHUNK // RATE, len(samples) // RATE)
    return found


def stretches(likely):
    """Seconds from and to of each stretch of speech, without shorter ones; short silences belong to what is around."""
    length = CHUNK / RATE
    found, begun, quiet = [], None, None
    for number, probability in enumerate([*likely, *[0.0] * (int(GAP / length) + 2)]):
        now = number * length
        if probability >= SPEECH:
            begun = now if begun is None else begun
            quiet = None
        elif probability < SILENCE and begun is not None:
            quiet = now if quiet is None else quiet
            if now - quiet >= GAP:
                if quiet - begun >= SHORTEST:
                    found.append([begun, quiet])
                begun = quiet = None
    return found
