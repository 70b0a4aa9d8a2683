"""What the benchmark of GPU providers measures: whole models, decoding with its cache on the GPU among them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto

from . import networks
from .graphs import GraphBuilder
from .models import Feeds, picture, sentence, step

LAYERS = 6


@dataclass(frozen=True)
class GpuCase:
    """One row of the tables.

    A run has `steps` steps; after each, the outputs in `state` feed the inputs that it maps them to, without leaving
    the GPU, and inputs in `advancing` grow by one. What feeds the first step is on the GPU before the run.
    """

    name: str
    build: Callable[[], onnx.ModelProto]
    feeds: Callable[[], Feeds]
    steps: int = 1
    state: Callable[[onnx.ModelProto], dict[str, str]] = field(default=lambda model: {})
    advancing: tuple[str, ...] = ()
    tolerance: float = 1e-4


def small_picture() -> Feeds:
    return {"input": np.random.default_rng(7).standard_normal((1, 3, 128, 128), np.float32)}


def short_sentence() -> Feeds:
    return {name: value[:, :32] for name, value in sentence().items()}


def cache(model: onnx.ModelProto) -> dict[str, str]:
    """The cache of `networks.gpt_step`: its outputs, in the order of the layers, feed its inputs."""
    outputs = [value.name for value in model.graph.output][:-1]
    names = [f"past.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    return dict(zip(outputs, names, strict=True))


def tiny() -> bytes:
    """A model that starts an engine: x + x."""
    b = GraphBuilder("tiny")
    x = b.input([4], TensorProto.FLOAT, "x")
    b.output(b.node("Add", x, x), [4])
    return b.model().SerializeToString()


GROWING = partial(networks.gpt_step, "past")

CASES = [
    GpuCase("MobileNetV2 224", networks.mobilenet_v2, picture),
    GpuCase("ResNet-18 128", partial(networks.resnet18, 128), small_picture),
    GpuCase("MiniLM 6x384, 32 tokens", partial(networks.minilm, 32), short_sentence),
    GpuCase("U-Net 128, 16 to 128 channels", networks.unet, small_picture),
    GpuCase("GPT 6x384, one step after 127", networks.gpt_step, step, state=cache),
    GpuCase("GPT 6x384, 8 steps from 24 on", GROWING, partial(step, past=24), 8, cache, ("position_ids",)),
]


def chosen(only: str | None) -> list[GpuCase]:
    """The cases whose name matches a regular expression; all without one."""
    return [case for case in CASES if only is None or re.search(only, case.name)]
