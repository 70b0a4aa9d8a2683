"""Whole models with the GPU provider first: right outputs, and a reason for every node that is elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onnxlet import InferenceSession
from onnxlet_webgpu.provider import WebGpuProvider
from tests.conftest import DATA, shared_dir

NAMES = [
    "torch_mobilenetv2_ts", "torch_resnet18w32_dyn", "torch_resnet18w32_fp16_dyn", "torch_bert_dyn", "torch_unet_ts",
    "torch_gpt_dyn",
]  # fmt: skip


def folder_of(name: str) -> Path:
    shared = shared_dir()
    for root in (DATA / "zoo", *([shared / "zoo"] if shared is not None else [])):
        if (root / name / "model.onnx").is_file():
            return root / name
    pytest.skip(f"{name} is in the shared collection only, which is not here")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_reasons(gpu_provider: WebGpuProvider, name: str):
    folder = folder_of(name)
    data = np.load(folder / "data.npz")
    tolerance = json.loads((folder / "meta.json").read_text())["tol"]
    feeds = {key[3:]: data[key] for key in data.files if key.startswith("in:")}
    session = InferenceSession(folder / "model.onnx", providers=["webgpu"])
    for _ in range(2):
        results = session.run(None, feeds)
    for output, got in zip(session.get_outputs(), results, strict=True):
        want = data[f"out:{output.name}"]
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(1.0, float(np.abs(want).max())))
    rows = session.explain().rows
    elsewhere = [row for row in rows if row.provider not in ("WebGpuExecutionProvider", "plan")]
    assert all("WebGpuExecutionProvider: int64 stays on the CPU" in row.reason for row in elsewhere)
    assert len(elsewhere) <= 2
    session.close()


def test_other_shapes_make_other_plans(gpu_provider: WebGpuProvider):
    """Batches of different sizes on one session: the weights are on the GPU once."""
    folder = folder_of("torch_mobilenetv2_ts")
    data = np.load(folder / "data.npz")
    (x,) = (data[key] for key in data.files if key.startswith("in:"))
    (want,) = (data[key] for key in data.files if key.startswith("out:"))
    session = InferenceSession(folder / "model.onnx", providers=["webgpu"])
    held = []
    for batch in (1, 3, 1, 2):
        (got,) = session.run(None, {"in0": np.repeat(x[:1], batch, axis=0)})
        np.testing.assert_allclose(got, np.repeat(want[:1], batch, axis=0), atol=1e-4)
        held.append(session._providers[0].memory_stats()["weights"])
    assert len(set(held)) == 1
    session.close()


def test_a_cpu_session_agrees(gpu_provider: WebGpuProvider):
    folder = folder_of("torch_bert_dyn")
    data = np.load(folder / "data.npz")
    feeds = {key[3:]: data[key] for key in data.files if key.startswith("in:")}
    answers = []
    for providers in (["webgpu"], ["cpu"]):
        session = InferenceSession(folder / "model.onnx", providers=providers)
        answers.append(session.run(None, feeds))
        session.close()
    for ours, theirs in zip(*answers, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
