#!/usr/bin/env python3
"""From a fresh clone to the demo in a browser: sets everything up, assembles the site and serves it.

Needs Python 3.11 or newer and nothing else. What is downloaded is cached in `build/cache` (or `$ONNXLET_CACHE`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("onnxlet needs Python 3.11 or newer; this is " + sys.version.split()[0])

from provision import browser, venv
from provision.console import guarded, say
from provision.paths import REPOSITORY
from provision.prepare import prepare


def main() -> int:
    parser = argparse.ArgumentParser(description="Set onnxlet up and serve the demo on this machine.")
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1 (8000)")
    parser.add_argument(
        "--check", action="store_true", help="run the demo once in headless Chromium, print its answers, and end"
    )
    options = parser.parse_args()

    say("Setting onnxlet up")
    groups = ["build", "browser"] if options.check else ["build"]
    size = "about 190 MB, most of it the compiler" if options.check else "about 140 MB, most of it the compiler"
    site = prepare(groups, ["demo"], f"Installing packages from PyPI ({size})")
    if options.check:
        chromium = browser.chromium()
        command = [venv.python(), REPOSITORY / "scripts" / "check_page.py", "--site", site, "--chromium", chromium]
        return subprocess.run(command).returncode
    say(f"\nServing on http://127.0.0.1:{options.port} (Ctrl-C ends)")
    command = [str(venv.python()), "-m", "demo_site", "--site", str(site), "--port", str(options.port)]
    os.chdir(REPOSITORY)
    if os.name == "nt":
        return subprocess.run(command).returncode
    os.execv(command[0], command)  # one process: who ends it ends the server


if __name__ == "__main__":
    sys.exit(guarded(main))
