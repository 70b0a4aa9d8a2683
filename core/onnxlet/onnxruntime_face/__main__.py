"""`python -m onnxlet.onnxruntime_face FOLDER` writes a wheel that installs as onnxruntime and is onnxlet."""

from __future__ import annotations

import argparse

from .install import VERSION
from .wheel import write

parser = argparse.ArgumentParser(prog="python -m onnxlet.onnxruntime_face", description=__doc__)
parser.add_argument("folder", help="where to write the wheel")
parser.add_argument("--version", default=VERSION, help="the version that it gives itself out for (%(default)s)")
parser.add_argument("--name", default="onnxruntime", help="the distribution that it takes the place of (%(default)s)")
options = parser.parse_args()
print(write(options.folder, options.version, options.name))
