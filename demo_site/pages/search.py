"""Finds sentences by meaning, with MiniLM. Runs in the page, in Pyodide.

A sentence's meaning is the mean of the model's vectors for its tokens, at length 1; how near two meanings are is the
product of their vectors (Reimers and Gurevych, "Sentence-BERT", 2019).
"""

import json
import re
import time

import numpy as np
from wordpiece import WordPiece

from onnxlet import InferenceSession

SHOWN = 8
"""Sentences of an answer."""
BATCH = 16
"""Sentences that are read at a time."""

state = {}


async def load(address, providers, progress):
    """Load the model and its tokenizer from `address`; `providers` is a list of names, the preferred one first."""
    from js import fetch  # type: ignore[import-not-found]

    description = json.loads(await (await fetch(address + "tokenizer.json")).text())
    session = await InferenceSession.create(address + "model.onnx", providers=list(providers), progress=progress)
    return json.dumps(start(session, description))


def start(session, description):
    """Keep a session and its tokenizer for `search`; an earlier session is closed."""
    if "session" in state:
        state["session"].close()
    state.update(session=session, tokenizer=WordPiece(description), known={})
    return {"providers": session.get_providers()}


async def search(text, query, progress):
    """The sentences of a text that are nearest in meaning to `query`."""
    sentences = split(text)
    before = time.perf_counter()
    read = await understand([*sentences, query])
    elapsed = time.perf_counter() - before
    known = state["known"]
    similarities = np.array([known[s] for s in sentences]) @ known[query]
    best = np.argsort(-similarities)[:SHOWN]
    return json.dumps(
        {
            "found": [{"sentence": sentences[i], "similarity": float(similarities[i])} for i in best],
            "sentences": read,
            "milliseconds": elapsed * 1e3,
            "explain": state["session"].explain().to_dict(),
        }
    )


def split(text):
    """The sentences of a text: they end at a full stop, question or exclamation mark, or at the end of a line."""
    parts = re.split(r"(?<=[.!?…])\s+|\n+", text)
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


async def understand(sentences):
    """Get the meanings of those sentences that are new into `known`, and return how many there were."""
    session, tokenizer, known = state["session"], state["tokenizer"], state["known"]
    new = sorted({s for s in sentences if s not in known}, key=len)  # those of a batch have similar lengths
    for start in range(0, len(new), BATCH):
        group = new[start : start + BATCH]
        ids, mask = tokenizer.batch(group)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {i.name for i in session.get_inputs()}
        (tokens, *_) = await session.run_async(None, {n: v for n, v in feeds.items() if n in wanted})
        known.update(zip(group, pool(tokens, mask), strict=True))
    return len(new)


def pool(tokens, mask):
    """The mean of each sentence's vectors (sentences, tokens, width), without padding, at length 1."""
    weights = mask[..., np.newaxis].astype(np.float32)
    means = (tokens * weights).sum(1) / weights.sum(1)
    return means / np.linalg.norm(means, axis=1, keepdims=True)
