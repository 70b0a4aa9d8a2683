"""Text generation against onnxruntime, with small models of random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxlet
from onnxlet.graph.infer import infer_node
from onnxlet.graph.ir import Node, TensorType
from tests.core.ops.calling import of
from tests.core.ops.language_models import HEADS, SIZE, VOCABULARY, decoder, encoder, gpt, gpt_with_buffers, searching

EOS, PAD, START = 7, 0, 5
TOKENS = {"eos_token_id": EOS, "pad_token_id": PAD}
PROMPT = of("int32", [[3, 4, 9], [PAD, 2, 6], [PAD, PAD, 1]])


def one(value: Any, dtype: Any = np.int32) -> np.ndarray:
    return np.array([value], dtype)


def results(operator: str, inputs: dict[str, Any], outputs: int, **attributes: Any) -> tuple[list[Any], list[Any]]:
    """What we and what onnxruntime give."""
    model = searching(operator, inputs, outputs, **attributes)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return onnxlet.InferenceSession(model).run(None, feeds), list(peer.run(None, feeds))


def body_results(graph: onnx.GraphProto, names: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime gives for a sub-graph on its own."""
    opsets = [onnx.helper.make_opsetid("", 17)]
    body = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    peer = onnxruntime.InferenceSession(body, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in peer.run(names, feeds)]


