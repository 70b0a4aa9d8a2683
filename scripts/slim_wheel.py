"""What a page downloads, without the words that only a reader of the sources needs.

In a slim wheel comments are blank, and so are docstrings and the annotations of functions and in them, except in
`onnxlet`'s own modules at the top, which users call and may ask for `help`; the annotations of operators' attributes
are read, and stay. Lines stay where they were: a traceback names the line of the source. That is worth a fifth of the
wheel. `short_names` goes on from there. JavaScript loses its comments too, the description of the wheel the README, and
the command line and the pytest plugin are left out.
"""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import os
import re
import tokenize
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeGuard

DATE = (2020, 2, 2, 0, 0, 0)
"""Of every entry: the same wheel from the same sources, byte for byte."""
COMMENT = re.compile(r"^ *(//.*|/\*(?:[^*]|\*(?!/))*\*/ *)$", re.MULTILINE)
DESKTOP = re.compile(
    r"^onnxlet/(tools|testing)/|^onnxlet_webgpu/desktop/|^onnxlet_wasm/(web/|native\.py$)|\.dist-info/entry_points\.txt$"
)
"""What Pyodide has no use for: the command line, the pytest plugin, what loads the native kernels, and the modules
that a site serves beside the wheel."""
TYPING = {"typing", "collections.abc", "types"}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def slim(wheel: Path) -> None:
    """Make the modules and scripts of a wheel slim, in place, and leave the README out of what describes it."""
    contents = {name: content for name, content in read(wheel).items() if not DESKTOP.search(name)}
    for name, content in contents.items():
        if name.endswith(".py"):
            documented = str(PurePosixPath(name).parent) == "onnxlet"
            contents[name] = slim_module(content.decode(), documented).encode()
        elif name.endswith(".js"):
            contents[name] = slim_script(content.decode()).encode()
        elif name.endswith(".dist-info/METADATA"):
            contents[name] = _without_description(content.decode()).encode()
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
    """A module's source without comments, docstrings and annotations of functions.

    One that is `documented` keeps annotations, and the first lines of public docstrings.

    Line by line it is the same code, indented by one space where it was four.
    """
    lines = source.splitlines()
    tree = ast.parse(source)
    if not documented:
        for row, start, end in sorted([*_annotations(tree, lines), *_local_annotations(tree)], reverse=True):
            line = lines[row - 1].encode()  # columns count bytes
            lines[row - 1] = (line[:start] + line[end:]).decode()
    for node, first, last in _docstrings(tree):
        kept = ""
        if not isinstance(node, ast.Module) and first == node.body[0].lineno:
            if documented and not node.name.startswith("_"):
                kept = _summary(lines[first - 1])
            if not kept and isinstance(node, ast.ClassDef) and node.decorator_list:
                kept = " " * node.body[0].col_offset + '" "'  # a dataclass without works long to make one
        lines[first - 1 : last] = [kept] + [""] * (last - first)
    _remove_types(lines)
    texts = _rows_inside_strings(ast.parse("\n".join(lines)))
    for row, line in enumerate(lines, 1):
        if row not in texts:
            rest = line.lstrip(" ")
            lines[row - 1] = " " * ((len(line) - len(rest)) // 4) + rest
    for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(lines) + "\n"


def _summary(line: str) -> str:
    """The first line of a docstring as a docstring."""
    text = line.rstrip()
    if not text.lstrip().startswith('"""'):
        return ""
    return text if text.endswith('"""') and len(text.lstrip()) > 5 else text + '"""'


def _remove_types(lines: list[str]) -> None:
    """Take out, in place, imports of types that nothing reads any more."""
    tree = ast.parse("\n".join(lines))
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.update(re.findall(r"\w+", node.value))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and not node.level and node.module in TYPING:
            kept = [alias for alias in node.names if (alias.asname or alias.name) in words]
            last = node.end_lineno or node.lineno
            if len(kept) < len(node.names):
                text = ast.unparse(ast.ImportFrom(node.module, kept, 0)) if kept else ""
                lines[node.lineno - 1 : last] = [text] + [""] * (last - node.lineno)


def slim_script(source: str) -> str:
    """JavaScript without the comments that have lines of their own, and without indentation.

    One with a text over several lines stays: spaces may mean something there.
    """
    if any(line.count("`") % 2 for line in source.splitlines()):
        return source
    rest = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), source)
    return "".join(line.lstrip(" ") for line in rest.splitlines(keepends=True))


def _without_description(metadata: str) -> str:
    fields, _, _ = metadata.partition("\n\n")
    return "".join(line + "\n" for line in fields.split("\n") if not line.startswith("Description-Content-Type:"))


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


def _local_annotations(node: ast.AST, inside: bool = False) -> Iterator[tuple[int, int, int]]:
    """Row and columns of the annotations of variables that functions set."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AnnAssign) and inside and child.value:
            start, end = child.target.end_col_offset, child.annotation.end_col_offset
            if child.target.end_lineno == child.annotation.end_lineno and start is not None and end is not None:
                yield child.annotation.lineno, start, end
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _local_annotations(child, function or (inside and not isinstance(child, ast.ClassDef)))


def _defines_operator(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether annotations are read at run time: those of an operator's attributes are."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "op"
        for decorator in node.decorator_list
    )


def _docstrings(tree: ast.Module) -> list[tuple[Documented, int, int]]:
    """Owner, first and last line of all docstrings, variables' too, that share no line with code.

    One that is all there is in a body stays.
    """
    found: list[tuple[Documented, int, int]] = []
    for node in ast.walk(tree):
        if not isinstance(node, Documented):
            continue
        if all(map(_is_text, node.body)):
            continue
        end = 0 if isinstance(node, ast.Module) else node.lineno
        for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
            last = statement.end_lineno or statement.lineno
            if _is_text(statement) and end < statement.lineno and (following is None or last < following.lineno):
                found.append((node, statement.lineno, last))
            end = last
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
