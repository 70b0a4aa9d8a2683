"""A wheel that installs as `onnxruntime` and is onnxlet: for environments whose packages require onnxruntime.

`python -m onnxlet.tools.stand_in FOLDER` writes one.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import zipfile

from ..onnxruntime_face.install import VERSION, metadata

MODULE = '''"""onnxlet in the place of onnxruntime."""

import sys

from onnxlet.onnxruntime_face.install import fill, install

sys.modules[__name__].__onnxlet__ = True
install("{version}")
fill(sys.modules[__name__])
'''


def write(folder: str | os.PathLike[str], version: str = VERSION, name: str = "onnxruntime") -> str:
    """Write the wheel into a folder, and return its path. `version` is what it gives itself out for, and `name` the
    distribution that it takes the place of, such as ``onnxruntime-gpu``."""
    stem = f"{name.replace('-', '_')}-{version}"
    files = {
        "onnxruntime/__init__.py": MODULE.format(version=version),
        f"{stem}.dist-info/METADATA": metadata(name, version, "Requires-Dist: onnxlet"),
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: onnxlet\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in files.items()]
    record = f"{stem}.dist-info/RECORD"
    files[record] = "\n".join([*rows, f"{record},,", ""])
    path = os.path.join(os.fspath(folder), f"{stem}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m onnxlet.tools.stand_in",
        description="Write a wheel that installs as onnxruntime and is onnxlet.",
    )
    parser.add_argument("folder", help="where to write the wheel")
    parser.add_argument("--version", default=VERSION, help="the version that it gives itself out for (%(default)s)")
    parser.add_argument("--name", default="onnxruntime", help="the distribution whose place it takes (%(default)s)")
    options = parser.parse_args()
    print(write(options.folder, options.version, options.name))


if __name__ == "__main__":
    main()
