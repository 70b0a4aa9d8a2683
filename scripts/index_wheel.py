"""An index of what the families in a wheel register, so that a model imports only its own operators' families.

See `onnxlet.families`. What a family registers is seen by importing it, once, here.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import zipfile
from collections import defaultdict
from pathlib import Path

import slim_wheel

MODULE = "onnxlet/family_index.py"

# Prints [package, family, "domain:name"] for every registration; a family is the module that is being imported.
RECORD = """
import json, sys

found = []

def watch(frame, event, argument):
    if event != "call" or frame.f_code.co_name != "register" or "FAMILIES" not in frame.f_globals:
        return
    given, package, caller = frame.f_locals, frame.f_globals["FAMILIES"].package, frame.f_back
    while caller.f_code.co_name != "<module>":
        caller = caller.f_back
    family = caller.f_globals["__name__"].removeprefix(package + ".")
    for name in given.get("names") or [given["name"]]:
        # An operator may be written out in several ways, each for some of its types.
        once = not frame.f_globals["__name__"].endswith(".expansion")
        found.append([package, family, f"{given['domain']}:{name}", once])

sys.setprofile(watch)
import onnxlet.graph.infer.registry, onnxlet.ops.registry, onnxlet_wasm.lowering.registry
for module in (onnxlet.graph.infer, onnxlet.ops, onnxlet_wasm.lowering):
    module.registry.FAMILIES.load_all()
print(json.dumps(found))
"""


def add(wheel: Path, python: Path) -> None:
    """Put the index into an unpacked wheel, whose modules `python` can import.

    Raises `ValueError` where what a family registers depends on the order of imports.
    """
    contents = slim_wheel.read(wheel)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        command = [str(python), "-P", "-c", f"import sys; sys.path.insert(0, {folder!r})\n{RECORD}"]
        registrations = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    names: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    once: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for package, family, word, only in registrations:
        names[package][family].add(word)
        if only:
            once[package].add((family, word))
    for package in names:
        words = [word for _, word in once[package]]
        if package != "onnxlet.ops" and len(words) > len(set(words)):  # an operator's versions may be in several
            twice = sorted({word for word in words if words.count(word) > 1})
            raise ValueError(f"{package}: two families register {', '.join(twice)}")
    table = {
        package: {family: _by_domain(words) for family, words in sorted(families.items())}
        for package, families in names.items()
    }
    contents[MODULE] = f"NAMES = {table!r}\n".encode()
    slim_wheel.write(wheel, contents)


def _by_domain(words: set[str]) -> dict[str, str]:
    """The names after each domain, in one text."""
    found: dict[str, list[str]] = defaultdict(list)
    for word in sorted(words):
        domain, _, name = word.rpartition(":")
        found[domain].append(name)
    return {domain: " ".join(names) for domain, names in found.items()}
