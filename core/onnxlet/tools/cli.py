"""The command `onnxlet`: run, inspect, check, explain, profile, compare and optimise models from a terminal.

Exit codes: 0 for yes, 1 for no (a model with errors, outputs that differ), 2 for a wrong command line, 3 for a model or
an input that can't be used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .. import __version__, rewrites
from ..errors import FeedError, OnnxletError
from ..graph.ir import Model, TensorType
from ..model.dtypes import describe
from ..model.loader import load_model
from ..options import GraphOptimizationLevel, SessionOptions
from ..session import InferenceSession
from . import inputs
from .engines import ENGINES, saved
from .tables import progress, table

YES, NO, USAGE, FAILED = range(4)

LEVELS = {
    "disable_all": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def _sized(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE, such as batch=1")
    return name, int(size)


def _shaped(text: str) -> tuple[str, list[int]]:
    name, _, sizes = text.rpartition("=")
    parts = [part for part in sizes.replace("x", ",").split(",") if part]
    if not name or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZES, such as image=1,3,224,224")
    return name, [int(part) for part in parts]


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="the .onnx file")


def _add_shapes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("inputs")
    group.add_argument(
        "--dim", type=_sized, action="append", default=[], metavar="NAME=SIZE",
        help="size of a named dimension; else 1 where it comes first, 224 in images, 16 elsewhere",
    )  # fmt: skip
    group.add_argument(
        "--shape",
        type=_shaped,
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="shape of an input, as 1,3,224,224",
    )


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", help="arrays: NAME=FILE.npy, or FILE.npz with all; the others are made up")
    _add_shapes(parser)
    parser.add_argument("--fill", choices=inputs.FILLS, default="random", help="what made-up inputs hold")
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs")


def _add_session(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it runs")
    group.add_argument("--provider", choices=("cpu", "webgpu"), default="cpu", help="what to run on first")
    group.add_argument("--threads", type=int, default=0, help="threads on the CPU; 0 is what the machine has, up to 8")
    group.add_argument("--level", choices=tuple(LEVELS), default="all", help="which rewrites of the graph are made")
    group.add_argument(
        "--disable",
        action="append",
        default=[],
        metavar="REWRITE",
        help="leave a rewrite out; see onnxlet optimize --list",
    )


def _options(arguments: argparse.Namespace) -> SessionOptions:
    return SessionOptions(
        graph_optimization_level=LEVELS[arguments.level],
        disabled_rewrites=set(arguments.disable),
        intra_op_num_threads=getattr(arguments, "threads", 0),
    )


def _types(
    model: Model, arguments: argparse.Namespace, given: Mapping[str, Any] | None = None
) -> dict[str, TensorType]:
    """Types of all inputs; tells which sizes were chosen where the model leaves them open."""
    given = given or {}
    dims = inputs.choose_dimensions(model.graph, dict(arguments.dim))
    shapes = {**dict(arguments.shape), **{n: v.shape for n, v in given.items() if n in model.graph.inputs}}
    open_dims = [d for n in model.graph.inputs if n not in shapes for d in model.graph.tensor_type(n).shape or ()]
    chosen = [f"{d}={dims[d]}" for d in dict.fromkeys(open_dims) if isinstance(d, str) and d not in dict(arguments.dim)]
    if chosen:
        print(f"chosen: {', '.join(chosen)} (--dim NAME=SIZE for others)", file=sys.stderr)
    return inputs.input_types(model.graph, dims, shapes)


def _feeds(model: Model, arguments: argparse.Namespace) -> dict[str, Any]:
    given = inputs.read_arrays(arguments.inputs)
    types = _types(model, arguments, given)
    return inputs.complete(model.graph, given, types, arguments.fill, arguments.seed)


def _print(arguments: argparse.Namespace, data: Any, text: Callable[[], str]) -> None:
    print(json.dumps(data, indent=2, default=_plain) if arguments.json else text())


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def _run(arguments: argparse.Namespace) -> int:
    model = load_model(arguments.model)
    feeds = _feeds(model, arguments)
    progress("loading", 0, None)
    session = InferenceSession(model, _options(arguments), [arguments.provider])
    times: list[float] = []
    values: list[Any] = []
    for count in range(arguments.repeat):
        start = time.perf_counter()
        values = session.run(None, feeds)
        times.append(time.perf_counter() - start)
        progress("running", count + 1, arguments.repeat)
    names = [o.name for o in session.get_outputs()]
    if arguments.output is not None:
        np.savez(arguments.output, **dict(zip(names, values, strict=True)))
    milliseconds = {"first": times[0] * 1e3}
    if len(times) > 1:
        milliseconds |= {"least": min(times[1:]) * 1e3, "median": median(times[1:]) * 1e3}
    rows = [{"name": n, **_summary(v)} for n, v in zip(names, values, strict=True)]
    data = {"outputs": rows, "milliseconds": milliseconds, "providers": session.explain().counts}

    def text() -> str:
        cells = [(r["name"], r["type"], r["range"], r["values"]) for r in rows]
        spent = ", ".join(f"{kind} {ms:.3g} ms" for kind, ms in milliseconds.items())
        where = ", ".join(f"{n} nodes on {p}" for p, n in data["providers"].items())
        return "\n".join([*table(("output", "type", "range", "values"), cells), "", f"{spent}; {where}"])

    _print(arguments, data, text)
    return YES


def _summary(value: Any) -> dict[str, str]:
    if not isinstance(value, np.ndarray):
        return {"type": type(value).__name__, "range": "", "values": str(value)[:200]}
    spread = ""
    if value.size and value.dtype.kind in "fiu":
        spread = f"{value.min():.6g} to {value.max():.6g}"
    head = ", ".join(f"{v:.5g}" if value.dtype.kind == "f" else str(v) for v in value.reshape(-1)[:5])
    return {"type": describe(value), "range": spread, "values": head + (", …" if value.size > 5 else "")}


def _inspect(arguments: argparse.Namespace) -> int:
    from .estimating import estimate
    from .inspecting import inspect

    model = load_model(arguments.model)
    found = inspect(model, _types(model, arguments))
    if arguments.estimate:
        found.estimates = estimate(found)
    _print(arguments, found.to_dict(), lambda: f"{found}\n\n{found.layer_table()}" if arguments.nodes else str(found))
    return YES


def _check(arguments: argparse.Namespace) -> int:
    from .checking import ERROR, LEVELS, check, summary, worst

    findings = check(arguments.model)
    counts = summary(findings)

    def text() -> str:
        last = ", ".join(f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}" for level in LEVELS)
        return "\n".join([*map(str, findings), last])

    _print(arguments, {"findings": [f.to_dict() for f in findings], "counts": counts}, text)
    return NO if worst(findings) == ERROR else YES


def _explain(arguments: argparse.Namespace) -> int:
    model = load_model(arguments.model)
    feeds = _feeds(model, arguments)
    session = InferenceSession(model, _options(arguments), [arguments.provider])
    session.run(None, feeds)  # some shapes are known only then
    explanation = session.explain()
    _print(arguments, explanation.to_dict(), lambda: str(explanation))
    return YES


def _profile(arguments: argparse.Namespace) -> int:
    from .profiling import profile

    model = load_model(arguments.model)
    feeds = _feeds(model, arguments)
    found = profile(model, feeds, _options(arguments), [arguments.provider], arguments.runs, arguments.trace)
    _print(arguments, found.to_dict(), lambda: str(found))
    return YES


def _compare(arguments: argparse.Namespace) -> int:
    from .comparing import Side, Tolerance, compare

    model = load_model(arguments.model)
    feeds = _feeds(model, arguments)
    label = Path(arguments.model).name
    first = Side(f"{label} on {arguments.on}", model, arguments.on, _options(arguments))
    if arguments.saved is not None:
        second = Side(arguments.saved, None, values=saved(arguments.saved))
    else:
        other = arguments.other or arguments.model
        engine = arguments.against or ("cpu" if arguments.other else "numpy")
        second = Side(f"{Path(other).name} on {engine}", load_model(other), engine, _options(arguments))
    tolerance = None
    if arguments.rtol is not None or arguments.atol is not None:
        tolerance = Tolerance(arguments.rtol or 0.0, arguments.atol or 0.0, "asked for")
    shown = None if arguments.json else progress
    found = compare(first, second, feeds, nodes=arguments.nodes, tolerance=tolerance, progress=shown)
    if shown is not None:
        progress("compared", 1, 1)
    _print(arguments, found.to_dict(), lambda: str(found))
    return YES if found.agree else NO


def _optimize(arguments: argparse.Namespace) -> int:
    if arguments.list:
        print("\n".join(rewrites.names()))
        return YES
    if arguments.model is None or arguments.output is None:
        raise FeedError("name the model and the file to write: onnxlet optimize MODEL OUTPUT")
    model = load_model(arguments.model)
    graph = rewrites.optimize(model.graph, _options(arguments))
    rewrites.write(model, graph, arguments.output)
    written = load_model(arguments.output)
    data = {
        "nodes": [len(model.graph.nodes), len(written.graph.nodes)],
        "bytes": [Path(arguments.model).stat().st_size, Path(arguments.output).stat().st_size],
    }

    def text() -> str:
        (before, after), (old, new) = data["nodes"], data["bytes"]
        return f"{arguments.output}: {after} nodes of {before}, {new:,} bytes of {old:,}"

    _print(arguments, data, text)
    return YES


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab  # type: ignore[import-not-found]
    except ImportError:
        raise OnnxletError("shell completion needs the package shtab: pip install 'onnxlet[cli]'") from None
    print(shtab.complete(build_parser(), shell=arguments.shell))
    return YES


def build_parser() -> argparse.ArgumentParser:
    """The command line's parser; every command's function is its default `command`."""
    parser = argparse.ArgumentParser(
        prog="onnxlet", description="Run ONNX models, and look into them.", epilog=(__doc__ or "").split("\n\n")[-1]
    )
    parser.add_argument("--version", action="version", version=f"onnxlet {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(command=function)
        made.add_argument("--json", action="store_true", help="print data for programs instead of text")
        return made

    run = command("run", _run, "run a model on given or made-up inputs, and show its outputs")
    _add_model(run)
    _add_inputs(run)
    _add_session(run)
    run.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="run N times and show the least and median time"
    )
    run.add_argument("-o", "--output", metavar="FILE.npz", help="write the outputs there")

    look = command("inspect", _inspect, "show what a model is made of: inputs, operators, weights, work, memory")
    _add_model(look)
    _add_shapes(look)
    look.add_argument("--nodes", action="store_true", help="a line for every node too")
    look.add_argument("--estimate", action="store_true", help="measure this machine and estimate a run's time")

    check = command("check", _check, "look for errors and waste in a model")
    _add_model(check)

    explain = command("explain", _explain, "run a model, and show where every node ran and why not elsewhere")
    _add_model(explain)
    _add_inputs(explain)
    _add_session(explain)

    profile = command("profile", _profile, "show where the time of a run goes, by operator and node by node")
    _add_model(profile)
    _add_inputs(profile)
    _add_session(profile)
    profile.add_argument("--runs", type=int, default=20, metavar="N", help="how many runs the medians are of")
    profile.add_argument("--trace", default="", metavar="FILE", help="write a trace for chrome://tracing or Perfetto")

    compare = command("compare", _compare, "compare two models, two providers, or two runtimes")
    _add_model(compare)
    _add_inputs(compare)
    _add_session(compare)
    compare.add_argument("--on", choices=tuple(ENGINES), default="cpu", help="what runs the model")
    compare.add_argument("--other", metavar="MODEL", help="another model, with outputs of the same names")
    compare.add_argument(
        "--against", choices=tuple(ENGINES), help="what runs the other one; numpy, or with --other cpu"
    )
    compare.add_argument("--saved", metavar="FILE.npz", help="compare with outputs saved there instead")
    compare.add_argument(
        "--nodes", action="store_true", help="compare the values of all nodes, and find the first to differ"
    )
    compare.add_argument("--rtol", type=float, help="tolerance as a share of each value")
    compare.add_argument("--atol", type=float, help="tolerance as a share of the largest value of the tensor")

    optimize = command("optimize", _optimize, "write the rewritten model to a file that other runtimes can run too")
    optimize.add_argument("model", nargs="?", help="the .onnx file")
    optimize.add_argument("output", nargs="?", help="the file to write")
    optimize.add_argument("--list", action="store_true", help="list the rewrites in the order in which they are made")
    optimize.add_argument("--level", choices=tuple(LEVELS), default="all", help="which rewrites are made")
    optimize.add_argument("--disable", action="append", default=[], metavar="REWRITE", help="leave a rewrite out")

    completion = command("completion", _completion, "print a script that completes this command in a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line (default: the process's own) and return its exit code."""
    options = build_parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
        try:
            return options.command(options)
        except BrokenPipeError:  # `onnxlet ... | head` has seen enough
            sys.stderr.close()
            return YES
        except (OnnxletError, OSError, ValueError) as error:
            print(f"onnxlet: {error}", file=sys.stderr)
            return FAILED


if __name__ == "__main__":
    sys.exit(main())
