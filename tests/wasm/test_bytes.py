"""Functions of bytes, element by element, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet_wasm.engine import f32

from .test_int8 import TYPES, integers
from .workbench import Workbench

COUNTS = [0, 1, 7, 8, 9, 16, 31, 1000]


@pytest.mark.parametrize("count", COUNTS)
def test_tables(bench: Workbench, count: int) -> None:
    rng = np.random.default_rng(count)
    x, table = integers(rng, "uint8", count), rng.permutation(256).astype(np.uint8)
    y = bench.out((count,), np.uint8)
    bench.call("byte_table", units=count, x=bench.put(x), table=bench.put(table), y=y)
    np.testing.assert_array_equal(bench.get(y), table[x])


@pytest.mark.parametrize("operation", [0, 1])
@pytest.mark.parametrize("types", [("uint8", "uint8", "uint8"), ("int8", "uint8", "int8"), ("int8", "int8", "uint8")])
@pytest.mark.parametrize("count", COUNTS)
def test_pairs(bench: Workbench, count: int, types: tuple[str, str, str], operation: int) -> None:
    rng = np.random.default_rng(count)
    p, q = integers(rng, types[0], count), integers(rng, types[1], count)
    zeros = [integers(rng, t) for t in types]
    scales = rng.uniform(0.01, 0.03, 3).astype(np.float32)
    low, high, shift = np.float32(-2), np.float32(2.5), np.float32(0.25)
    y = bench.out((count,), types[2])
    fields = {
        f"{n}_{what}": f32(v)
        for what, values in (("zero", zeros), ("scale", scales))
        for n, v in zip("pqy", values, strict=True)
    }
    bench.call(
        "byte_pair", units=-(-count // 16), operation=operation, count=count, p=bench.put(p), p_type=TYPES[types[0]],
        q=bench.put(q), q_type=TYPES[types[1]], y=y, y_type=TYPES[types[2]], shift=f32(shift), low=f32(low),
        high=f32(high), **fields,
    )  # fmt: skip
    one, other = (
        (v.astype(np.float32) - z.astype(np.float32)) * s for v, z, s in zip((p, q), zeros[:2], scales[:2], strict=True)
    )
    value = np.clip(one * other if operation else shift + (one + other), low, high)
    limits = np.iinfo(types[2])
    wanted = np.clip(np.rint(value / scales[2]) + zeros[2].astype(np.float32), limits.min, limits.max)
    np.testing.assert_array_equal(bench.get(y), wanted)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 5), (1, 16, 16), (3, 33, 20), (1, 20, 40), (2, 0, 3)], ids=str)
def test_transposes(bench: Workbench, shape: tuple[int, int, int]) -> None:
    x = integers(np.random.default_rng(0), "uint8", *shape)
    count, rows, columns = shape
    y = bench.out((count, columns, rows), np.uint8)
    bench.call("transpose_bytes", units=count * -(-columns // 16), x=bench.put(x), y=y, rows=rows,
               columns=columns)  # fmt: skip
    np.testing.assert_array_equal(bench.get(y), x.transpose(0, 2, 1))
