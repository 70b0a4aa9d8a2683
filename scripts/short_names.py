"""Short names for what only one function sees: its variables, and parameters that no call names.

A module keeps its lines and what it does. Whatever is doubtful keeps its name.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import string
import symtable
from collections.abc import Iterable, Iterator, Set
from pathlib import Path, PurePosixPath

import slim_wheel

LETTERS = string.ascii_lowercase + string.ascii_uppercase
SHORT = [*LETTERS, *map("".join, itertools.product(LETTERS, string.ascii_lowercase))]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

PUBLIC = {"onnxlet", "onnxlet/onnxruntime_face", "onnxlet_webgpu/browser_wgpu"}
"""The folders of the modules whose functions users call, and may name the arguments."""
NAMED = ast.ExceptHandler | ast.MatchAs | ast.MatchStar


def apply(wheel: Path) -> None:
    """Give the modules of a wheel short names, in place."""
    contents = slim_wheel.read(wheel)
    modules = {name: content.decode() for name, content in contents.items() if name.endswith(".py")}
    kept, open_to = named(modules.values()), called_with_any(modules.values())
    for name, text in modules.items():
        public = str(PurePosixPath(name).parent) in PUBLIC
        contents[name] = shorten(text, kept, open_to, public).encode()
    slim_wheel.write(wheel, contents)


def named(sources: Iterable[str]) -> set[str]:
    """The names by which the code of a package may pass arguments: keywords, and all strings that could be keys."""
    found = set()
    for node in _nodes(sources):
        if isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)
        elif isinstance(node, ast.Attribute) and node.attr == "split" and isinstance(node.value, ast.Constant):
            found.update(str(node.value.value).split())
    return found


def called_with_any(sources: Iterable[str]) -> set[str]:
    """The names of functions that get a dictionary of arguments somewhere: their keys may come from outside."""
    found = set()
    for node in _nodes(sources):
        if isinstance(node, ast.Call) and any(argument.arg is None for argument in node.keywords):
            called = [node.func, *node.args]  # `partial(function, **more)`
            found |= {getattr(expression, "attr", getattr(expression, "id", "")) for expression in called}
    return found - {""}


def _nodes(sources: Iterable[str]) -> Iterator[ast.AST]:
    return (node for source in sources for node in ast.walk(ast.parse(source)))


def shorten(source: str, kept: set[str], open_to: Set[str] = frozenset(), public: bool = True) -> str:
    """The module with short names. Parameters whose names are in `kept` keep theirs, so do those of functions in
    `open_to` and, in a `public` module, those of functions that are not private.

    A module that would not be the same program in other words (it shows a name, as `f"{name=}"` does) stays as it is.
    """
    tree = ast.parse(source)
    tables = _tables(symtable.symtable(source, "module", "exec"))
    lines = [line.encode() for line in source.split("\n")]  # columns count bytes
    places: list[tuple[int, int, str, str]] = []
    for root in _roots(tree):
        table = tables.get((root.lineno, getattr(root, "name", "lambda")))
        if table is None:
            continue  # two lambdas on a line
        uses = [node for node in _inside(root) if isinstance(node, ast.Name | ast.arg)]
        unclear = {
            _name(node) for node in uses if not lines[node.lineno - 1].startswith(_name(node).encode(), node.col_offset)
        }
        new = _new_names(list(map(_name, uses)), _fixed(root, kept, open_to, public) | unclear, table)
        for node in uses:
            old = _name(node)
            if old in new:
                places.append((node.lineno, node.col_offset, old, new[old]))
                if isinstance(node, ast.Name):
                    node.id = new[old]
                else:
                    node.arg = new[old]
    for row, column, old, short in sorted(places, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + short.encode() + line[column + len(old.encode()) :]
    result = b"\n".join(lines).decode()
    return result if _same(result, tree) else source


def _same(source: str, tree: ast.Module) -> bool:
    try:
        return ast.dump(ast.parse(source)) == ast.dump(tree)
    except SyntaxError:
        return False


def _name(node: ast.Name | ast.arg) -> str:
    return node.id if isinstance(node, ast.Name) else node.arg


def _roots(node: ast.AST) -> Iterator[Function]:
    """The outermost functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        else:
            yield from _roots(child)


def _tables(top: symtable.SymbolTable) -> dict[tuple[int, str], symtable.SymbolTable]:
    """The tables of functions by line and name; not of those that share both with another."""
    found: dict[tuple[int, str], symtable.SymbolTable] = {}
    twice = set()
    pending = [top]
    while pending:
        table = pending.pop()
        pending += table.get_children()
        if table.get_type() == "function":
            key = table.get_lineno(), table.get_name()
            twice.update({key} & found.keys())
            found[key] = table
    return {key: table for key, table in found.items() if key not in twice}


def _inside(root: Function) -> Iterator[ast.AST]:
    """All nodes that see the function's variables: not its decorators, defaults and annotations."""
    arguments = root.args
    yield from _arguments(arguments)
    for statement in root.body if isinstance(root.body, list) else [root.body]:
        yield from ast.walk(statement)


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    rest = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _new_names(names: list[str], fixed: set[str | None], table: symtable.SymbolTable) -> dict[str, str]:
    """What to call which of the names in an outermost function and in the functions in it."""
    local, elsewhere = _scopes(table)
    fixed = fixed | elsewhere | {"self", "cls"}
    fixed |= {name for name in names if name not in local or name.startswith("__")}
    changed = dict.fromkeys(name for name in names if name not in fixed)
    # In the order of their first use: functions that are alike stay so, which is what compresses well.
    return dict(
        zip(changed, (name for name in SHORT if name not in fixed and not keyword.iskeyword(name)), strict=False)
    )


def _scopes(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """Names that are variables of a function, in this or a nested one, and names that are anything else in one."""
    local, elsewhere = set(), set()
    pending = [table]
    while pending:
        scope = pending.pop()
        pending += scope.get_children()
        for symbol in scope.get_symbols():
            free = symbol.is_free() and scope is not table
            if scope.get_type() == "function" and (free or symbol.is_local()) and not symbol.is_global():
                local.add(symbol.get_name())
            elif not free:
                elsewhere.add(symbol.get_name())
    return local, elsewhere


def _fixed(root: Function, kept: set[str], open_to: Set[str], public: bool) -> set[str | None]:
    """Names that are written where they are no name of the syntax tree, and those of parameters that callers use."""
    nodes, fixed = list(_inside(root)), set[str | None]()
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            fixed.update(node.names)
        elif isinstance(node, ast.alias):
            fixed.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | NAMED):
            fixed.add(node.name)
        elif isinstance(node, ast.MatchMapping):
            fixed.add(node.rest)
    functions = [root, *(node for node in nodes if isinstance(node, Function))]
    for function in functions:
        fixed.update(argument.arg for argument in function.args.kwonlyargs)
        name = getattr(function, "name", "_")
        private = not public or function is not root or name.startswith("_")
        private = private and not name.startswith("__") and name not in open_to
        seen = [function.args.vararg, function.args.kwarg]  # by who asks for a public function's signature
        fixed.update(argument.arg for argument in seen if argument and not private)
        fixed.update(argument.arg for argument in function.args.args if not private or argument.arg in kept)
    return fixed
