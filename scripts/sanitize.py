#!/usr/bin/env python3
"""Runs kernels under the address and undefined-behaviour sanitizers: `python3 scripts/sanitize.py [pytest arguments]`.

The native library is compiled once more, by Debian's clang (ziglang has no runtime of the address sanitizer), and takes
the place of the usual one while pytest runs (see `provision/watched.py`): without arguments, the kernels' own tests and
the standard's cases for single operators. The first thing that a sanitizer finds ends the run; its report names the
line in the sources.

    apt-get install clang-19 libclang-rt-19-dev

Needs what `scripts/test.py` has set up. See docs/building.md.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from provision import venv
from provision.console import SetupError, guarded, say
from provision.paths import BUILD, REPOSITORY

OLDEST_CLANG = 17
"""Before, clang lacks some of the elementwise builtins that the kernels use."""

LIBRARIES = {"kernels.so": "x86-64-v3", "kernels-baseline.so": "x86-64-v2"}

FLAGS = (
    *("-std=c11", "-O1", "-g", "-shared", "-fPIC", "-ffreestanding", "-fno-omit-frame-pointer", "-ffp-contract=off"),
    *("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-shared-libsan"),
    "-fno-sanitize=pointer-overflow",  # an absent operand is a null pointer, to which no more than 0 is added
)

DEFAULT_TESTS = (
    *("tests/wasm", "tests/conformance/test_node_suite.py", "--ignore", "tests/wasm/test_build.py", "-x", "-q"),
    *("-k", "not wasm-relaxed and not wasm-plain and not definitions"),
)

WATCHED = REPOSITORY / "scripts/provision/watched.py"


def main() -> int:
    clang, out = find_clang(), BUILD / "sanitized"
    out.mkdir(parents=True, exist_ok=True)
    for name, processor in LIBRARIES.items():
        say(f"{clang}: {name} for {processor}")
        compile_kernels(clang, processor, out / name)
    # What is loaded first watches over all memory; it must find C++'s exceptions, which other packages throw.
    first = [_ask(clang, f"-print-file-name={name}") for name in ("libclang_rt.asan-x86_64.so", "libstdc++.so.6")]
    env = dict(os.environ, LD_PRELOAD=" ".join(first))
    # pytest catches what is printed, and would take a report with it when the process ends.
    for old in out.glob("report.*"):
        old.unlink()
    common = f"log_path={out / 'report'}:print_stacktrace=1"
    env |= {"ASAN_OPTIONS": f"{common}:detect_leaks=0:alloc_dealloc_mismatch=0", "UBSAN_OPTIONS": common}
    tests = sys.argv[1:] or DEFAULT_TESTS
    say(f"pytest {' '.join(tests)}")
    code = subprocess.run([venv.python(), WATCHED, out, *tests], cwd=REPOSITORY, env=env).returncode
    for report in sorted(out.glob("report.*")):
        say(f"\n{report}:\n{report.read_text(errors='replace')}")
    return code


def find_clang() -> str:
    """The newest clang that is there. Raises `SetupError` where none is new enough."""
    found: dict[int, str] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for path in Path(folder).glob("clang-[0-9]*"):
            if match := re.fullmatch(r"clang-(\d+)", path.name):
                found[int(match[1])] = str(path)
    newest = max(found, default=0)
    if newest < OLDEST_CLANG:
        raise SetupError(
            f"clang {OLDEST_CLANG} or newer with its sanitizers is needed: apt-get install clang-19 libclang-rt-19-dev"
        )
    return found[newest]


def compile_kernels(clang: str, processor: str, library: Path) -> None:
    """Compile all sources into one library. Raises `SetupError` with the compiler's words."""
    build = _build_module()
    (library.parent / "kernels.inc").write_text("".join(f"ENTRY({name})\n" for name in build.kernel_names()))
    sources = sorted(str(path) for path in build.SOURCES.glob("*.c"))
    command = [clang, *FLAGS, f"-march={processor}", f"-I{library.parent}", *sources, "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"{' '.join(command)}\n{done.stderr}")


def _build_module() -> ModuleType:
    """What compiles the kernels; it needs nothing of its package."""
    spec = importlib.util.spec_from_file_location("kernel_build", REPOSITORY / "wasm/onnxlet_wasm/build.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ask(clang: str, question: str) -> str:
    """What the compiler says of one of its files. Raises `SetupError` where that is missing."""
    answer = subprocess.run([clang, question], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(answer).is_absolute():
        raise SetupError(f"{answer} is missing: apt-get install libclang-rt-{Path(clang).name.split('-')[-1]}-dev")
    return answer


if __name__ == "__main__":
    if sys.platform != "linux":
        sys.exit("The sanitizers are used on Linux.")
    sys.exit(guarded(main))
