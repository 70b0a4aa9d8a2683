"""onnxlet runs ONNX models from Python: in the browser (Pyodide) and on the desktop."""

from __future__ import annotations

from . import archive

__path__ = archive.extended(__path__)

from .errors import (
    DeviceLostError,
    ExternalDataError,
    FeedError,
    LimitError,
    MissingOperatorsError,
    ModelError,
    NodeError,
    OnnxletError,
    ProviderError,
    SessionClosedError,
    ShapeError,
    TerminatedError,
    UnsupportedError,
)
from .features import Feature, features, ready
from .io_binding import IOBinding
from .limits import Limits
from .model.loader import load_model as load
from .model.writer import save
from .ops import op
from .options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from .providers import get_all_providers, get_available_providers
from .session import InferenceSession, ModelMetadata, NodeArg
from .values import OrtValue

__version__ = "0.1.0"


def install_as_onnxruntime(version: str = "1.32.0") -> None:
    """From now on `import onnxruntime` gives onnxlet, in all packages of this process.

    `onnxruntime.capi` has the modules that inference code uses. Who asks for installed distributions, as `pip`'s and
    micropip's resolvers and `importlib.metadata.version` do, finds `onnxruntime` (and `onnxruntime-gpu`, ...) at
    `version`; give another one to packages that require it. Calling it again changes nothing but that. An onnxruntime
    that is installed too is not found any more; raises `UnsupportedError` where that one is imported already.

    The API is that of onnxruntime 1.32. Tools that prepare models (`onnxruntime.quantization`, ...) are not there.
    """
    from .onnxruntime_face.install import install

    install(version)


__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "DeviceLostError",
    "ExternalDataError",
    "Feature",
    "FeedError",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LimitError",
    "Limits",
    "MissingOperatorsError",
    "ModelError",
    "ModelMetadata",
    "NodeArg",
    "NodeError",
    "OnnxletError",
    "OrtValue",
    "ProviderError",
    "RunOptions",
    "SessionClosedError",
    "SessionOptions",
    "ShapeError",
    "TerminatedError",
    "UnsupportedError",
    "features",
    "get_all_providers",
    "get_available_providers",
    "install_as_onnxruntime",
    "load",
    "op",
    "ready",
    "save",
]
