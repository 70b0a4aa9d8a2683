"""Tests of kernels and engine inside a browser: both WebAssembly builds, shared and unshared memory, its own loader."""

from __future__ import annotations

import io
import zipfile
from importlib.metadata import files
from pathlib import Path

import numpy as np
import pytest

from tests.browser.harness import PyodideHost, SnippetError
from tests.conftest import REPOSITORY

PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
KERNEL_TESTS = REPOSITORY / "tests" / "wasm"
SUPPORT = ("workbench.py", "windows.py")
TESTS = ("test_engine.py", "test_gemm.py", "test_conv.py")

CONFTEST = """
import pytest
from onnxlet_wasm.engine import Engine
from .workbench import Workbench

@pytest.fixture(scope="session", params=[True, False], ids=["relaxed", "plain"])
def engine(request):
    one = Engine.create(request.param)
    yield one
    one.close()

@pytest.fixture
def bench(engine):
    one = Workbench(engine)
    yield one
    one.close()
"""


def archive() -> bytes:
    """A zip of pytest, pure Python as it is installed here, and of some tests that call kernels."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for distribution in PYTEST:
            for file in files(distribution) or ():
                source = Path(str(file.locate()))
                if source.suffix in (".py", ".txt", "") and ".." not in file.parts and source.is_file():
                    out.write(source, str(file))
        for name in [*SUPPORT, *TESTS]:
            out.write(KERNEL_TESTS / name, f"tests/wasm/{name}")
        out.writestr("tests/wasm/conftest.py", CONFTEST)
    return target.getvalue()


RUN = """
import contextlib, io, os, sys, zipfile
folder = "/tmp/kernel_tests"
if folder not in sys.path:
    zipfile.ZipFile(io.BytesIO(archive)).extractall(folder)
    sys.path.insert(0, folder)
import pytest
os.chdir(folder)
options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}", "--import-mode=importlib"]
with contextlib.redirect_stdout(io.StringIO()) as said:
    code = pytest.main([*options, *[f"tests/wasm/{name}" for name in names]])
{"code": int(code), "said": said.getvalue()[-4000:]}
"""


@pytest.mark.parametrize(
    ("host", "names"),
    [("pyodide_worker", TESTS), ("pyodide_plain_page", TESTS[:1])],
    ids=["worker, shared memory", "page, unshared memory"],
)
def test_the_kernels_pass_their_tests_in_the_browser(request: pytest.FixtureRequest, host: str, names: tuple[str, ...]):
    pyodide: PyodideHost = request.getfixturevalue(host)
    found = pyodide.run_python(RUN, archive=archive(), names=list(names))
    assert found["code"] == 0, found["said"]
    assert " passed" in found["said"]


@pytest.mark.parametrize("host", ["pyodide_worker", "pyodide_page", "pyodide_plain_worker", "pyodide_plain_page"])
def test_memory_grows_under_the_hands_of_its_user(request: pytest.FixtureRequest, host: str):
    """Growing makes earlier views empty; what was written must still be there."""
    pyodide: PyodideHost = request.getfixturevalue(host)
    result = pyodide.run_python(
        """
        import js, numpy as np
        from onnxlet_wasm.engine import Engine
        engine = Engine.create()
        x = np.arange(1000, dtype=np.float32)
        blocks = []
        for i in range(6):
            blocks.append(engine.alloc((4 << 20) * (i + 1)))
            engine.write(blocks[-1], x + i)
        kept = [bool((engine.read(b, np.float32, x.shape) == x + i).all()) for i, b in enumerate(blocks)]
        shared = "SharedArrayBuffer" in str(engine.host._js.memory.buffer)
        size = engine.stats()
        engine.close()
        {"kept": kept, "shared": shared, "size": size, "after": engine.stats()}
        """
    )
    assert all(result["kept"])
    assert result["shared"] is pyodide.isolated
    assert result["size"] >= 84 << 20
    assert result["after"] == 0


def test_a_memory_that_is_full_is_an_error_and_no_end(pyodide_worker: PyodideHost):
    with pytest.raises(SnippetError, match="out of memory") as caught:
        pyodide_worker.run_python(
            """
            from onnxlet_wasm.engine import Engine
            engine = Engine.create()
            try:
                engine.alloc(1 << 33)
            finally:
                block = engine.alloc(1000)  # goes on
                engine.close()
            """
        )
    assert caught.value.types[:1] == ["LimitError"]


@pytest.mark.parametrize("host", ["pyodide_worker", "pyodide_plain_page"])
def test_weights_go_from_javascript_to_the_kernels(request: pytest.FixtureRequest, host: str):
    pyodide: PyodideHost = request.getfixturevalue(host)
    result = pyodide.run_python(
        """
        import js, numpy as np
        from onnxlet.model.sources import as_source
        from onnxlet.model.tensors import Tensor
        from onnxlet_wasm.engine import Engine
        array = js.Uint8Array.new(64)
        for i in range(64):
            array[i] = i
        tensor = Tensor(np.dtype(np.uint8), (16,), location=(as_source(array), 8))
        engine = Engine.create()
        block = engine.alloc(16)
        engine.write(block, tensor)
        result = engine.read(block, np.uint8, (16,))
        engine.close()
        result
        """
    )
    np.testing.assert_array_equal(result, np.arange(8, 24))


def test_creation_without_blocking(pyodide_page: PyodideHost):
    assert pyodide_page.run_python(
        """
        from onnxlet_wasm.engine import Engine
        engine = await Engine.create_async()
        found = "gemm" in engine.fields
        engine.close()
        found
        """
    )
