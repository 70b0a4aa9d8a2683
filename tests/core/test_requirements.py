"""Inputs against an operator's text never reach a kernel: the plan refuses them, whoever would compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxlet

from .models import model, node

F, I64 = np.float32, np.int64


def zeros(*shape: int, dtype: Any = F) -> np.ndarray:
    return np.zeros(shape, dtype)


# Operator, inputs, attributes, outputs, opset, part of the message.
WRONG: list[tuple[str, list[np.ndarray | None], dict[str, Any], int, int, str]] = [
    ("Conv", [zeros(1, 4, 5, 5), zeros(1, 1, 3, 3)], {"group": 4}, 1, 22, "a multiple of 4"),
    ("Conv", [zeros(1, 4, 5, 5), zeros(2, 3, 3, 3)], {}, 1, 22, "the input has 4"),
    ("Conv", [zeros(1, 4, 5, 5), zeros(2, 4, 3, 3), zeros(3)], {}, 1, 22, "bias must have shape [2]"),
    ("Conv", [zeros(1, 4, 5, 5), zeros(2, 4, 3, 3)], {"kernel_shape": [2, 2]}, 1, 22, "kernel_shape"),
    ("ConvTranspose", [zeros(1, 4, 5, 5), zeros(4, 1, 3, 3)], {"group": 3}, 1, 22, "3 group(s)"),
    ("ConvTranspose", [zeros(1, 4, 5, 5), zeros(4, 2, 3, 3), zeros(1)], {}, 1, 22, "bias must have shape [2]"),
    ("LSTM", [zeros(3, 2, 4), zeros(1, 20, 4), zeros(1, 20, 6)], {}, 3, 22, "W must have shape [1, 24, 4]"),
    ("GRU", [zeros(3, 2, 4), zeros(1, 18, 4), zeros(1, 18, 6), zeros(1, 6)], {}, 2, 22, "B must have shape [1, 36]"),
    ("RNN", [zeros(3, 2, 4), zeros(1, 6, 4), zeros(1, 6, 6)], {"direction": "up"}, 2, 22, "direction is 'up'"),
    ("RNN", [zeros(3, 2, 4), zeros(1, 6, 4), zeros(1, 6, 6)], {"hidden_size": 9}, 2, 22, "hidden_size is 9"),
    ("GatherElements", [zeros(2, 3), zeros(3, 3, dtype=I64)], {"axis": 1}, 1, 13, "reach outside"),
    ("TopK", [zeros(6), zeros(2, dtype=I64)], {}, 2, 21, "k must have one element"),
    ("ReverseSequence", [zeros(4, 4), zeros(4, dtype=I64)], {"batch_axis": -1, "time_axis": 1}, 1, 10, "are 0 and 1"),
    ("ReverseSequence", [zeros(4, 3), zeros(4, dtype=I64)], {}, 1, 10, "sequence_lens must have shape [3]"),
    ("TensorScatter", [zeros(2, 1, 4, 5), zeros(2, 1, 1, 3)], {}, 1, 24, "update must have shape [2, 1, 1, 5]"),
    ("TensorScatter", [zeros(2, 4, 5), zeros(2, 4, 5)], {"axis": 0}, 1, 24, "the batch's"),
    ("RotaryEmbedding", [zeros(2, 4, 3, 8), zeros(50, 2), zeros(50, 2), zeros(2, 3, dtype=I64)], {}, 1, 23, "[50, 4]"),
    ("RotaryEmbedding", [zeros(2, 4, 3, 8), zeros(2, 3, 4), zeros(2, 3, 3)], {}, 1, 23, "sin_cache must have shape"),
    ("BitShift", [zeros(3, dtype=np.uint8)] * 2, {"direction": "UP"}, 1, 11, "LEFT, RIGHT are known"),
    ("Gemm", [zeros(2, 3), zeros(3, 4), zeros(4)], {}, 1, 6, "without broadcast"),
    ("CausalConvWithState", [zeros(2, 4, 2), zeros(2, 4, 8)], {}, 2, 27, "weights must have shape [4, 1, 8]"),
    ("CausalConvWithState", [zeros(2, 4, 2), zeros(4, 1, 0)], {}, 2, 27, "weights a length"),
    ("LpPool", [zeros(1, 1, 2)], {"kernel_shape": [2], "p": 0}, 1, 18, "p is 0"),
    ("GlobalLpPool", [zeros(1, 1, 2)], {"p": -1}, 1, 18, "p is -1"),
    ("Dropout", [zeros(3)], {"ratio": float("-inf")}, 1, 7, "ratio is -inf"),
    ("OneHot", [zeros(2), zeros(), zeros(8)], {}, 1, 11, "off and on must have shape [2]"),
    ("OneHot", [zeros(2), zeros(3), zeros(2)], {}, 1, 11, "depth must have one element"),
    ("RoiAlign", [zeros(1, 1, 4, 4), zeros(3, 0), zeros(3, dtype=I64)], {}, 1, 16, "regions must have shape [3, 4]"),
    ("RoiAlign", [zeros(1, 1, 4, 4), zeros(3, 4), zeros(2, dtype=I64)], {}, 1, 16, "indices of images must have shape"),
    ("MaxUnpool", [zeros(1, 1, 2, 2), zeros(1, 1, 2, 1, dtype=I64)], {"kernel_shape": [2, 2]}, 1, 22, "the indices"),
    ("ConstantOfShape", [np.array([2, -1], I64)], {}, 1, 20, "negative dimension"),
    ("AffineGrid", [zeros(2, 2, 3), np.array([2, 1, 3, 3, 3], I64)], {}, 1, 20, "expected [N, 3, 4]"),
    (
        "ConvTranspose",
        [zeros(1, 1, 3, 3), zeros(1, 1, 3, 3)],
        {"strides": [3, 0], "output_shape": [9, 9]},
        1,
        22,
        "strides [3, 0] must be positive",
    ),
    ("AffineGrid", [zeros(2, 2, 3), np.array([3, 1, 3, 3], I64)], {}, 1, 20, "the batch of theta and size"),
    ("ConvTranspose", [zeros(1, 1, 3, 3), zeros(1, 1, 3, 3)], {"output_padding": [0, -1]}, 1, 22, "must be 0 or more"),
    ("ConvTranspose", [zeros(1, 1, 3), zeros(1, 1, 3)], {"output_shape": [-9]}, 1, 22, "a negative size"),
    ("MaxPool", [zeros(1, 1, 4, 4)], {"kernel_shape": [2, 0]}, 1, 22, "kernel_shape [2, 0] must be positive"),
    ("GatherND", [zeros(0, 2, 2), zeros(1, 2, 1, dtype=I64)], {"batch_dims": 1}, 1, 13, "first 1 dimensions of [0, 2"),
    ("GatherND", [zeros(2, 2, 2), zeros(1, 2, 1, dtype=I64)], {"batch_dims": 2}, 1, 13, "first 2 dimensions of [2, 2"),
    ("GatherND", [zeros(2, 3, 2), zeros(2, 1, dtype=I64)], {"batch_dims": 2}, 1, 13, "batch_dims 2 is too many"),
    ("ScatterElements", [zeros(2, 3), zeros(1, 3, dtype=I64), zeros(3)], {}, 1, 18, "updates must have shape [1, 3]"),
    ("ScatterND", [zeros(2, 3), zeros(4, 1, dtype=I64), zeros(4)], {}, 1, 18, "updates must have shape [4, 3]"),
    ("ScatterND", [zeros(2, 3), zeros(4, 3, dtype=I64), zeros(4)], {}, 1, 18, "can't name slices"),
    ("PRelu", [zeros(2, 3), zeros(4, 3)], {}, 1, 16, "can't be broadcast"),
    ("MaxPool", [zeros(1, 1, 4, 4)], {"kernel_shape": [2, 2], "auto_pad": "SOME"}, 1, 22, "auto_pad is 'SOME'"),
    ("GroupNormalization", [zeros(1, 4, 2), zeros(4), zeros(4)], {"num_groups": 3}, 1, 21, "3 groups do not divide"),
    ("Add", [zeros(2), zeros(2, dtype=I64)], {}, 1, 14, "element types must be the same"),
    ("ScatterElements", [zeros(2), zeros(1, dtype=I64), zeros(1, dtype=I64)], {}, 1, 18, "element types must be"),
    ("Gemm", [zeros(2, 3), zeros(3, 4), zeros(1, 1, 4)], {}, 1, 13, "can't be broadcast to the product's shape [2, 4]"),
    ("Tile", [zeros(2, 3), zeros(1, dtype=I64)], {}, 1, 13, "1 repeats for a tensor of rank 2"),
    ("LayerNormalization", [zeros(6, 4), zeros(3, 4)], {}, 1, 17, "scale of shape [3, 4] can't be broadcast"),
    ("InstanceNormalization", [zeros(1, 3, 4), zeros(2), zeros(3)], {}, 1, 22, "scale must have shape [3]"),
    (
        "BatchNormalization",
        [zeros(1, 3, 4), zeros(3), zeros(3), zeros(1), zeros(3)],
        {},
        1,
        15,
        "the length of input 3",
    ),
    ("Clip", [zeros(3), zeros(2)], {}, 1, 13, "min must be a scalar"),
    ("Gelu", [zeros(3)], {"approximate": "some"}, 1, 20, "none, tanh are known"),
    ("DepthToSpace", [zeros(1, 4, 2, 2)], {"blocksize": 2, "mode": "CDR"}, 1, 13, "DCR, CRD are known"),
    ("Add", [zeros(2, 3), zeros(3)], {}, 1, 6, "without broadcast"),
    ("Reshape", [zeros(2, 3), zeros(0, dtype=I64)], {}, 1, 21, "do not fit the shape []"),
    ("Reshape", [zeros(2, 3), np.array([6], F)], {}, 1, 21, "expected integers"),
    ("Gather", [zeros(2, 3), zeros(1)], {}, 1, 13, "expected integers"),
    ("Split", [zeros(6)], {"num_outputs": 3}, 2, 18, "num_outputs is 3"),
    ("GlobalMaxPool", [zeros(1, 2, 0, 3)], {}, 1, 22, "no elements"),
    ("Attention", [zeros(1, 2, 3, 4), zeros(1, 2, 5, 4), zeros(1, 2, 6, 4)], {}, 1, 23, "the key, split into heads,"),
    ("Attention", [zeros(1, 3, 3, 4), zeros(1, 2, 5, 4), zeros(1, 2, 5, 4)], {}, 1, 23, "not a multiple of 2"),
    ("QuantizeLinear", [zeros(2, 3), zeros(2), zeros(2, dtype=np.uint8)], {}, 1, 21, "scale must have shape [3]"),
]


@pytest.mark.parametrize("providers", [None, []], ids=["cpu", "numpy"])
@pytest.mark.parametrize("case", WRONG, ids=[f"{case[0]}-{case[5]}" for case in WRONG])
def test_wrong_inputs(case: tuple, providers: list | None, monkeypatch: pytest.MonkeyPatch):
    operator, arrays, attributes, outputs, opset, message = case
    names = [f"x{i}" for i in range(len(arrays))]
    made = model(
        [node(operator, names, [f"y{i}" for i in range(outputs)], name="wrong", **attributes)],
        [
            (name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
            for name, a in zip(names, arrays, strict=True)
        ],
        [("y0", onnx.TensorProto.FLOAT, None)],
        opset=opset,
        check=False,
    )
    session = onnxlet.InferenceSession(made)
    if providers is not None:
        monkeypatch.setattr(session._executor, "providers", [])
    with pytest.raises(onnxlet.OnnxletError) as caught:
        session.run(None, dict(zip(names, arrays, strict=True)))
    assert message in str(caught.value)
    assert "'wrong'" in str(caught.value)
