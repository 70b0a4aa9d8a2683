"""Language models as sub-graphs, asked for one token after the other: what BeamSearch and its relatives search in.

The graphs' inputs and outputs have a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...graph.ir import Graph, TensorType
from ..precision import full_precision

Body = Callable[..., Generator[Any, Any, Sequence[Any]]]
Logits = Generator[Any, Any, np.ndarray]
"""A generator that returns logits (rows, vocabulary) of the next token."""


class Decoder(Protocol):
    """A model that continues `sequences` (rows, length); there are several rows, the beams, for each of a batch."""

    sequences: np.ndarray

    def first(self) -> Logits:
        """The logits after the prompt."""
        ...

    def after(self, sequences: np.ndarray, order: np.ndarray) -> Logits:
        """The logits after `sequences`, one token longer than before, which continue the rows `order`."""
        ...


def last_logits(logits: np.ndarray, rows: int) -> np.ndarray:
    """Of logits (batch or rows, length, vocabulary) those of the last token, for every row."""
    return np.repeat(full_precision(logits[:, -1]), rows // max(len(logits), 1), axis=0)


def empty_cache(graph: Graph, name: str, rows: int, length: int) -> np.ndarray:
    """An empty cache for a sub-graph's input: (2, rows, heads, length, size) or (rows, heads, length, size)."""
    type_ = graph.types.get(name)
    shape = type_.shape if isinstance(type_, TensorType) else None
    if not isinstance(type_, TensorType) or type_.dtype is None or shape is None or len(shape) not in (4, 5):
        raise ValueError(f"the sub-graph does not say which shape its input {name!r} has")
    heads, size = shape[-3], shape[-1]
    if not isinstance(heads, int) or not isinstance(size, int):
        raise ValueError(f"the sub-graph leaves open how many heads its input {name!r} has, or of which size")
    return np.zeros(((2,) if len(shape) == 5 else ()) + (rows, heads, length, size), type_.dtype)


