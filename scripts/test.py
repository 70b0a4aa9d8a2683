#!/usr/bin/env python3
"""Sets everything up as `run.py` does and runs the tests: `python3 scripts/test.py [pytest arguments]`.

Without arguments the whole suite runs, on two processes. With CI=true nothing may be skipped for want of a browser or
a GPU adapter. `--full` runs the long combinations instead (builds, optimisation levels, threads), and writes
docs/full.md.
"""

from __future__ import annotations

import os
import subprocess
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("onnxlet needs Python 3.11 or newer; this is " + sys.version.split()[0])

import full

from provision import browser, gpu, venv
from provision.console import SetupError, guarded, say
from provision.paths import REPOSITORY
from provision.prepare import prepare, test_pyodides

WHOLE_SUITE = ["-n", "2"]


def main() -> int:
    say("Setting onnxlet's tests up")
    prepare(["dev"], [], "Installing packages from PyPI (about 400 MB: the compiler, peers to compare with, tools)")
    test_pyodides()
    env = dict(os.environ)
    strict = env.get("CI") == "true"
    try:
        env["ONNXLET_CHROMIUM"] = browser.chromium()
        env.update(gpu.adapter())
    except SetupError as error:
        if strict:
            raise
        say(f"  Tests that need it will be skipped: {error}")
    if "--full" in sys.argv:
        return full.run([argument for argument in sys.argv[1:] if argument != "--full"], env)
    arguments = sys.argv[1:] or WHOLE_SUITE
    say(f"\npytest {' '.join(arguments)}")
    return subprocess.run([venv.python(), "-m", "pytest", *arguments], cwd=REPOSITORY, env=env).returncode


if __name__ == "__main__":
    sys.exit(guarded(main))
