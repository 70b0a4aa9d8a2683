from typing import Any

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, same
from tests.core.ops.oracle import agrees

MICROSOFT = "com.microsoft"
POOL: dict[str, Any] = {
    "ngram_counts": [0, 4],
    "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 2)])
def test_tfidf(mode, skip, lengths):
    x = i64([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]])
    weights: dict[str, Any] = {} if mode == "TF" else {"weights": [0.5, 1, 2, 3, 4, 5, 6]}
    low, high = lengths
    options = {"min_gram_length": low, "max_gram_length": high, "max_skip_count": skip, "mode": mode}
    agrees("TfIdfVectorizer", 9, x, **options, **weights, **POOL)
    agrees("TfIdfVectorizer", 9, x[1], **options, **weights, **POOL)


def test_tfidf_of_strings():
    words = np.array([["a", "b", "a", "x"]], object)
    y = call(
        "TfIdfVectorizer", 9, words, min_gram_length=1, max_gram_length=2, max_skip_count=1, mode="TF",
        ngram_counts=[0, 2], ngram_indexes=[2, 0, 1, 3], pool_strings=["a", "b", "a", "b", "a", "a"],
    )  # fmt: skip
    same(y, f32([[1, 1, 2, 1]]))  # b; a b; a, twice; a a with b left out


def texts(*values):
    return np.array(values, object)


@pytest.mark.parametrize(
    ("x", "attributes"),
    [
        (texts("ab cd", "x  yz", ""), {"separators": [" "]}),
        (texts("ab cd", "x  yz", ""), {"separators": [" "], "mark": 1, "mincharnum": 2}),
        (texts("a-b,c", "d,e--f"), {"separators": ["-", ","]}),
        (np.array([["ab cd", "xyz"]], object), {"separators": [""]}),
        (np.array([["ab cd", "xyz w"]], object), {"tokenexp": "[a-z]+"}),
    ],
)
def test_tokenizer(x, attributes):
    agrees("Tokenizer", 1, x, domain=MICROSOFT, **{"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes})


def test_tokenizer_counts_characters_not_bytes():
    tokens = call("Tokenizer", 1, texts("é öß"), domain=MICROSOFT, mark=0, mincharnum=2, pad_value="", separators=[" "])
    assert tokens.tolist() == [["öß"]]
    empty = call("Tokenizer", 1, texts(""), domain=MICROSOFT, mark=0, mincharnum=1, pad_value="", tokenexp="x")
    assert empty.shape == (1, 0)
    with pytest.raises(ValueError, match="either tokenexp or separators"):
        call("Tokenizer", 1, texts("a"), domain=MICROSOFT, mark=0, mincharnum=1, pad_value="")