class SharedBuffers:
    """What a decoder whose caches have the greatest length from the beginning gets besides them."""

    def __init__(self, count: int, beams: int, rows: int, max_length: int):
        self.count, self.beams, self.rows, self.max_length = count, beams, rows, max_length

    def feeds(self, past: int) -> list[np.ndarray]:
        """The length of the past, how many beams there are, and from which beam each token comes.

        Caches are put in order here, so every token comes from its own beam.
        """
        own = np.arange(self.beams, dtype=np.int32)[:, None]
        shape = (self.rows // self.beams, self.beams, self.max_length)
        whence = np.ascontiguousarray(np.broadcast_to(own, shape))
        return [np.array([past], np.int32), np.array([self.beams], np.int32), whence][: self.count]


class DecoderOnly:
    """A model like GPT-2: of tokens, their positions, a mask, and caches (2, rows, heads, length, size)."""

    def __init__(
        self,
        bodies: Mapping[str, Body | None],
        graphs: Mapping[str, Graph],
        ids: np.ndarray,
        mask: np.ndarray | None,
        pad: int,
        beams: int,
        max_length: int,
    ):
        body = bodies["decoder"]
        assert body is not None
        self.body = body
        self.first_body = bodies.get("init_decoder") or self.body
        graph = graphs["decoder"]
        layers = len(graph.outputs) - 1
        words = ids != pad
        own_mask = words.astype(np.int32) if mask is None else mask
        # Padding has no position, whatever the mask.
        positions = np.where(words, np.cumsum(words, axis=1) - 1, 0).astype(np.int32)
        self.sequences, self.positions, self.mask = (np.repeat(x, beams, axis=0) for x in (ids, positions, own_mask))
        rows = len(self.sequences)
        self.extra = SharedBuffers(len(graph.inputs) - 3 - layers, beams, rows, max_length)
        length = max_length if self.extra.count > 0 else 0
        self.caches = [empty_cache(graph, name, rows, length) for name in graph.inputs[3 : 3 + layers]]
        self.next_position = np.repeat(words.sum(axis=1, dtype=np.int32), beams)[:, None]

    def first(self) -> Logits:
        inputs = [self.sequences, self.positions, self.mask, *self.caches, *self.extra.feeds(0)]
        logits, *self.caches = yield from self.first_body(*inputs)
        return last_logits(logits, len(self.sequences))

    def after(self, sequences: np.ndarray, order: np.ndarray) -> Logits:
        self.caches = [cache[:, order] for cache in self.caches]
        self.mask = np.concatenate([self.mask, np.ones((len(order), 1), np.int32)], axis=1)
        past = sequences.shape[1] - 1
        inputs = [sequences[:, -1:], self.next_position, self.mask, *self.caches, *self.extra.feeds(past)]
        logits, *self.caches = yield from self.body(*inputs)
        self.next_position = self.next_position + np.int32(1)
        return last_logits(logits, len(order))


class EncoderDecoder:
    """A model like T5 or Whisper: an encoder, and a decoder that looks at what it gave through caches (rows, heads,
    length, size).

    The encoder gives logits for the first token and its hidden states before the caches, or only the caches of what
    the decoder looks at across; then the decoder begins with empty ones of its own.
    """

    def __init__(
        self,
        bodies: Mapping[str, Body | None],
        graphs: Mapping[str, Graph],
        encoder_inputs: Sequence[np.ndarray],
        mask: np.ndarray | None,
        prompt: np.ndarray,
        beams: int,
        max_length: int,
    ):
        encoder, decoder = bodies.get("encoder"), bodies["decoder"]
        if encoder is None or decoder is None or "encoder" not in graphs:
            raise ValueError("a model of this type needs an encoder and a decoder")
        self.encoder, self.decoder, self.beams = encoder, decoder, beams
        self.encoder_graph, self.graph = graphs["encoder"], graphs["decoder"]
        self.encoder_inputs = list(encoder_inputs)[: len(self.encoder_graph.inputs)]
        self.sequences = np.repeat(prompt, beams, axis=0)
        self.before: list[np.ndarray] = [] if mask is None else [np.repeat(mask, beams, axis=0)]
        self.whole = self._takes_sequences()
        self.complete = self.encoder_graph.outputs[0].startswith("logits")
        given = len(self.encoder_graph.outputs)
        self.layers = (given - 2) // 4 if self.complete else given // 2
        self.hidden = len(self.graph.inputs) > 1 + len(self.before) and (
            self.graph.inputs[1 + len(self.before)] == "encoder_hidden_states"
        )
        start = 1 + len(self.before) + self.hidden
        self.past_names = self.graph.inputs[start : start + 2 * self.layers]
        count = len(self.graph.inputs) - start - 4 * self.layers
        self.extra = SharedBuffers(count, beams, len(self.sequences), max_length)
        self.caches: list[np.ndarray] = []
        self.across: list[np.ndarray] = []
        self.others: list[Sequence[np.ndarray]] = []
        """What the decoder gave besides logits and caches, each time."""

    def _takes_sequences(self) -> bool:
        """Whether the decoder is given all tokens each time, not only the last."""
        type_ = self.graph.types.get(self.graph.inputs[0])
        shape = type_.shape if isinstance(type_, TensorType) else None
        return not (shape is not None and len(shape) == 2 and shape[1] == 1)

    def _spread(self, x: np.ndarray) -> np.ndarray:
        return np.repeat(x, len(self.sequences) // max(len(x), 1), axis=0)

    def first(self) -> Logits:
        results = list((yield from self.encoder(*self.encoder_inputs)))
        if not self.complete:
            rows, length = len(self.sequences), self.extra.max_length if self.extra.count > 0 else 0
            self.across = [self._spread(x) for x in results]
            self.caches = [empty_cache(self.graph, name, rows, length) for name in self.past_names]
            return (yield from self._ask(self.sequences, 0))
        logits, hidden, *caches = results
        if self.hidden:
            self.before.append(self._spread(hidden))
        own = [self._spread(x) for x in caches[: 2 * self.layers]]
        if self.extra.count > 0:
            missing = [(0, 0), (0, 0), (0, self.extra.max_length - own[0].shape[2]), (0, 0)]
            own = [np.pad(x, missing) for x in own]
        self.caches = own
        self.across = [self._spread(x) for x in caches[2 * self.layers :]]
        return last_logits(logits, len(self.sequences))

    def after(self, sequences: np.ndarray, order: np.ndarray) -> Logits:
        self.caches = [cache[order] for cache in self.caches]
        past = sequences.shape[1] - 1
        return (yield from self._ask(sequences if self.whole else sequences[:, -1:], past))

    def _ask(self, ids: np.ndarray, past: int) -> Logits:
        inputs = [ids, *self.before, *self.caches, *self.across, *self.extra.feeds(past)]
        logits, *results = yield from self.decoder(*inputs)
        self.caches = list(results[: 2 * self.layers])
        self.others.append(results[2 * self.layers :])
        return last_logits(logits, len(ids))
