"""A slim module is the same code on the same lines."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import slim_wheel

from provision import packaging
from tests.conftest import REPOSITORY

MODULES = sorted(
    path for folder in ("core", "wasm/onnxlet_wasm", "webgpu") for path in (REPOSITORY / folder).rglob("*.py")
)


def code(source: str) -> str:
    """The syntax tree and the lines of its nodes, without docstrings and the annotations of functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            len(node.body) > 1 and ast.get_docstring(node) is not None
        ):
            del node.body[0]
    lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr)]
    return f"{ast.dump(tree)} {lines}"


@pytest.mark.parametrize("documented", [True, False])
def test_every_module_keeps_its_code(documented: bool) -> None:
    assert MODULES
    for path in MODULES:
        source = path.read_text("utf-8")
        assert code(slim_wheel.slim_module(source, documented)) == code(source), path


def test_no_name_is_missing(tmp_path: Path) -> None:
    for path in MODULES:
        target = tmp_path / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(slim_wheel.slim_module(path.read_text("utf-8")), "utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_comments_and_docstrings() -> None:
    source = 'def f(x):  # why\n    """What."""\n    # how\n    return "#" + x\n'
    assert slim_wheel.slim_module(source) == 'def f(x):\n\n\n return "#" + x\n'
    assert slim_wheel.slim_module(source, documented=True) == 'def f(x):\n    """What."""\n\n    return "#" + x\n'


def test_annotations() -> None:
    source = "class A:\n    x: int = 1\n    def f(self, y: str = 'é', *z: int) -> dict[str, int]: ...\n"
    slim = "class A:\n x: int = 1\n def f(self, y = 'é', *z): ...\n"
    assert slim_wheel.slim_module(source) == slim
    assert slim_wheel.slim_module(source, documented=True) == source


def test_annotations_of_attributes_are_read() -> None:
    source = '@op("Elu")\n@op("Selu")\ndef elu(x: Array, *, alpha: float = 1.0, names: list[str]) -> Array: ...\n'
    slim = '@op("Elu")\n@op("Selu")\ndef elu(x, *, alpha: float = 1.0, names: list[str]): ...\n'
    assert slim_wheel.slim_module(source) == slim


def test_strings_keep_their_spaces() -> None:
    source = 'def f(x):\n    if x:\n        return f"""\n    {x}\n        """\n    return ("a"\n        "b")\n'
    slim = 'def f(x):\n if x:\n  return f"""\n    {x}\n        """\n return ("a"\n        "b")\n'
    assert slim_wheel.slim_module(source) == slim


@pytest.mark.parametrize("source", ['def f():\n    """All there is."""\n', 'def f(): "One"; return 1\n'])
def test_what_shares_its_line_with_code_stays(source: str) -> None:
    assert slim_wheel.slim_module(source) == source.replace("    ", " ")


def test_users_can_ask_for_help() -> None:
    archive = zipfile.ZipFile(packaging.build_unpacked())
    tree = ast.parse(archive.read("onnxlet/session.py"))
    (session,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "InferenceSession"]
    assert ast.get_docstring(session)


def test_record_lists_every_file_with_its_hash() -> None:
    archive = zipfile.ZipFile(packaging.build_wheel("pure"))
    rows = archive.read("onnxlet-0.1.0.dist-info/RECORD").decode().split()
    listed = dict(row.split(",")[:2] for row in rows)
    assert set(listed) == set(archive.namelist())
    for name, digest in listed.items():
        if digest:
            assert digest == slim_wheel._digest(archive.read(name))
