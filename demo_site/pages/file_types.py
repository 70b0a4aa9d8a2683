"""Tells the type of a file from its first and last bytes, with the magika model. Runs in the page, in Pyodide."""

import json
import time

import numpy as np
from js import fetch  # type: ignore[import-not-found]

from onnxlet import InferenceSession

state = {}


async def load(address, providers, progress):
    """Load the model and its labels from `address`; `providers` is a list of names, the preferred one first."""
    config = (await (await fetch(address + "config.json")).json()).to_py()
    kinds = (await (await fetch(address + "types.json")).json()).to_py()
    session = await InferenceSession.create(address + "model.onnx", providers=list(providers), progress=progress)
    if "session" in state:
        state["session"].close()
    state.update(session=session, config=config, kinds=kinds)
    # The first run makes the plan; people should not wait for it.
    await session.run_async(None, {"bytes": np.zeros((1, config["beg_size"] + config["end_size"]), np.int32)})
    return json.dumps({"providers": session.get_providers()})


async def detect(head, tail, progress):
    """The most likely types of a file, from its first and last 4096 bytes."""
    head, tail = head.to_py().tobytes(), tail.to_py().tobytes()
    config, session = state["config"], state["session"]
    start = time.perf_counter()
    (scores,) = await session.run_async(None, {"bytes": features(head, tail, config)})
    elapsed = time.perf_counter() - start
    best = np.argsort(-scores[0])[:5]
    found = [(config["target_labels_space"][i], float(scores[0, i])) for i in best]
    label = decide(head, found[0], config, state["kinds"])
    return json.dumps(
        {
            "label": label,
            "description": describe(label),
            "probability": found[0][1],
            "guesses": [{"label": name, "description": describe(name), "probability": p} for name, p in found],
            "milliseconds": elapsed * 1e3,
            "explain": session.explain().to_dict(),
        }
    )


def features(head, tail, config):
    """The model's input: the beginning and the end of the file without white space around them, padded."""
    beginning = np.full(config["beg_size"], config["padding_token"], np.int32)
    ending = np.full(config["end_size"], config["padding_token"], np.int32)
    first = np.frombuffer(head.lstrip()[: len(beginning)], np.uint8)
    last = np.frombuffer(tail.rstrip()[-len(ending) :], np.uint8)
    beginning[: len(first)] = first
    if len(last):
        ending[-len(last) :] = last
    return np.concatenate([beginning, ending])[np.newaxis]


def decide(head, best, config, kinds):
    """The model's best guess where it is sure enough, else only whether it is text."""
    if not head:
        return "empty"
    if len(head.strip()) < config["min_file_size_for_dl"]:
        return "txt" if is_text(head) else "unknown"
    label, score = best
    if score < config["thresholds"].get(label, config["medium_confidence_threshold"]):
        label = "txt" if kinds[label]["is_text"] else "unknown"
    return config["overwrite_map"].get(label, label)


def is_text(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def describe(label):
    kind = state["kinds"].get(label, {})
    return kind.get("description") or label
