"""Onnxruntime's Python API, by onnxlet: what `import onnxruntime` gives after `onnxlet.install_as_onnxruntime()`.

`NAMES` holds what each of onnxruntime's modules has. The API is that of onnxruntime `install.VERSION`; what there is no
use for here is accepted, and what onnxlet does not have is refused when it is used (`NotImplemented`).
"""

from __future__ import annotations

from typing import Any

from ..io_binding import IOBinding
from ..options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from ..providers import get_all_providers, get_available_providers
from ..session import ModelMetadata, NodeArg
from ..values import OrtValue
from . import state
from .errors import CLASSES
from .install import VERSION
from .session import InferenceSession, check_and_normalize_provider_args
from .sparse import OrtSparseFormat, SparseBlockSparseView, SparseCooView, SparseCsrView, SparseTensor

_COMMON: dict[str, Any] = {
    **state.ENUMERATIONS,
    **state.REFUSING,
    **{name: value for name, value in vars(state).items()
       if getattr(value, "__module__", "") == state.__name__ and not name.startswith("_")},
    **{
        value.__name__: value
        for value in (
            ExecutionMode, ExecutionOrder, GraphOptimizationLevel, IOBinding, InferenceSession, ModelMetadata, NodeArg,
            OrtSparseFormat, OrtValue, SparseTensor, get_all_providers, get_available_providers,
        )
    },
    "SessionIOBinding": IOBinding,
}  # fmt: skip
"""What all of the modules have."""

_INTERNAL = {
    "ArenaExtendStrategy", "OrtCompiledModelCompatibility", "OrtDeviceEpIncompatibilityReason", "OrtValueVector",
    "SessionObjectInitializer", "get_default_session_options", "get_hardware_devices", "get_ort_device_type", "refuse",
    *state.REFUSED_FUNCTIONS,
} - {"register_execution_provider_library", "unregister_execution_provider_library"}  # fmt: skip
"""What the top module has not."""

_STATE = {
    **_COMMON,
    **CLASSES,
    **{value.__name__: value for value in (SparseBlockSparseView, SparseCooView, SparseCsrView)},
    **state.ENUMERATIONS["ArenaExtendStrategy"].__members__,
    "Session": InferenceSession,
    "check_and_normalize_provider_args": check_and_normalize_provider_args,
}

NAMES: dict[str, dict[str, Any]] = {
    "onnxruntime": {name: value for name, value in _COMMON.items() if name not in _INTERNAL},
    "onnxruntime.capi": {},
    "onnxruntime.capi.onnxruntime_pybind11_state": _STATE,
    "onnxruntime.capi._pybind_state": _STATE,
    "onnxruntime.capi.onnxruntime_inference_collection": _STATE,
    "onnxruntime.capi.onnxruntime_validation": {
        "check_distro_info": lambda: None,
        "get_package_name_and_version_info": lambda: ("onnxruntime", VERSION, ""),
    },
    "onnxruntime.capi.build_and_package_info": {"package_name": "onnxruntime", "__version__": VERSION},
}
"""The contents of onnxruntime's modules."""
