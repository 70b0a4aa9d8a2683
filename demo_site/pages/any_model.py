"""Runs any model on random inputs. Runs in the page, in Pyodide."""

import json
import time

import numpy as np

from onnxlet import InferenceSession

state = {}

ELEMENT_TYPES = {"float": "float32", "double": "float64"}
"""ONNX's names of element types where NumPy's differ."""


async def hello(progress):
    return "null"


async def load(model, providers, progress):
    """Make a session from the bytes of a model (a JavaScript Uint8Array) and describe its inputs."""
    session = await InferenceSession.create(model, providers=list(providers), progress=progress)
    if "session" in state:
        state["session"].close()
    state["session"] = session
    meta = session.get_modelmeta()
    facts = [f"graph {meta.graph_name!r}" if meta.graph_name else "", f"made by {meta.producer_name}"]
    inputs = [
        {"name": i.name, "type": i.type, "shape": i.shape, "suggestion": [suggest(d, k) for k, d in enumerate(i.shape)]}
        for i in session.get_inputs()
    ]
    outputs = ", ".join(o.name for o in session.get_outputs())
    return json.dumps(
        {
            "inputs": inputs,
            "providers": session.get_providers(),
            "facts": ", ".join(f for f in facts if f) + f". Outputs: {outputs}.",
        }
    )


def suggest(dimension, axis):
    """A size to start with: fixed ones as they are, batches of one, and a moderate size for the rest."""
    if isinstance(dimension, int):
        return dimension
    return 1 if axis == 0 else 16


async def run(shapes, progress):
    """Run the model twice on random inputs of the given shapes and describe what came out."""
    session, shapes = state["session"], json.loads(shapes)
    rng = np.random.default_rng(0)
    feeds = {i.name: random_input(rng, i.type, shapes[i.name]) for i in session.get_inputs()}
    start = time.perf_counter()
    await session.run_async(None, feeds)
    middle = time.perf_counter()
    values = await session.run_async(None, feeds)
    end = time.perf_counter()
    outputs = [describe(o.name, v) for o, v in zip(session.get_outputs(), values, strict=True)]
    return json.dumps(
        {
            "first": (middle - start) * 1e3,
            "warm": (end - middle) * 1e3,
            "outputs": outputs,
            "explain": session.explain().to_dict(),
        }
    )


def random_input(rng, type_, shape):
    """Normal numbers, small whole numbers, coin tosses or words, by element type."""
    element = type_.removeprefix("tensor(").removesuffix(")")
    element = ELEMENT_TYPES.get(element, element)
    if element == "string":
        return np.array(rng.choice(["red", "green", "blue"], shape), object)
    dtype = np.dtype(element)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    # Indices and tokens must exist, so whole numbers stay small.
    return rng.integers(0, 2, shape).astype(dtype)


def describe(name, value):
    if not isinstance(value, np.ndarray):
        return {"name": name, "type": type(value).__name__, "summary": "", "values": str(value)[:2000]}
    summary = ""
    if value.size and value.dtype.kind in "fiu":
        wide = value.astype(np.float64)
        summary = f"from {wide.min():.4g} to {wide.max():.4g}, mean {wide.mean():.4g}"
    return {
        "name": name,
        "type": f"{value.dtype} {list(value.shape)}",
        "summary": summary,
        "values": np.array2string(value, threshold=60, edgeitems=3, precision=4),
    }
