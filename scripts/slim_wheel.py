"""What a page downloads, without the words that only a reader of the sources needs.

In a slim wheel comments are blank, and so are docstrings and the annotations of functions, except in `onnxlet`'s own
modules at the top, which users call and may ask for `help`; the annotations of operators' attributes are read, and
stay. Lines stay where they were: a traceback names the line of the source. That is worth a fifth of the wheel.
"""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import os
import tokenize
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TypeGuard

DATE = (2020, 2, 2, 0, 0, 0)
"""Of every entry: the same wheel from the same sources, byte for byte."""


def slim(wheel: Path) -> None:
    """Make the modules of a wheel slim, in place."""
    contents = read(wheel)
    for name, content in contents.items():
        if name.endswith(".py"):
            documented = str(PurePosixPath(name).parent) == "onnxlet"
            contents[name] = slim_module(content.decode(), documented).encode()
    write(wheel, contents)


def read(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def write(wheel: Path, contents: Mapping[str, bytes]) -> None:
    """Put a wheel of these files in place, with the best compression and a new RECORD."""
    (record,) = (name for name in contents if name.endswith(".dist-info/RECORD"))
    rows = [(name, _digest(content), len(content)) for name, content in contents.items() if name != record]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([*rows, (record, "", "")])
    new = wheel.with_suffix(".new")
    with zipfile.ZipFile(new, "w") as archive:
        for name, content in {**contents, record: table.getvalue().encode()}.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    os.replace(new, wheel)


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def slim_module(source: str, documented: bool = False) -> str:
    """A module's source without comments and, unless `documented`, docstrings and annotations of functions.

    Line by line it is the same code, indented by one space where it was four.
    """
    lines = source.splitlines()
    if not documented:
        tree = ast.parse(source)
        for row, start, end in sorted(_annotations(tree, lines), reverse=True):
            line = lines[row - 1].encode()  # columns count bytes
            lines[row - 1] = (line[:start] + line[end:]).decode()
        for node, first, last in _docstrings(tree):
            lines[first - 1 : last] = [""] * (last - first + 1)
            if isinstance(node, ast.ClassDef) and node.decorator_list:  # a dataclass without one works long to make one
                lines[first - 1] = " " * node.body[0].col_offset + '" "'
        texts = _rows_inside_strings(tree)
        for row, line in enumerate(lines, 1):
            if row not in texts:
                rest = line.lstrip(" ")
                lines[row - 1] = " " * ((len(line) - len(rest)) // 4) + rest
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(lines) + "\n"


def _rows_inside_strings(tree: ast.Module) -> set[int]:
    """The lines that begin inside a string: their spaces mean something."""
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    return {row for node in texts for row in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)}


def _annotations(tree: ast.Module, lines: list[str]) -> list[tuple[int, int, int]]:
    """Row and columns of the annotations of all functions' parameters and results that stand on one line."""
    found = []
    read = {id(argument) for node in ast.walk(tree) if _defines_operator(node) for argument in node.args.kwonlyargs}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and id(node) in read:
            continue
        if isinstance(node, ast.arg) and node.annotation and node.lineno == node.annotation.end_lineno:
            name = node.col_offset + len(node.arg.encode())
            found.append((node.lineno, name, node.annotation.end_col_offset or name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            result = node.returns
            arrow = lines[result.lineno - 1].encode().rfind(b" ->", 0, result.col_offset)
            if arrow >= 0 and result.lineno == result.end_lineno:
                found.append((result.lineno, arrow, result.end_col_offset or arrow))
    return found


def _defines_operator(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether annotations are read at run time: those of an operator's attributes are."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "op"
        for decorator in node.decorator_list
    )


def _docstrings(tree: ast.Module) -> list[tuple[ast.AST, int, int]]:
    """Owner, first and last line of all docstrings that share no line with code and aren't a body's only statement."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is None or len(node.body) < 2:
            continue
        text, following = node.body[:2]
        last = text.end_lineno or text.lineno
        start = 0 if isinstance(node, ast.Module) else node.lineno
        if start < text.lineno and last < following.lineno:
            found.append((node, text.lineno, last))
    return found
