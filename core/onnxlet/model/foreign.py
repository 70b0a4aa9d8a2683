"""Telling people what a file is when it is not an ONNX model."""

from __future__ import annotations

# (offset, bytes there, what such a file is)
_SIGNATURES: list[tuple[int, bytes, str]] = [
    (0, b"version https://git-lfs", "a git-lfs pointer, not the file itself: fetch it with `git lfs pull`"),
    (0, b"PK\x03\x04", "a zip archive (a PyTorch checkpoint or an .npz file is one too): unpack or export it first"),
    (0, b"\x1f\x8b", "gzip-compressed: decompress it first"),
    (0, b"BZh", "bzip2-compressed: decompress it first"),
    (0, b"\xfd7zXZ", "xz-compressed: decompress it first"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed: decompress it first"),
    (4, b"TFL3", "a TensorFlow Lite model: convert it with tf2onnx"),
    (4, b"ORTM", "a model in onnxruntime's own .ort format: use the .onnx it was made from"),
    (0, b"\x89HDF", "an HDF5 file (a Keras model?): convert it with tf2onnx"),
    (0, b"GGUF", "a GGUF file, which is not ONNX"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x80\x02", "a Python pickle (a PyTorch checkpoint?): export it with torch.onnx.export"),
    (0, b"\x80\x03", "a Python pickle: export the model to ONNX first"),
    (0, b"\x80\x04", "a Python pickle: export the model to ONNX first"),
    (0, b"\x80\x05", "a Python pickle: export the model to ONNX first"),
    (8, b'{"', "a safetensors file: it holds weights, but no graph"),
    (0, b"\x89PNG", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x00asm", "a WebAssembly module"),
]


def looks_like(head: bytes) -> str | None:
    """What a file that begins with `head` (some hundred bytes) is if not ONNX, as a phrase; `None` if it is unknown."""
    for offset, signature, what in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            return what
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html")):
        return "an HTML page (an error or a log-in page in place of the download?)"
    if text.startswith((b"<?xml", b"<svg")):
        return "an XML document"
    if text[:1] in (b"{", b"[") and _is_text(head):
        return "JSON"
    return "a text file" if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()  # the last character was cut in two
    return bool(text) and all(c.isprintable() or c in "\t\r\n\f\ufeff" for c in text)
