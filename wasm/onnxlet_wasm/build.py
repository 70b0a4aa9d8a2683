"""Compiles the kernels with `ziglang`: `python -m onnxlet_wasm.build`, or `build` from a build hook.

One set of C sources (`wasm/kernels`) becomes two WebAssembly modules and the native library of each platform. Nothing
but the PyPI package `ziglang` is needed. This file imports the standard library alone, so that a build hook can load
it by path.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
SOURCES = PACKAGE.parent / "kernels"
LIB = PACKAGE / "lib"
CACHE = PACKAGE.parent.parent / "build" / "kernels"
"""Objects and linked files, by the hash of all that went into them."""

KERNEL = re.compile(r"^KERNEL(?:_ARGUMENTS)?\((\w+),", re.MULTILINE)

SMALL = frozenset({"cumsum.c", "grid_sample.c", "pool_any.c", "rare.c", "roi_align.c", "scatter.c", "topk.c"})
"""Sources of what models seldom ask for, or is no slower so: compiled for size, as every page downloads the kernels."""

SMALL_IN_WASM = SMALL | {
    *(
        "argreduce.c",
        "binary.c",
        "bytes.c",
        "conv.c",
        "conv_transpose.c",
        "depthwise.c",
        "gather.c",
        "gemm.c",
        "int8.c",
    ),
    *("int8_tile.c", "interpreter.c", "layout.c", "rnn.c", "rotary.c", "runtime.c", "tile.c", "trees.c", "weights.c"),
    "winograd.c",
}
"""Sources whose kernels run as many instructions in WebAssembly if they are compiled so, but for a few hundredths
(counted by wasmtime's fuel)."""
WASM_SIZE = ("-Os", "-fno-unroll-loops", "-fno-vectorize", "-fno-slp-vectorize")

WASM_FEATURES = "mvp+simd128+bulk_memory+nontrapping_fptoint+sign_ext+mutable_globals+atomics"
WASM_LINK = (
    *("--no-entry", "--strip-all", "--import-memory", "--shared-memory", "--export-dynamic"),
    *("--initial-memory=1048576", "--max-memory=4294967296", "-z", "stack-size=131072", "--stack-first"),
    *("--export=__stack_pointer", "--export=__heap_base"),
)


class BuildError(Exception):
    """The kernels could not be compiled; the message holds what the compiler said."""


@dataclass(frozen=True)
class Output:
    """One file to build: its name, zig's target and processor, and how it is linked (arguments of `zig cc`)."""

    name: str
    target: str
    cpu: str
    link: tuple[str, ...] = ()

    @property
    def wasm(self) -> bool:
        return self.target.startswith("wasm")


LINUX = ("-shared", "-nostdlib", "-Wl,--strip-all")
MACOS = ("-shared", "-Wl,-dead_strip")
WINDOWS = ("-shared", "-nostdlib", "-lcompiler_rt", "-lkernel32", "-Wl,--strip-all")

TARGETS: dict[str, tuple[Output, ...]] = {
    "wasm": (
        Output("kernels.wasm", "wasm32-freestanding", f"{WASM_FEATURES}+relaxed_simd"),
        Output("kernels-plain.wasm", "wasm32-freestanding", WASM_FEATURES),
    ),
    "linux-x86_64": (
        Output("kernels.so", "x86_64-linux-gnu.2.17", "x86_64_v3", LINUX),
        Output("kernels-baseline.so", "x86_64-linux-gnu.2.17", "x86_64_v2", LINUX),
    ),
    "linux-aarch64": (Output("kernels.so", "aarch64-linux-gnu.2.17", "generic", LINUX),),
    "macos-x86_64": (
        Output("kernels.dylib", "x86_64-macos", "x86_64_v3", MACOS),
        Output("kernels-baseline.dylib", "x86_64-macos", "x86_64_v2", MACOS),
    ),
    "macos-arm64": (Output("kernels.dylib", "aarch64-macos", "apple_m1", MACOS),),
    "windows-x86_64": (
        Output("kernels.dll", "x86_64-windows-gnu", "x86_64_v3", WINDOWS),
        Output("kernels-baseline.dll", "x86_64-windows-gnu", "x86_64_v2", WINDOWS),
    ),
}
"""What is built for each target. A `baseline` file is for processors without AVX2: the loader chooses."""


def native_target() -> str:
    """The key of `TARGETS` for this machine. Raises `BuildError` where there is none."""
    system = {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if system == "macos" and machine == "aarch64":
        machine = "arm64"
    key = f"{system}-{machine}"
    if key not in TARGETS:
        raise BuildError(f"no native kernels for {key}: there are {', '.join(k for k in TARGETS if k != 'wasm')}")
    return key


def build(
    out_dir: Path | str = LIB, targets: Sequence[str] = ("wasm", "native"), jobs: int | None = None
) -> list[Path]:
    """Compile the kernels for the given keys of `TARGETS` (`native` is this machine) into `out_dir`; returns the files.

    What did not change is not compiled again. Raises `BuildError` with the compiler's words, or with what to install
    where `ziglang` is missing.
    """
    out_dir = Path(out_dir)
    outputs = [o for t in targets for o in TARGETS[native_target() if t == "native" else t]]
    if len({o.name for o in outputs}) < len(outputs):
        raise BuildError(f"{', '.join(targets)}: some of these have files of the same name; build them apart")
    if importlib.util.find_spec("ziglang") is None:
        raise BuildError(
            f"the kernels are compiled by ziglang, which is missing: {sys.executable} -m pip install ziglang"
        )
    inc = "".join(f"ENTRY({name})\n" for name in kernel_names())
    shared = hashlib.sha256(inc.encode())
    for header in sorted(SOURCES.glob("*.h")):
        shared.update(header.read_bytes())
    out_dir.mkdir(parents=True, exist_ok=True)
    written = []
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        for output in outputs:
            linked = _build_one(output, inc, shared.hexdigest(), pool)
            destination = out_dir / output.name
            if not destination.exists() or destination.read_bytes() != linked.read_bytes():
                _place(linked, destination)
            written.append(destination)
    return written


def kernel_names() -> list[str]:
    """The names of all kernels in the sources, in the order in which the interpreter numbers them."""
    names = [name for source in sorted(SOURCES.glob("*.c")) for name in KERNEL.findall(source.read_text())]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise BuildError(f"defined more than once: {', '.join(twice)}")
    return names


def _build_one(output: Output, inc: str, shared: str, pool: ThreadPoolExecutor) -> Path:
    flags = [
        *("-target", output.target, f"-mcpu={output.cpu}", "-O3", "-std=c11", "-ffreestanding", "-fvisibility=hidden"),
        *("-fno-sanitize=all", "-fno-math-errno", "-ffp-contract=off", "-fno-stack-protector", "-Wall", "-Wextra"),
        *("-fomit-frame-pointer", "-Wno-unused-function"),
    ]
    flags += [] if output.wasm or "windows" in output.target else ["-fPIC"]
    sources: list[tuple[str, bytes]] = [(s.name, s.read_bytes()) for s in sorted(SOURCES.glob("*.c"))]
    if output.wasm:
        sources.append(("hot_loops.s", _hot_loops("relaxed_simd" in output.cpu).encode()))
    folder = CACHE / output.target / output.cpu.replace("+", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernels.inc").write_text(inc)

    def compile_one(item: tuple[str, bytes]) -> Path:
        name, content = item
        chosen = [*flags, f"-I{folder}", f"-I{SOURCES}"]
        if output.wasm and name in SMALL_IN_WASM:
            chosen += WASM_SIZE
        elif name in SMALL:
            chosen.append("-Os")
        if name.endswith(".s"):
            chosen = flags[:3]
        key = hashlib.sha256("\0".join([shared, *chosen, name]).encode() + content).hexdigest()[:24]
        object_file = folder / f"{Path(name).stem}-{key}.o"
        if not object_file.exists():
            source = SOURCES / name
            if name.endswith(".s"):
                source = folder / name
                source.write_bytes(content)
            _compile(["cc", *chosen, "-c", str(source)], object_file)
        return object_file

    objects = list(pool.map(compile_one, sources))
    names = [str(o) for o in objects]
    key = hashlib.sha256("\0".join([*names, *output.link, *WASM_LINK]).encode()).hexdigest()[:24]
    linked = folder / key / output.name
    if not linked.exists():
        linked.parent.mkdir(exist_ok=True)
        if output.wasm:
            _compile(["wasm-ld", *WASM_LINK, *names], linked)
        else:
            _compile(["cc", *flags[:3], *output.link, *names], linked)
    _forget_old(folder, {*objects, linked.parent})
    return linked


def _hot_loops(relaxed: bool) -> str:
    spec = importlib.util.spec_from_file_location("hot_loops", SOURCES / "hot_loops.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.assembly(relaxed)


def _compile(arguments: Iterable[str], result: Path) -> None:
    """Run zig, which writes `result`. The file appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=result.parent) as folder:
        temporary = Path(folder) / result.name
        command = [sys.executable, "-m", "ziglang", *arguments, "-o", str(temporary)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not temporary.exists():
            raise BuildError(f"{' '.join(command)}\n{done.stderr}{done.stdout}")
        if done.stderr.strip():
            print(done.stderr, file=sys.stderr, end="")
        os.replace(temporary, result)


def _place(linked: Path, destination: Path) -> None:
    # A library that is loaded must not be written over: put a new file in its place.
    temporary = destination.with_name(destination.name + ".new")
    shutil.copyfile(linked, temporary)
    os.replace(temporary, destination)


def _forget_old(folder: Path, current: set[Path]) -> None:
    """Keep the cache from growing: drop files that no recent build used."""
    others = [p for p in folder.iterdir() if p not in current and (p.suffix == ".o" or p.is_dir())]
    for old in sorted(others, key=lambda p: p.stat().st_mtime)[:-40]:
        shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile onnxlet's kernels.")
    parser.add_argument("targets", nargs="*", default=["wasm", "native"], help=f"native, {', '.join(TARGETS)}")
    parser.add_argument("--out", type=Path, default=LIB, help="where the files go")
    parser.add_argument("--jobs", type=int, help="how many compilers run at once")
    options = parser.parse_args()
    try:
        for file in build(options.out, options.targets, options.jobs):
            print(f"{file} {file.stat().st_size:,} bytes")
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
