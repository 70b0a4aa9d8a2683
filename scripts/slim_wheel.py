"""What a page downloads, without the words that only a reader of the sources needs.

In a slim wheel comments are blank, and so are docstrings, except those of `onnxlet`'s own modules at the top, which
users call and may ask for `help`. Lines stay where they were: a traceback names the line of the source. That is worth
60 kB of 400.
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
from pathlib import Path, PurePosixPath


def slim(wheel: Path) -> None:
    """Rewrite a wheel in place: slim modules, the best compression, a new RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    record = next(name for name in contents if name.endswith(".dist-info/RECORD"))
    for name, content in contents.items():
        if name.endswith(".py"):
            contents[name] = slim_module(content.decode(), documented=len(PurePosixPath(name).parts) == 2).encode()
    rows = [(name, _digest(content), len(content)) for name, content in contents.items() if name != record]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([*rows, (record, "", "")])
    contents[record] = table.getvalue().encode()
    new = wheel.with_suffix(".new")
    with zipfile.ZipFile(new, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, (2020, 2, 2, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    os.replace(new, wheel)


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def slim_module(source: str, documented: bool = False) -> str:
    """A module's source with blank comments and, unless `documented`, blank docstrings: line by line the same code."""
    lines = source.splitlines()
    if not documented:
        for first, last in _docstrings(ast.parse(source)):
            lines[first - 1 : last] = [""] * (last - first + 1)
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(lines) + "\n"


def _docstrings(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last lines of all docstrings that share no line with code and aren't a body's only statement."""
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
            found.append((text.lineno, last))
    return found
