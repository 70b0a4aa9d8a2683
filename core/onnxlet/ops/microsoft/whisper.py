"""WhisperBeamSearch: speech as text, with times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedError
from ...graph.ir import Graph
from ..activations import softmax
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from .decoders import Body, EncoderDecoder
from .generation import LOWEST, Results, Rules, number, prompt_of, search_beams
from .layers import MICROSOFT

MAX_INITIAL_TIMESTAMP = 50
"""How far from the beginning the first time may be, in its units."""


@dataclass(frozen=True)
class Timestamps:
    """How Whisper writes times between words (Radford et al. 2022; its published decoder's rules)."""

    eos: int
    begin: int
    """The first token that is a time; all after it are times too."""
    never: Sequence[int]
    only_first: Sequence[int]
    """Tokens that may not come after the first time."""

    def apply(self, scores: np.ndarray, sequences: np.ndarray) -> np.ndarray:
        scores = scores.copy()
        times = sequences >= self.begin
        length = sequences.shape[1]
        # Where sampling began: with the first time, or now.
        begun = np.where(times.any(axis=1), times.argmax(axis=1) + 1, length)
        scores[:, list(self.never)] = LOWEST
        scores[np.ix_(begun < length, list(self.only_first))] = LOWEST
        last = times[:, -1]
        before = (begun >= length) | times[:, max(length - 2, 0)]
        # Times come in pairs, but for the first.
        scores[last & before, self.begin :] = LOWEST
        scores[last & ~before, : self.eos] = LOWEST
        # They do not decrease, and the next pair begins later than this one ends.
        latest = np.where(
            times.any(axis=1), sequences[np.arange(len(sequences)), length - 1 - times[:, ::-1].argmax(1)], 0
        )
        earliest = np.where(last & ~before, latest, latest + 1)
        token = np.arange(scores.shape[1])
        early = (token >= self.begin) & (token < earliest[:, None]) & times.any(axis=1, keepdims=True)
        scores[early] = LOWEST
        late = (begun >= length)[:, None] & (token > self.begin + MAX_INITIAL_TIMESTAMP)
        scores[late] = LOWEST
        # A time comes if all of them together are likelier than any word.
        greatest = scores[:, self.begin :].max(axis=1)
        together = np.log(np.exp(scores[:, self.begin :] - greatest[:, None]).sum(axis=1)) + greatest
        scores[together > scores[:, : self.begin].max(axis=1), : self.begin] = LOWEST
        return scores


@op("WhisperBeamSearch", domain=MICROSOFT)
def whisper_beam_search(
    input_ids: np.ndarray,
    max_length: np.ndarray,
    min_length: np.ndarray | None,
    num_beams: np.ndarray,
    num_return_sequences: np.ndarray,
    length_penalty: np.ndarray | None = None,
    repetition_penalty: np.ndarray | None = None,
    vocab_mask: np.ndarray | None = None,
    prefix_vocab_mask: np.ndarray | None = None,
    attention_mask: np.ndarray | None = None,
    decoder_input_ids: np.ndarray | None = None,
    logits_processor: np.ndarray | None = None,
    cross_qk_layer_head: np.ndarray | None = None,
    extra_decoding_ids: np.ndarray | None = None,
    temperature: np.ndarray | None = None,
    *,
    beginning_timestamp_token_id: int | None = None,
    decoder: Body,
    decoder_output_cross_qk: int = 0,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: Body | None = None,
    eos_token_id: int,
    init_decoder: Body | None = None,
    model_type: int = 2,
    no_repeat_ngram_size: int = 0,
    no_speech_token_id: int = -1,
    no_timestamps_token_id: int | None = None,
    pad_token_id: int,
    start_of_lm_token_id: int | None = None,
    transcribe_token_id: int | None = None,
    translate_token_id: int | None = None,
    vocab_size: int = -1,
    output_types: Sequence[np.dtype | None],
    graphs: Mapping[str, Graph],
) -> Results:
    """BeamSearch of what a spectrum says; also how the decoder looked at it (batch, returned, layers and heads, steps,
    frames), and the probability that nothing is said."""
    if extra_decoding_ids is not None and extra_decoding_ids.size:
        raise UnsupportedError("WhisperBeamSearch with extra_decoding_ids is not implemented")
    longest, beams = number(max_length, 0, "max_length"), number(num_beams, 1, "num_beams")
    prompt = prompt_of(decoder_input_ids, input_ids, decoder_start_token_id)
    bodies = {"decoder": decoder, "encoder": encoder}
    model = EncoderDecoder(bodies, graphs, [input_ids, prompt], None, prompt, beams, longest)
    times = None
    if number(logits_processor, 0, "logits_processor") == 1:
        if beginning_timestamp_token_id is None:
            raise ValueError("logits_processor 1 needs beginning_timestamp_token_id")
        never = [t for t in (no_timestamps_token_id, start_of_lm_token_id) if t is not None]
        first = [t for t in (decoder_start_token_id, translate_token_id, transcribe_token_id) if t is not None]
        times = Timestamps(eos_token_id, beginning_timestamp_token_id, never, [t for t in first if t >= 0]).apply
    rules = Rules.of(
        eos_token_id, min_length, repetition_penalty, no_repeat_ngram_size, vocab_mask, prefix_vocab_mask,
        temperature=number(temperature, 1.0, "temperature"), more=times,
    )  # fmt: skip
    found = yield from search_beams(
        model, rules, beams, num_return_sequences, longest, length_penalty, early_stopping, pad_token_id, vocab_size
    )
    dtype = next((t for t in output_types[1:3] if t is not None), np.dtype(np.float32))
    looked = None
    if decoder_output_cross_qk:
        looked = along_paths(model.others, found.paths, int(model.complete), cross_qk_layer_head)
    silence = None
    if no_speech_token_id >= 0:
        silence = narrow(softmax(found.first)[:, no_speech_token_id], dtype)
    return found.sequences, narrow(found.scores, dtype), narrow(found.steps, dtype), looked, silence


def along_paths(
    recorded: Sequence[Sequence[np.ndarray]], paths: list[list[np.ndarray]], skipped: int, layer_head: np.ndarray | None
) -> np.ndarray:
    """What each layer gave (rows, heads, 1, frames) at each step, along the paths of sequences through the rows:
    (batch, returned, layers and heads, steps, frames), zero after a sequence's end.

    Nothing was recorded in the first `skipped` steps of the paths.
    """
    steps = np.stack([np.stack([to_float32(layer)[:, :, 0] for layer in layers], axis=1) for layers in recorded])
    _, rows, layers, heads, frames = steps.shape
    if layer_head is None:
        steps = steps.reshape(len(steps), rows, layers * heads, frames)
    else:
        steps = steps[:, :, layer_head[:, 0], layer_head[:, 1]]
    result = np.zeros((len(paths), len(paths[0]), steps.shape[2], len(steps), frames), np.float32)
    for b, of_batch in enumerate(paths):
        for r, path in enumerate(of_batch):
            own = path[skipped:]
            result[b, r, :, : len(own)] = steps[np.arange(len(own)), own].swapaxes(0, 1)
    return result
