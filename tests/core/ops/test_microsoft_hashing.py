import numpy as np
import pytest

from tests.core.ops.calling import call, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("ends", [None, 0, 1])
def test_n_gram_hash_mapping(dtype, past, ends):
    numbers = Numbers()
    ids = numbers.ints(0, 6, 3, 9, dtype=dtype)
    tables = numbers.ints(1, 2**31 - 1, 4, dtype=dtype), of(dtype, [101, 103, 107, 109, 113, 127])
    before = numbers.ints(0, 6, 3, 3, dtype=dtype) if past else None
    eos = None if ends is None else of(dtype, 2)
    segments = numbers.ints(0, 2, 3, 9, dtype="int32")
    options = {"domain": MICROSOFT, "max_ngram_size": 4, "n_head_per_ngram": 2, "pad_id": 5, "reset_on_eos": ends or 0}
    for extra in ((), (None,), (segments,)):
        agrees("NGramHashMapping", 1, ids, *tables, before, None, eos, *extra, outputs=2, **options)
    offsets = of(dtype, [0, 101, 204, 311, 420, 533])
    agrees("NGramHashMapping", 1, ids, *tables, before, offsets, eos, outputs=2, **options)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("ends", [None, 0, 1])
def test_varlen_n_gram_hash_mapping(dtype, past, ends):
    numbers = Numbers()
    ids, starts = numbers.ints(0, 6, 12, dtype=dtype), of("int32", [0, 1, 8, 12])
    tables = numbers.ints(1, 2**31 - 1, 3, dtype=dtype), of(dtype, [101, 103, 107, 109])
    before = numbers.ints(0, 6, 3, 2, dtype=dtype) if past else None
    eos = None if ends is None else of(dtype, 2)
    segments, earlier = numbers.ints(0, 2, 12, dtype="int32"), numbers.ints(0, 2, 3, 2, dtype="int32")
    options = {"domain": MICROSOFT, "max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 5, "reset_on_eos": ends or 0}
    name = "VarlenNGramHashMapping", 1
    agrees(*name, ids, *tables, starts, before, None, eos, outputs=2, **options)
    agrees(*name, ids, *tables, starts, before, of(dtype, [1, 2, 3, 4]), eos, segments, outputs=3, **options)
    agrees(*name, ids, *tables, starts, before, None, eos, segments, earlier if past else None, outputs=3, **options)
    capture = of("int32", [3, 2, -1])
    agrees(
        *name, ids, *tables, starts, before, None, eos, segments, None, capture,
        outputs=4, state_update_capacity=4, **options,
    )  # fmt: skip


def test_chunks_give_what_the_whole_gives():
    numbers = Numbers()
    ids, tables = numbers.ints(0, 4, 2, 10), (numbers.ints(1, 1000, 3), of("int64", [11, 13]))
    options = {"domain": MICROSOFT, "max_ngram_size": 3, "n_head_per_ngram": 1, "pad_id": 0, "reset_on_eos": 1}
    eos = of("int64", 3)
    whole, last = call("NGramHashMapping", 1, ids, *tables, None, None, eos, outputs=2, **options)
    first, state = call("NGramHashMapping", 1, ids[:, :4], *tables, None, None, eos, outputs=2, **options)
    second, state = call("NGramHashMapping", 1, ids[:, 4:], *tables, state, None, eos, outputs=2, **options)
    same(np.concatenate([first, second], axis=1), whole)
    same(state, last)


def test_what_does_not_fit_is_said():
    ids, multipliers, sizes = np.zeros((1, 2), np.int64), np.ones(2, np.int64), np.ones(1, np.int64)
    options = {"domain": MICROSOFT, "n_head_per_ngram": 1, "pad_id": 0}
    with pytest.raises(ValueError, match="need 3 multipliers and 2 vocabulary sizes, not 2 and 1"):
        call("NGramHashMapping", 1, ids, multipliers, sizes, max_ngram_size=3, **options)
    with pytest.raises(ValueError, match="must be positive"):
        call("NGramHashMapping", 1, ids, multipliers, 0 * sizes, max_ngram_size=2, **options)
    with pytest.raises(ValueError, match="max_ngram_size is 1"):
        call("NGramHashMapping", 1, ids, multipliers, sizes, max_ngram_size=1, **options)
    with pytest.raises(ValueError, match=r"begin and end at \[0, 3\] are not those of 2 tokens"):
        call("VarlenNGramHashMapping", 1, ids[0], multipliers, sizes, of("int32", [0, 3]), max_ngram_size=2, **options)