def same_sequences(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Onnxruntime leaves what comes after the last step as it was in memory; here it is padding."""
    steps = min(int(np.flatnonzero((ours != PAD).any(axis=0)).max()) + 2, ours.shape[1])
    np.testing.assert_array_equal(ours[:, :steps], theirs[:, :steps])


def greedy_inputs(**more: Any) -> dict[str, Any]:
    names = ("min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
    return {"input_ids": PROMPT, "max_length": one(12), **dict.fromkeys(names), **more}


MASKS = np.random.default_rng(0).integers(0, 2, (3, VOCABULARY)).astype(np.int32)
VARIANTS: list[dict[str, Any]] = [
    {},
    {"min_length": one(9)},
    {"repetition_penalty": one(1.7, np.float32)},
    {"vocab_mask": of("int32", [1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1])},
    {"prefix_vocab_mask": MASKS},
    {"attention_mask": of("int32", [[1, 1, 1], [0, 0, 1], [0, 1, 1]])},
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("given", VARIANTS)
def test_greedy_search(given: dict[str, Any], seed: int):
    (ours,), (theirs,) = results("GreedySearch", greedy_inputs(**given), 1, decoder=gpt(seed), **TOKENS)
    same_sequences(ours, theirs)


def test_another_decoder_for_the_prompt():
    attributes = {"decoder": gpt(0), "init_decoder": gpt(1), "no_repeat_ngram_size": 2, **TOKENS}
    (ours,), (theirs,) = results("GreedySearch", greedy_inputs(), 1, **attributes)
    same_sequences(ours, theirs)


@pytest.mark.parametrize("attributes", [{}, {"custom": 1}, {"temperature": 0.5}, {"no_repeat_ngram_size": 1}])
def test_sampling(attributes: dict[str, Any]):
    """With so small a set of tokens to choose from that only one is left."""
    inputs = greedy_inputs() | {"presence_mask": None, "seed": one(3)}
    options = {"top_p": 0.01, "min_tokens_to_keep": 1, "filter_value": -1e30, **attributes, **TOKENS}
    for seed in range(2):
        ours, theirs = results("Sampling", inputs, 1, decoder=gpt(seed), **options)
        same_sequences(ours[0], theirs[0])


@pytest.mark.parametrize("custom", [0, 1])
@pytest.mark.parametrize("top_p", [0.5, 0.9])
def test_what_sampling_leaves_out(custom: int, top_p: float):
    """All but the likeliest tokens that together have the probability `top_p`, worked out one token after the other."""
    inputs = greedy_inputs(max_length=one(4)) | {"presence_mask": MASKS, "seed": one(3)}
    attributes = {"top_p": top_p, "presence_penalty": 0.7, "custom": custom, "temperature": 0.8, **TOKENS}
    model = searching("Sampling", inputs, 2, decoder=gpt(), **attributes)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    sequences, scores = onnxlet.InferenceSession(model).run(None, feeds)
    words = PROMPT != PAD
    positions = np.where(words, np.cumsum(words, axis=1) - 1, 0).astype(np.int32)
    cache = np.zeros((2, 3, HEADS, 0, SIZE), np.float32)
    given = {"input_ids": PROMPT, "position_ids": positions, "attention_mask": words.astype(np.int32), "past_0": cache}
    logits = body_results(gpt(), ["logits"], given)[0][:, -1] / np.float32(0.8) - np.float32(0.7) * MASKS
    for row, (all_logits, kept) in enumerate(zip(logits, scores, strict=True)):
        probabilities = np.exp(all_logits) / np.exp(all_logits).sum()
        total, chosen = 0.0, []
        for token in np.argsort(-probabilities):
            if total > top_p or (not custom and total >= top_p):
                break
            chosen.append(token)
            total += probabilities[token]
        np.testing.assert_allclose(kept[chosen], all_logits[chosen], rtol=1e-4, atol=1e-4)
        assert (np.delete(kept, chosen) == np.float32(-1e20)).all()
        assert sequences[row, 3] in chosen or EOS in chosen


def test_sampling_is_reproducible_and_follows_the_probabilities():
    prompt = np.tile(PROMPT[:1], (400, 1))
    inputs = greedy_inputs(input_ids=prompt, max_length=one(4)) | {"presence_mask": None, "seed": one(3)}
    model = searching("Sampling", inputs, 2, decoder=gpt(), top_p=1.0, **TOKENS)
    session = onnxlet.InferenceSession(model)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    sequences, scores = session.run(None, feeds)
    np.testing.assert_array_equal(session.run(None, feeds)[0], sequences)
    probabilities = np.exp(scores[0].astype(np.float64))
    probabilities /= probabilities.sum()
    probabilities[PAD] += probabilities[EOS]  # which the padding takes the place of
    probabilities[EOS] = 0
    drawn = np.bincount(sequences[:, -1], minlength=VOCABULARY) / 400
    np.testing.assert_allclose(drawn, probabilities, atol=4 * np.sqrt(0.25 / 400))


def beam_inputs(**more: Any) -> dict[str, Any]:
    names = ("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
    own = {"num_beams": one(3), "num_return_sequences": one(2)}
    start = {
        "input_ids": PROMPT,
        "max_length": one(10),
        "min_length": one(0),
        **own,
        "length_penalty": one(1, np.float32),
    }
    return {**start, **dict.fromkeys((*names, "decoder_input_ids", "logits_processor")), **more}


def agree(ours: list[Any], theirs: list[Any]) -> None:
    """Onnxruntime leaves what comes after the last step as it is in memory."""
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-4, atol=1e-4)
    steps = np.flatnonzero(ours[2].any(axis=(1, 2, 3))).max() + 1
    np.testing.assert_allclose(ours[2][:steps], theirs[2][:steps], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "given",
    [
        *VARIANTS,
        {"length_penalty": one(2.0, np.float32)},
        {"num_beams": one(1), "num_return_sequences": one(1)},
        {"num_beams": one(4), "num_return_sequences": one(4)},
    ],
)
def test_beam_search(given: dict[str, Any], seed: int):
    agree(*results("BeamSearch", beam_inputs(**given), 3, decoder=gpt(seed), **TOKENS))


@pytest.mark.parametrize("whence", [False, True])
def test_decoders_over_buffers(whence: bool):
    """They find what the same decoder with a growing cache finds, here and in onnxruntime."""
    growing, shared = gpt_with_buffers(whence=whence)
    (ours,), (theirs,) = results("GreedySearch", greedy_inputs(), 1, decoder=growing, **TOKENS)
    same_sequences(ours, theirs)
    inputs = {name: value for name, value in greedy_inputs().items() if value is not None}
    model = searching("GreedySearch", greedy_inputs(), 1, decoder=shared, **TOKENS)
    np.testing.assert_array_equal(onnxlet.InferenceSession(model).run(None, inputs)[0], ours)
    ours, theirs = results("BeamSearch", beam_inputs(), 3, decoder=growing, **TOKENS)
    agree(ours, theirs)
    inputs = {name: value for name, value in beam_inputs().items() if value is not None}
    model = searching("BeamSearch", beam_inputs(), 3, decoder=shared, **TOKENS)
    got = onnxlet.InferenceSession(model).run(None, inputs)
    np.testing.assert_array_equal(got[0], ours[0])
    np.testing.assert_allclose(got[2], ours[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_beam_search_that_stops_early(seed: int):
    attributes = {"early_stopping": 1, "no_repeat_ngram_size": 2, "init_decoder": gpt(5)}
    agree(*results("BeamSearch", beam_inputs(), 3, decoder=gpt(seed), **attributes, **TOKENS))


@pytest.mark.parametrize("first_step", [True, False])
@pytest.mark.parametrize("tokens", [1, "all"])
@pytest.mark.parametrize("given", [{}, {"attention_mask": of("int32", [[1, 1, 0], [0, 0, 1], [0, 1, 1]])}])
def test_encoder_and_decoder(first_step: bool, tokens: Any, given: dict[str, Any]):
    graphs = {"encoder": encoder(first_step), "decoder": decoder(first_step, tokens=tokens)}
    attributes = {"model_type": 1, "decoder_start_token_id": START, **graphs, **TOKENS}
    agree(*results("BeamSearch", beam_inputs(**given), 3, **attributes))


FEATURES = np.random.default_rng(1).normal(size=(2, 4, 5)).astype(np.float32)
WHISPER = {"encoder": encoder(True, features=True), "decoder": decoder(False, mask=False), **TOKENS}
TIMES = {
    "beginning_timestamp_token_id": 8, "no_timestamps_token_id": 1, "start_of_lm_token_id": 2, "translate_token_id": 3,
    "transcribe_token_id": 4, "no_speech_token_id": 6,
}  # fmt: skip


def whisper_inputs(**more: Any) -> dict[str, Any]:
    prompt = of("int32", [[START, 3], [START, 4]])
    after = dict.fromkeys(("cross_qk_layer_head", "extra_decoding_ids", "temperature"))
    return beam_inputs(input_ids=FEATURES, decoder_input_ids=prompt) | after | more


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"decoder_input_ids": None},
        {"logits_processor": one(1)},
        {
            "input_ids": FEATURES[1:],
            "decoder_input_ids": of("int32", [[START]]),
            **{"logits_processor": one(1), "num_beams": one(1), "num_return_sequences": one(1), "max_length": one(20)},
        },
        {"temperature": one(0.6, np.float32), "max_length": one(14)},
    ],
)
def test_whisper(given: dict[str, Any]):
    attributes = {"decoder_start_token_id": START, **WHISPER, **TIMES}
    agree(*results("WhisperBeamSearch", whisper_inputs(**given), 3, **attributes))


def test_the_probability_of_silence():
    """That of the token after the prompt, from the encoder's logits; onnxruntime's CPU leaves it out."""
    inputs = whisper_inputs()
    model = searching("WhisperBeamSearch", inputs, 5, decoder_start_token_id=START, **WHISPER, **TIMES)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    (silence,) = onnxlet.InferenceSession(model).run(["y4"], feeds)
    given = {"encoder_input_ids": FEATURES, "decoder_input_ids": inputs["decoder_input_ids"]}
    (logits,) = body_results(WHISPER["encoder"], ["logits"], given)
    weights = np.exp(logits[:, -1])
    np.testing.assert_allclose(silence, (weights / weights.sum(axis=1, keepdims=True))[:, 6], rtol=1e-4)


@pytest.mark.parametrize("pairs", [None, [[0, 1]], [[0, 1], [0, 0]]])
def test_how_the_decoder_looked(pairs: Any):
    """The decoder's products for the tokens of each sequence that is returned, asked for with that sequence alone."""
    heads = None if pairs is None else of("int32", pairs)
    inputs = whisper_inputs(cross_qk_layer_head=heads)
    graph = decoder(False, mask=False, looks=True)
    attributes = {**WHISPER, "decoder": graph, "decoder_output_cross_qk": 1}
    model = searching("WhisperBeamSearch", inputs, 4, **attributes)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    sequences, _, steps, looks = onnxlet.InferenceSession(model).run(None, feeds)
    ran = np.flatnonzero(steps.any(axis=(1, 2, 3))).max()
    assert looks.shape == (2, 2, HEADS if pairs is None else len(pairs), ran, 5)
    given = {"encoder_input_ids": FEATURES, "decoder_input_ids": inputs["decoder_input_ids"]}
    (across,) = body_results(WHISPER["encoder"], ["present_key_cross_0"], given)
    empty = np.zeros((1, HEADS, 0, SIZE), np.float32)
    for b in range(2):
        for r in range(2):
            for t in range(ran):
                token = sequences[b, r, 2 + t]
                if not looks[b, r, :, t].any():  # after the sequence's end
                    assert token in (PAD, EOS)
                    continue
                fed = {"past_key_self_0": empty, "past_value_self_0": empty, "past_key_cross_0": across[b : b + 1]}
                fed |= {"past_value_cross_0": -across[b : b + 1], "input_ids": of("int32", [[token]])}
                (expected,) = body_results(graph, ["output_cross_qk_0"], fed)
                chosen = expected[0, :, 0] if heads is None else expected[0, heads[:, 1], 0]
                np.testing.assert_allclose(looks[b, r, :, t], chosen, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["GreedySearch", "Sampling", "BeamSearch", "WhisperBeamSearch"])
def test_inference(operator: str):
    """Types and shapes are told from the lengths where these are constants."""
    inputs = {
        "GreedySearch": greedy_inputs(),
        "Sampling": greedy_inputs() | {"presence_mask": None, "seed": one(3)},
        "BeamSearch": beam_inputs(),
        "WhisperBeamSearch": whisper_inputs(),
    }[operator]
    outputs = {"GreedySearch": 1, "Sampling": 2, "BeamSearch": 3, "WhisperBeamSearch": 5}[operator]
    graphs = {"decoder": gpt()} if outputs < 4 else {**WHISPER, **TIMES}
    model = searching(operator, inputs, outputs, vocab_size=VOCABULARY, **{**graphs, **TOKENS})
    feeds = {name: value for name, value in inputs.items() if value is not None}
    got = onnxlet.InferenceSession(model).run(None, feeds)
    node = Node(
        operator,
        [name if value is not None else "" for name, value in inputs.items()],
        [f"y{i}" for i in range(outputs)],
        {"vocab_size": VOCABULARY},
        "com.microsoft",
    )
    types = [None if v is None else TensorType(v.dtype, v.shape) for v in inputs.values()]
    for found in (infer_node(node, types, list(inputs.values())), infer_node(node, types)):
        for type_, value in zip(found, got, strict=True):
            assert isinstance(type_, TensorType)
            assert type_.shape is not None
            if value is not None:
                assert type_.dtype == value.dtype
                assert all(d in (None, n) for d, n in zip(type_.shape, value.shape, strict=True))
    first = infer_node(node, types, list(inputs.values()))[0]
    assert isinstance(first, TensorType)
    assert first.shape == got[0].shape
