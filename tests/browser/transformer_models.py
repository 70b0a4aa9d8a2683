"""Folders of small language models, as transformers.js loads them: an encoder, and a decoder with a cache of keys."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests.core.models import model, node

WORDS = [
    *("a", "bird", "cat", "dog", "eats", "fish", "in", "likes", "little", "of", "old", "on", "purple", "river", "runs"),
    *("sees", "sings", "slow", "small", "the", "under", "warm"),
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WIDTH, HEADS, SIZE, LONGEST = 16, 2, 8, 64
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def folders() -> dict[str, bytes]:
    """The files of both models by path: ``encoder/…`` and ``decoder/…``."""
    vocabulary = len(SPECIAL) + len(WORDS)
    encoder = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": WIDTH, "vocab_size": vocabulary}
    decoder = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_head": HEADS,
        "n_layer": 1,
        "n_embd": WIDTH,
        "vocab_size": vocabulary,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "pad_token_id": 0,
    }
    files = {
        "encoder/config.json": encoder,
        "decoder/config.json": decoder,
        "decoder/generation_config.json": {"eos_token_id": 3, "pad_token_id": 0},
        "encoder/tokenizer.json": _tokenizer([_special(2), _sequence(), _special(3)]),
        "decoder/tokenizer.json": _tokenizer([_sequence()]),
    }
    settings = {"tokenizer_class": "PreTrainedTokenizer", "model_max_length": LONGEST, "pad_token": "[PAD]"}
    settings |= {"unk_token": "[UNK]", "eos_token": "[SEP]"}
    files |= {f"{name}/tokenizer_config.json": settings for name in ("encoder", "decoder")}
    models = {"encoder": _encoder(vocabulary), "decoder": _decoder(vocabulary)}
    return {
        **{path: json.dumps(content).encode() for path, content in files.items()},
        **{f"{name}/onnx/model.onnx": made.SerializeToString() for name, made in models.items()},
    }


def _special(number: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": SPECIAL[number], "type_id": 0}}


def _sequence() -> dict[str, Any]:
    return {"Sequence": {"id": "A", "type_id": 0}}


def _tokenizer(single: list[dict[str, Any]]) -> dict[str, Any]:
    words = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, **flags} for i, text in enumerate(SPECIAL)],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single,
            "special_tokens": {text: {"id": text, "ids": [i], "tokens": [text]} for i, text in enumerate(SPECIAL)},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": words,
        },
    }


def _weights(*names: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {name: rng.normal(0, 0.4, (WIDTH, WIDTH)).astype(np.float32) for name in names}


def _table(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (rows, WIDTH)).astype(np.float32)


def _encoder(vocabulary: int) -> onnx.ModelProto:
    constants = {
        **_weights("wq", "wk", "wv"),
        "words": _table(vocabulary, 1),
        "types": _table(2, 2),
        "one": np.float32(1),
        "low": np.float32(1e4),
        "middle": np.array([1]),
        "gain": np.ones(WIDTH, np.float32),
    }
    nodes = [
        node("Gather", ["words", "input_ids"], ["word"]),
        node("Gather", ["types", "token_type_ids"], ["type"]),
        node("Add", ["word", "type"], ["x"]),
        *(node("MatMul", ["x", f"w{name}"], [name]) for name in "qkv"),
        node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["q", "turned"], ["products"]),
        node("Cast", ["attention_mask"], ["seen"], to=FLOAT),
        node("Sub", ["seen", "one"], ["hidden"]),
        node("Mul", ["hidden", "low"], ["lowered"]),
        node("Unsqueeze", ["lowered", "middle"], ["mask"]),
        node("Add", ["products", "mask"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["context"]),
        node("Add", ["x", "context"], ["sum"]),
        node("LayerNormalization", ["sum", "gain"], ["last_hidden_state"], axis=-1),
    ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [(name, INT64, ["batch_size", "length"]) for name in names]
    return model(nodes, inputs, [("last_hidden_state", FLOAT, ["batch_size", "length", WIDTH])], constants, opset=17)


def _decoder(vocabulary: int) -> onnx.ModelProto:
    words = _table(vocabulary, 1)
    constants = {
        **_weights("wq", "wk", "wv"),
        "words": words,
        "scoring": np.ascontiguousarray(words.T),
        "places": _table(LONGEST, 3),
        "heads": np.array([0, 0, HEADS, SIZE]),
        "flat": np.array([0, 0, WIDTH]),
        "one": np.float32(1),
        "low": np.float32(1e4),
        "scale": np.float32(SIZE**-0.5),
        "rows": np.array([0]),
    }
    past = {name: f"past_key_values.0.{name}" for name in ("key", "value")}
    present = {name: f"present.0.{name}" for name in ("key", "value")}
    nodes = [
        node("Gather", ["words", "input_ids"], ["word"]),
        node("Gather", ["places", "position_ids"], ["place"]),
        node("Add", ["word", "place"], ["x"]),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}_all"]),
            node("Reshape", [f"{name}_all", "heads"], [f"{name}_split"]),
            node("Transpose", [f"{name}_split"], [f"{name}_new"], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", [past["key"], "k_new"], [present["key"]], axis=2),
        node("Concat", [past["value"], "v_new"], [present["value"]], axis=2),
        node("Transpose", [present["key"]], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q_new", "turned"], ["products"]),
        node("Mul", ["products", "scale"], ["scaled"]),
        # A row sees the columns up to its own: the last rows of a triangle.
        node("Shape", ["scaled"], ["new"], start=2, end=3),
        node("Shape", ["scaled"], ["all"], start=3, end=4),
        node("Concat", ["all", "all"], ["square"], axis=0),
        node("Expand", ["one", "square"], ["ones"]),
        node("Trilu", ["ones"], ["triangle"], upper=0),
        node("Sub", ["all", "new"], ["first"]),
        node("Slice", ["triangle", "first", "all", "rows"], ["seen"]),
        node("Sub", ["seen", "one"], ["hidden"]),
        node("Mul", ["hidden", "low"], ["mask"]),
        node("Add", ["scaled", "mask"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", present["value"]], ["context"]),
        node("Transpose", ["context"], ["joined"], perm=[0, 2, 1, 3]),
        node("Reshape", ["joined", "flat"], ["mixed"]),
        node("Add", ["x", "mixed"], ["y"]),
        node("MatMul", ["y", "scoring"], ["logits"]),
    ]
    inputs = [
        ("input_ids", INT64, ["batch_size", "length"]),
        ("attention_mask", INT64, ["batch_size", "total"]),
        ("position_ids", INT64, ["batch_size", "length"]),
        *((name, FLOAT, ["batch_size", HEADS, "past", SIZE]) for name in past.values()),
    ]
    outputs = [
        ("logits", FLOAT, ["batch_size", "length", vocabulary]),
        *((name, FLOAT, ["batch_size", HEADS, "total", SIZE]) for name in present.values()),
    ]
    return model(nodes, inputs, outputs, constants, opset=17)
