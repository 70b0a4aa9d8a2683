"""What lzma.js takes apart is what Python's `lzma` put together. It runs under Node.js, in the engine of Chromium."""

from __future__ import annotations

import lzma
import random
import subprocess
from pathlib import Path

import pytest

import onnxlet_wasm
from onnxlet_wasm.build import LIB
from provision import downloads

SCRIPT = Path(onnxlet_wasm.__path__[0]) / "lzma.js"
RUN = f"""
const unpack = eval(require("fs").readFileSync({str(SCRIPT)!r}, "utf8"));
const chunks = [];
process.stdin.on("data", (chunk) => chunks.push(chunk));
process.stdin.on("end", () => process.stdout.write(unpack(new Uint8Array(Buffer.concat(chunks)))));
"""
NOISE = random.Random(1).randbytes(3000)
TEXT = " ".join(random.Random(2).choice(["the", "kernels", "of", "a", "wheel"]) for _ in range(5000)).encode()


def packed(content: bytes, **how: int) -> bytes:
    """A file whose header tells the length."""
    filters = [{"id": lzma.FILTER_LZMA1, "preset": 6, **how}]
    compressed = lzma.compress(content, lzma.FORMAT_ALONE, filters=filters)
    return compressed[:5] + len(content).to_bytes(8, "little") + compressed[13:]


def unpacked(data: bytes) -> bytes:
    done = subprocess.run([downloads.node(), "-e", RUN], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"x" * 1000, NOISE, TEXT, NOISE + TEXT + NOISE[:2000] + b"\0" * 300 + TEXT[17:]],
    ids=["empty", "one byte", "one letter", "noise", "text", "mixed"],
)
@pytest.mark.parametrize("bits", [(3, 0, 0), (0, 0, 2), (4, 0, 0), (1, 3, 4), (0, 4, 1)])
def test_files_of_all_kinds(content: bytes, bits: tuple[int, int, int]) -> None:
    assert unpacked(packed(content, lc=bits[0], lp=bits[1], pb=bits[2])) == content


def test_matches_from_afar() -> None:
    far = NOISE + bytes(400_000) + random.Random(3).randbytes(5000) + NOISE[::-1] + NOISE
    assert unpacked(packed(far)) == far


def test_kernels() -> None:
    both = b"".join((LIB / name).read_bytes() for name in ("kernels.wasm", "kernels-plain.wasm"))
    assert unpacked(packed(both, pb=0, nice_len=273)) == both
