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
    UnsupportedError,
)
from .features import Feature, features, ready
from .io_binding import IOBinding
from .limits import Limits
from .model.loader import load_model as load
from .model.writer import save
from .ops import op
from .options import ExecutionMode, GraphOptimizationLevel, SessionOptions
from .providers import get_all_providers, get_available_providers
from .session import InferenceSession, ModelMetadata, NodeArg
from .values import OrtValue

__version__ = "0.1.0"

__all__ = [
    "ExecutionMode",
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
    "SessionClosedError",
    "SessionOptions",
    "ShapeError",
    "UnsupportedError",
    "features",
    "get_all_providers",
    "get_available_providers",
    "load",
    "op",
    "ready",
    "save",
]
