"""Counting n-grams and splitting texts into tokens: TfIdfVectorizer, Tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.ir import STRING
from .ml.scores import prepared
from .regex import Regex, compiled
from .registry import op


@dataclass(frozen=True, slots=True)
class Pool:
    """N-grams in a form that whole matrices can be looked up in.

    `ids` numbers the tokens. For each length n, `levels` holds n sorted tables: level j knows the n-grams' first
    j + 1 tokens by (row of the table before) * vocabulary + token; `places` gives the n-gram's place in the pool for
    each row of the last table.
    """

    ids: dict[Any, int]
    levels: dict[int, list[np.ndarray]]
    places: dict[int, np.ndarray]

    def find(self, grams: Sequence[np.ndarray]) -> np.ndarray:
        """The places in the pool of n-grams, given as n arrays of token numbers; -1 for those that are not there."""
        n = len(grams)
        row = np.zeros(grams[0].shape, np.int64)
        known = np.ones(grams[0].shape, bool)
        for table, tokens in zip(self.levels[n], grams, strict=True):
            key = row * max(len(self.ids), 1) + tokens
            row = np.minimum(np.searchsorted(table, key), len(table) - 1)
            known &= (tokens >= 0) & (table[row] == key)
        return np.where(known, self.places[n][row], -1)


def build_pool(tokens: Sequence[Any], ngram_counts: Sequence[int]) -> Pool:
    """The pool from the list of all tokens, in which n-grams of length n start at ``ngram_counts[n - 1]``."""
    ids: dict[Any, int] = {}
    numbers = np.array([ids.setdefault(t, len(ids)) for t in tokens], np.int64)
    ends = [*ngram_counts[1:], len(tokens)]
    levels: dict[int, list[np.ndarray]] = {}
    places: dict[int, np.ndarray] = {}
    place = 0
    for n, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(tokens) or (end - start) % n:
            raise ValueError(f"ngram_counts {list(ngram_counts)} do not divide a pool of {len(tokens)} tokens")
        grams = numbers[start:end].reshape(-1, n)
        if not len(grams):
            continue
        row = np.zeros(len(grams), np.int64)
        tables = []
        for j in range(n):
            table, row = np.unique(row * len(ids) + grams[:, j], return_inverse=True)
            tables.append(table)
        levels[n] = tables
        places[n] = np.zeros(len(tables[-1]), np.int64)
        places[n][row] = place + np.arange(len(grams))
        place += len(grams)
    return Pool(ids, levels, places)


@op("TfIdfVectorizer", since=9)
def tfidf_vectorizer(
    x: np.ndarray,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
):
    """Counts of the pool's n-grams in each row, with up to `max_skip_count` tokens left out between their parts."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"mode is {mode!r}; TF, IDF and TFIDF are known")
    pool = prepared(build_pool, pool_strings or pool_int64s or (), ngram_counts)
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    ids = pool.ids
    numbers = np.fromiter((ids.get(t, -1) for t in rows.reshape(-1).tolist()), np.int64, rows.size).reshape(rows.shape)
    columns = np.asarray(ngram_indexes, np.int64)
    width = int(columns.max(initial=-1)) + 1
    counts = np.zeros(len(rows) * width, np.int64)
    for n in pool.levels:
        if not min_gram_length <= n <= max_gram_length:
            continue
        for skip in range(max_skip_count + 1 if n > 1 else 1):
            span = (n - 1) * (skip + 1) + 1
            positions = rows.shape[1] - span + 1
            if positions < 1:
                break
            places = pool.find([numbers[:, j * (skip + 1) : j * (skip + 1) + positions] for j in range(n)])
            row, column = np.nonzero(places >= 0)
            cells = row * width + columns[places[row, column]]
            counts += np.bincount(cells, minlength=len(counts))
    result = counts.reshape(len(rows), width).astype(np.float32)
    if mode != "TF":
        scale = np.ones(width, np.float32)
        if weights:
            scale[columns] = weights
        result = (result if mode == "TFIDF" else (result > 0)) * scale
    return result.reshape(-1) if x.ndim < 2 else result


START_MARK, END_MARK = "\x02", "\x03"


def between(text: str, separator: Regex) -> list[str]:
    """The parts of a text between the matches of a separator."""
    edges = [edge for span in separator.spans(text) for edge in span]
    return [text[i:j] for i, j in zip([0, *edges[1::2]], [*edges[::2], len(text)], strict=True)]


def split_by(text: str, separators: Sequence[Regex]) -> list[str]:
    """The parts that the separators, applied one after the other, leave of a text."""
    parts = [text]
    for separator in separators:
        parts = [piece for part in parts for piece in between(part, separator)]
    return parts


@op("Tokenizer", domain="com.microsoft")
def tokenizer(
    x: np.ndarray,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
):
    """Tokens of each text along a new last axis, padded to the longest.

    Tokens are the matches of `tokenexp`, or what lies between matches of the `separators`; one empty separator makes
    each character a token. `mark` puts the characters 0x02 and 0x03 around each text's tokens.
    """
    if mincharnum < 1:
        raise ValueError(f"mincharnum is {mincharnum}; it must be positive")
    if tokenexp:
        pattern = compiled(tokenexp)
        tokenize = lambda text: [text[start:end] for start, end in pattern.spans(text)]  # noqa: E731
    elif separators and list(separators) == [""]:
        tokenize = list
    elif separators:
        patterns = [compiled(s) for s in separators]
        tokenize = lambda text: split_by(text, patterns)  # noqa: E731
    else:
        raise ValueError("either tokenexp or separators must be given")
    texts = [[t for t in tokenize(text) if len(t) >= mincharnum] for text in x.reshape(-1).tolist()]
    if mark:
        texts = [[START_MARK, *tokens, END_MARK] for tokens in texts]
    longest = max(map(len, texts), default=0)
    flat = [token for tokens in texts for token in (*tokens, *[pad_value] * (longest - len(tokens)))]
    result = np.empty(len(flat), STRING)
    result[:] = flat
    return result.reshape(*x.shape, longest)
