from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

import onnxlet

# By the tokenizers library, 0.22, with the same tokenizer.json.
TOKENS = {
    "": [101, 102],
    "Hello, World!": [101, 7592, 1010, 2088, 999, 102],
    "İstanbul ΑΣ ß": [101, 9960, 1155, 29733, 1096, 102],
    "emoji 😀 test": [101, 7861, 29147, 2072, 100, 3231, 102],
    "zero\u200bwidth": [101, 5717, 9148, 11927, 2232, 102],
    "한국어 텍스트": [
        101, 1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008, 1467, 30009, 30020, 29997, 30017, 30003, 30017, 102,
    ],
    "I paid $5.00 (50%) for `code`": [
        101, 1045, 3825, 1002, 1019, 1012, 4002, 1006, 2753, 1003, 1007, 2005, 1036, 3642, 1036, 102,
    ],
    "Ça va très bien, 東京!": [101, 6187, 12436, 24403, 29316, 1010, 1879, 1755, 999, 102],
    "x" * 101: [101, 100, 102],
}  # fmt: skip


@pytest.fixture
def search(page_module, pretrained):
    module = page_module("search")
    folder = pretrained("minilm")
    session = onnxlet.InferenceSession(folder / "model.onnx")
    module.start(session, json.loads((folder / "tokenizer.json").read_text("utf-8")))
    yield module
    session.close()


def test_tokens(search):
    tokenizer = search.state["tokenizer"]
    for text, expected in TOKENS.items():
        assert tokenizer.ids(text) == expected, text
    ids, mask = tokenizer.batch(["hello", "hello hello hello"])
    assert ids.shape == mask.shape == (2, 16)
    assert mask.sum(1).tolist() == [3, 5]
    assert ids[0].tolist() == [101, 7592, 102, *[0] * 13]
    assert len(tokenizer.ids("hello " * 500)) == 128


def test_sentences_end_with_marks_and_lines(search):
    assert search.split("One. Two? Three!\nFour\n\n  Five… six 3.5\nOne.") == [
        "One.", "Two?", "Three!", "Four", "Five…", "six 3.5",
    ]  # fmt: skip


def test_the_nearest_in_meaning_comes_first(search):
    text = "The hotel has a bed for the night. The engine of the train failed. Soup was served at noon."
    for query, nearest in [
        ("a place to sleep", "The hotel has a bed for the night."),
        ("trouble on the railway", "The engine of the train failed."),
        ("something to eat", "Soup was served at noon."),
    ]:
        found = json.loads(asyncio.run(search.search(text, query, None)))["found"]
        assert found[0]["sentence"] == nearest
        similarities = [f["similarity"] for f in found]
        assert similarities == sorted(similarities, reverse=True)
        assert all(-1.001 <= s <= 1.001 for s in similarities)


def test_padding_changes_no_meaning(search):
    async def both():
        await search.understand(["A short one."])
        alone = search.state["known"].pop("A short one.")
        await search.understand(
            ["A short one.", "A much longer sentence, with more words than that, and then some more of them."]
        )
        return alone, search.state["known"]["A short one."]

    alone, padded = asyncio.run(both())
    # The weights' activations are quantised by their range in the whole batch, which costs some digits.
    assert float(alone @ padded) > 0.99
    assert float(np.linalg.norm(padded)) == pytest.approx(1, abs=1e-5)
