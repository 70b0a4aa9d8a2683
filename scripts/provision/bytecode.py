"""The bytecode form of a wheel, as `pyodide py-compile` makes it; runs inside Pyodide, so it imports nothing of ours.

A page that loads it compiles no Python: it saves most of the time between "downloaded" and "imported".
"""

from __future__ import annotations

import base64
import hashlib
import os
import py_compile
import re
import sys
import tempfile
import zipfile


def compile_wheel(wheel: str, folder: str) -> str:
    """Write the bytecode form of a pure wheel into `folder` and return its name, tagged for the running Python."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name, version, _, abi, platform = os.path.basename(wheel).removesuffix(".whl").split("-")
    result = f"{name}-{version}-{python}-{abi}-{platform}.whl"
    os.makedirs(folder, exist_ok=True)
    rows: list[str] = []
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(os.path.join(folder, result), "w") as new:

        def add(path: str, content: bytes) -> None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(content)}")
            _write(new, path, content)

        for path in old.namelist():
            content = old.read(path)
            if path.endswith(".dist-info/RECORD"):
                record = path
            elif path.endswith(".dist-info/WHEEL"):
                tag = f"Tag: {python}-{abi}-{platform}"
                add(path, re.sub(r"(?m)^Tag: .*$", tag, content.decode()).encode())
            elif path.endswith(".py"):
                add(path + "c", _compiled(path, content))
            else:
                add(path, content)
        _write(new, record, "".join(row + "\n" for row in [*rows, f"{record},,"]).encode())
    return result


def _compiled(path: str, source: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        plain, compiled = os.path.join(folder, "module.py"), os.path.join(folder, "module.pyc")
        with open(plain, "wb") as file:
            file.write(source)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(plain, compiled, dfile=path, doraise=True, invalidation_mode=mode)
        with open(compiled, "rb") as file:
            return file.read()


def _write(archive: zipfile.ZipFile, path: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))  # the same wheel from the same source, byte for byte
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
