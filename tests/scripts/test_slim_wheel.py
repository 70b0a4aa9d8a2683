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


class WithoutLocalAnnotations(ast.NodeTransformer):
    inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self.visit_scope(node, True)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit_scope(node, True)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self.visit_scope(node, False)

    def visit_scope(self, node: ast.AST, inside: bool) -> ast.AST:
        self.inside, before = inside, self.inside
        self.generic_visit(node)
        self.inside = before
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not self.inside or node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def imports_types(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module in slim_wheel.TYPING


def code(source: str) -> str:
    """The syntax tree and the lines of its nodes, without docstrings and the annotations of functions and in them."""
    tree = WithoutLocalAnnotations().visit(ast.parse(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.Module):
            node.body = [statement for statement in node.body if not imports_types(statement)]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not slim_wheel._is_text(statement)] or node.body
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
    assert slim_wheel.slim_module(source, documented=True) == 'def f(x):\n """What."""\n\n return "#" + x\n'


def test_docstrings_of_variables() -> None:
    source = 'X = 1\n"""What."""\nclass A:\n    x: int = 1\n    """What.\n\n    Why.\n    """\n'
    slim = "X = 1\n\nclass A:\n x: int = 1\n\n\n\n\n"
    assert slim_wheel.slim_module(source) == slim_wheel.slim_module(source, documented=True) == slim


def test_public_docstrings_keep_their_first_lines() -> None:
    source = 'class A:\n    """What.\n\n    Why.\n    """\n    def _f(self):\n        """How."""\n        return 1\n'
    slim = 'class A:\n """What."""\n\n\n\n def _f(self):\n\n  return 1\n'
    assert slim_wheel.slim_module(source, documented=True) == slim


def test_annotations() -> None:
    source = "class A:\n    x: int = 1\n    def f(self, y: str = 'é', *z: int) -> dict[str, int]: ...\n"
    slim = "class A:\n x: int = 1\n def f(self, y = 'é', *z): ...\n"
    assert slim_wheel.slim_module(source) == slim
    assert slim_wheel.slim_module(source, documented=True) == source.replace("    ", " ")


def test_imports_for_annotations() -> None:
    source = "from typing import (\n    Any,\n    NamedTuple,\n)\nfrom collections.abc import Callable\n"
    source += "class A(NamedTuple):\n    x: int\n    def f(self, y: Any) -> Callable: ...\n"
    slim = "from typing import NamedTuple\n\n\n\n\nclass A(NamedTuple):\n x: int\n def f(self, y): ...\n"
    assert slim_wheel.slim_module(source) == slim


def test_annotations_in_functions() -> None:
    source = "def f():\n    x: dict[str, int] = {}\n    y: int\n    class A:\n        z: int = 1\n    x['a']: int = 1\n"
    slim = "def f():\n x = {}\n y: int\n class A:\n  z: int = 1\n x['a'] = 1\n"
    assert slim_wheel.slim_module(source) == slim


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


def test_scripts() -> None:
    source = "/** What.\n * Why. */\nexport const a = 'https://b'; // how\n  // why\n  f(`${a}//`);\n"
    assert slim_wheel.slim_script(source) == "\n\nexport const a = 'https://b'; // how\n\nf(`${a}//`);\n"
    text = "f(`\n// a\n`);\n"
    assert slim_wheel.slim_script(text) == text


def test_the_readme_stays_out() -> None:
    text = "Name: a\nDescription-Content-Type: text/markdown\nVersion: 1\n\n# A\n\nName: b\n"
    assert slim_wheel._without_description(text) == "Name: a\nVersion: 1\n"


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
