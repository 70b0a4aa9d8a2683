"""Families are imported when their operators are asked for: all at once, or one by one where there is an index."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from onnxlet.families import Families
from onnxlet.graph.infer.registry import FAMILIES as INFERENCES
from onnxlet.ops.registry import FAMILIES as OPERATORS
from onnxlet.ops.registry import find, registered
from provision import packaging


def python(code: str, folder: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_onnxlet_imports_no_operators() -> None:
    assert python("import sys, onnxlet; print('onnxlet.ops.rnn' in sys.modules)") == "False"


def test_importing_onnxlet_imports_nothing_that_a_page_has_no_use_for() -> None:
    heavy = {"urllib.request", "http.client", "email", "hashlib", "mmap", "html", "tempfile"}
    code = f"import numpy, sys; before = set(sys.modules); import onnxlet; print(({heavy} & set(sys.modules)) - before)"
    assert python(code) == "set()"


@pytest.mark.parametrize("families", [OPERATORS, INFERENCES])
def test_families_are_the_modules_of_a_package(families: Families) -> None:
    names = families.names()
    assert f"{families.package}.registry" in names
    assert len(set(names)) == len(names)


def test_packages_within_count_too() -> None:
    assert "onnxlet.ops.ml.trees" in OPERATORS.names()
    assert find("TreeEnsemble", "ai.onnx.ml", 5) is not None


def test_an_operator_of_ones_own_replaces_one_that_is_not_imported_yet() -> None:
    code = """
import onnxlet
from onnxlet.ops.registry import find
@onnxlet.op("Relu", since=14)
def mine(x): ...
print(find("Relu", "", 14).function is mine, find("Relu", "", 13).function is mine)
"""
    assert python(code) == "True False"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules of a wheel, which has an index."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(packaging.build_unpacked()) as archive:
        archive.extractall(folder)
    return folder


def test_an_index_knows_what_the_modules_register(indexed: Path) -> None:
    code = """
import json
from onnxlet.graph.infer import registry as inferences
from onnxlet.ops import registry as operators
from onnxlet_wasm.lowering import registry as lowerings
indexed = []
for registry in (operators, inferences, lowerings):
    families = registry.FAMILIES
    families.load("", "")
    names = sorted(families._index)
    for domain, name in names:
        families.load(domain, name)
    indexed.append([len(names), families._complete])
registered = {(o.domain, o.name) for o in operators.registered()}
print(json.dumps([indexed, registered == set(operators.FAMILIES._index)]))
"""
    (operators, inferences, lowerings), same = json.loads(python(code, indexed))
    assert same
    ours = {(o.domain, o.name) for o in registered() if o.domain != "my.domain"}  # where other tests have theirs
    assert operators == [len(ours), False]
    assert inferences[0] > 100
    assert lowerings[0] > 100


def test_only_the_families_of_the_operators_asked_for_are_imported(indexed: Path) -> None:
    code = """
import sys
from onnxlet.ops.registry import find
assert find("Relu", "", 14) is not None and find("NoSuch", "", 14) is None
print(*sorted(name for name in sys.modules if name.startswith("onnxlet.ops.") and name.count(".") == 2))
"""
    families = python(code, indexed).split()
    assert "onnxlet.ops.activations" in families
    assert "onnxlet.ops.rnn" not in families
