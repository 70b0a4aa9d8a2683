"""A packed wheel is the same package: Python imports the modules from its archives."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pack_wheel
import pytest
import slim_wheel

from onnxlet.archive import unpacked
from provision import bytecode, packaging
from tests.conftest import REPOSITORY

SOURCE = 'def refuse(x):\n    """Never."""\n    raise ValueError(x)\n'


def small_wheel(folder: Path) -> Path:
    """Two packages, one with a subpackage and files that are no modules."""
    wheel = folder / "small-1-py3-none-any.whl"
    contents = {
        "small/__init__.py": "from . import archive\n__path__ = archive.extended(__path__)\n",
        "small/a.py": "from .inner import b\n",
        "small/archive.py": (REPOSITORY / "core" / "onnxlet" / "archive.py").read_text("utf-8"),
        "small/inner/__init__.py": "",
        "small/inner/b.py": SOURCE,
        "small/inner/data.js": "1;\n",
        "other/__init__.py": "from small import archive\n__path__ = archive.extended(__path__)\n",
        "other/c.py": "from small.inner.b import refuse\n",
        "small-1.dist-info/RECORD": "",
    }
    slim_wheel.write(wheel, {name: text.encode() for name, text in contents.items()})
    return wheel


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A folder with what the packed form of the small wheel installs."""
    pack_wheel.pack(small_wheel(tmp_path), tmp_path / "packed.whl")
    with zipfile.ZipFile(tmp_path / "packed.whl") as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def python(site: Path, code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=site, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_modules_are_packed(packed: Path) -> None:
    files = {str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file()}
    assert files == {
        *("small/__init__.py", "small/archive.py", "small/modules.pack", "small/inner/data.js"),
        *("other/__init__.py", "small-1.dist-info/RECORD"),
    }
    modules = dict(unpacked((packed / "small" / "modules.pack").read_bytes()))
    assert list(modules) == ["other/c.py", "small/a.py", "small/inner/__init__.py", "small/inner/b.py"]
    assert modules["small/inner/b.py"] == SOURCE.encode()


def test_modules_that_are_not_there_are_missed(packed: Path) -> None:
    code = "import importlib.util as u; print(u.find_spec('small.x'), u.find_spec('small.inner.x'))"
    assert python(packed, code) == "None None\n"


def test_modules_are_imported_from_the_archives(packed: Path) -> None:
    code = "import small.a, other.c, pickle; print(pickle.loads(pickle.dumps(other.c.refuse)) is small.a.b.refuse)"
    assert python(packed, code) == "True\n"


def test_sources_are_compiled_once(packed: Path) -> None:
    count = """
import sys
compiled = []
sys.addaudithook(lambda event, what: event == "compile" and compiled.append(what[1]))
import small.a
print(sorted(name.rpartition("modules.pack")[2] for name in compiled if "modules.pack" in str(name)))
"""
    expected = [
        os.path.join(os.sep + "small", *parts) for parts in (["a.py"], ["inner", "__init__.py"], ["inner", "b.py"])
    ]
    assert python(packed, count) == f"{expected}\n"


def test_a_subpackage_lists_its_modules(packed: Path) -> None:
    code = "import pkgutil, {0} as p; print([(m.name, m.ispkg) for m in pkgutil.iter_modules(p.__path__)])"
    assert python(packed, code.format("small.inner")) == "[('b', False)]\n"
    assert python(packed, code.format("small")) == "[('archive', False), ('a', False), ('inner', True)]\n"


def test_files_that_are_no_modules_are_found_at_the_top_package(packed: Path) -> None:
    assert python(packed, "import pkgutil; print(pkgutil.get_data('small', 'inner/data.js'))") == "b'1;\\n'\n"


def test_a_traceback_shows_file_line_and_source(packed: Path) -> None:
    code = "import traceback, other.c\ntry: other.c.refuse(1)\nexcept ValueError: print(traceback.format_exc())"
    text = python(packed, code)
    assert 'modules.pack/small/inner/b.py", line 3, in refuse\n    raise ValueError(x)\n' in text


def test_bytecode_is_imported_too(tmp_path: Path) -> None:
    compiled = bytecode.compile_wheel(str(small_wheel(tmp_path)), str(tmp_path))
    pack_wheel.pack(tmp_path / compiled, tmp_path / "packed.whl")
    with zipfile.ZipFile(tmp_path / "packed.whl") as archive:
        archive.extractall(tmp_path / "site")
    names = archive.namelist()
    assert "small/modules.pack" in names
    assert not [name for name in names if name.endswith(".py")]
    code = "import other.c\ntry: other.c.refuse(1)\nexcept ValueError as e: print(e.__traceback__.tb_next.tb_lineno)"
    assert python(tmp_path / "site", code) == "3\n"


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    wheel = small_wheel(tmp_path)
    for name in ("one", "two"):
        pack_wheel.pack(wheel, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_pure_wheel_holds_the_modules_of_the_unpacked_one(tmp_path: Path) -> None:
    wheel = packaging.build_unpacked()
    pack_wheel.pack(wheel, tmp_path / "packed.whl")
    whole, packed = slim_wheel.read(wheel), slim_wheel.read(tmp_path / "packed.whl")
    found = {name: content for name, content in packed.items() if not name.endswith("/modules.pack")}
    for name in (name for name in packed if name.endswith("/modules.pack")):
        found |= dict(unpacked(packed[name]))
    record = "onnxlet-0.1.0.dist-info/RECORD"
    assert found.keys() == whole.keys()
    assert found | {record: b""} == whole | {record: b""}


def test_the_pure_wheel_imports(tmp_path: Path) -> None:
    with zipfile.ZipFile(packaging.build_wheel("pure")) as archive:
        archive.extractall(tmp_path)
    code = "import onnxlet, onnxlet_wasm.program, onnxlet_webgpu.provider; print(onnxlet.session.__file__)"
    assert python(tmp_path, code) == f"{tmp_path / 'onnxlet' / 'modules.pack' / 'onnxlet' / 'session.py'}\n"
    code = "import onnxlet; print(onnxlet.features()['cpu'].detail)"
    assert python(tmp_path, code) == "this is the wheel for browsers, which has no native kernels\n"
