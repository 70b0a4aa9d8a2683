"""The pure wheel in the Pyodides of today: micropip installs it, and its kernels load."""

from __future__ import annotations

import re

import pytest

from provision.paths import REPOSITORY
from provision.pyodide import NEWEST, OLDER, PINNED
from tests.browser.harness import Chromium, PyodideHost, SnippetError


@pytest.mark.parametrize("version", [PINNED, NEWEST, OLDER])
def test_micropip_installs_the_wheel(chromium: Chromium, version: str) -> None:
    found = chromium.pyodide(version=version).run_python(
        """
        import importlib.metadata, traceback
        import onnxlet
        from pyodide_js import version
        try:
            onnxlet.InferenceSession(b"no model")
        except onnxlet.ModelError:
            text = traceback.format_exc()
        {
            "pyodide": version,
            "onnxlet": importlib.metadata.version("onnxlet"),
            "providers": onnxlet.get_available_providers(),
            "module": onnxlet.session.__file__,
            "traceback": text,
        }
        """
    )
    assert found["pyodide"] == version
    assert found["onnxlet"] == "0.1.0"
    assert "CPUExecutionProvider" in found["providers"]
    assert found["module"].endswith("/onnxlet/modules.pack/onnxlet/session.py")
    # Slim modules have their code on the lines where the sources have it, with other names for variables.
    (line, code) = re.findall(r'modules\.pack/onnxlet/session\.py", line (\d+), in .*\n +(.*)', found["traceback"])[0]
    source = (REPOSITORY / "core" / "onnxlet" / "session.py").read_text("utf-8").splitlines()[int(line) - 1]
    assert re.sub(r"\w+", "x", source.strip()) == re.sub(r"\w+", "x", code)


@pytest.mark.parametrize("relaxed", [True, False])
@pytest.mark.parametrize("host", ["pyodide_worker", "pyodide_page", "pyodide_plain_worker", "pyodide_plain_page"])
def test_both_builds_of_the_kernels_load(request: pytest.FixtureRequest, host: str, relaxed: bool) -> None:
    pyodide: PyodideHost = request.getfixturevalue(host)
    kernels = pyodide.run_python(
        """
        from onnxlet_wasm.engine import Engine
        engine = Engine.create(relaxed)
        names = sorted(engine.fields)
        engine.close()
        names
        """,
        relaxed=relaxed,
    )
    assert {"gemm", "unary", "softmax"} <= set(kernels)


@pytest.mark.parametrize(
    ("host", "isolated"),
    [("pyodide_worker", True), ("pyodide_page", True), ("pyodide_plain_worker", False), ("pyodide_plain_page", False)],
)
def test_isolation_is_what_the_fixture_says(request: pytest.FixtureRequest, host: str, isolated: bool) -> None:
    pyodide: PyodideHost = request.getfixturevalue(host)
    assert pyodide.run_python("import js; js.crossOriginIsolated") is isolated


def test_snippets_get_and_return_arrays_and_bytes(pyodide_worker: PyodideHost) -> None:
    import numpy as np

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = pyodide_worker.run_python('{"y": x * k, "size": len(b), "b": b[::-1]}', x=x, k=2, b=b"abc")
    assert found["size"] == 3
    assert found["b"] == b"cba"
    np.testing.assert_array_equal(found["y"], x * 2)


def test_an_exception_in_a_snippet_names_its_type(pyodide_worker: PyodideHost) -> None:
    with pytest.raises(SnippetError, match="ValueError: no such thing") as caught:
        pyodide_worker.run_python("raise ValueError('no such thing')")
    assert caught.value.types[:2] == ["ValueError", "Exception"]
