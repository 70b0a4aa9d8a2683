"""What the extension module of onnxruntime has besides sessions: enumerations, devices, and what onnxlet refuses."""

from __future__ import annotations

import enum
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..errors import UnsupportedError
from ..options import RunOptions as BaseRunOptions
from ..options import SessionOptions as BaseSessionOptions
from ..providers import CPU, WEBGPU, get_available_providers
from ..values import OrtValue
from .errors import STATE, raising
from .install import VERSION

_ENUMERATIONS = """
ArenaExtendStrategy kNextPowerOfTwo=0 kSameAsRequested=1
ModelPackageWriteMode PRESERVE=0 DENSE=1
OrtAllocatorType INVALID=-1 ORT_DEVICE_ALLOCATOR=0 ORT_ARENA_ALLOCATOR=1
OrtCompileApiFlags NONE=0 ERROR_IF_NO_NODES_COMPILED=1 ERROR_IF_OUTPUT_FILE_EXISTS=2
OrtCompiledModelCompatibility EP_NOT_APPLICABLE=0 EP_SUPPORTED_OPTIMAL=1 EP_SUPPORTED_PREFER_RECOMPILATION=2
 EP_UNSUPPORTED=3
OrtDeviceEpIncompatibilityReason NONE=0 DRIVER_INCOMPATIBLE=1 DEVICE_INCOMPATIBLE=2 MISSING_DEPENDENCY=4
 UNKNOWN=-2147483648
OrtDeviceMemoryType DEFAULT=0 HOST_ACCESSIBLE=5
OrtDeviceVendorId NONE=0 AMD=4098 NVIDIA=4318 ARM=5045 MICROSOFT=5140 HUAWEI=6629 QUALCOMM=20803 INTEL=32902
OrtExecutionProviderDevicePolicy DEFAULT=0 PREFER_CPU=1 PREFER_NPU=2 PREFER_GPU=3 MAX_PERFORMANCE=4 MAX_EFFICIENCY=5
 MIN_OVERALL_POWER=6
OrtHardwareDeviceType CPU=0 GPU=1 NPU=2
OrtMemType CPU_INPUT=-2 CPU_OUTPUT=-1 CPU=-1 DEFAULT=0
OrtMemoryInfoDeviceType CPU=0 GPU=1 NPU=3 FPGA=2
"""


def _enumerations() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for row in _ENUMERATIONS.replace("\n ", " ").split("\n")[1:-1]:
        name, *members = row.split()
        pairs = [member.split("=") for member in members]
        found[name] = enum.IntEnum(name, [(key, int(value)) for key, value in pairs], module=STATE)
    return found


ENUMERATIONS = _enumerations()
DeviceMemory, DeviceKind = ENUMERATIONS["OrtDeviceMemoryType"], ENUMERATIONS["OrtHardwareDeviceType"]

DEVICES = {"cpu": 0, "gpu": 1, "cuda": 1, "webgpu": 1, "fpga": 2, "npu": 3, "cann": 3, "dml": 4}
VENDORS = {"cuda": "NVIDIA", "dml": "MICROSOFT", "cann": "HUAWEI", "webgpu": "NONE"}


def get_ort_device_type(device_type: str) -> int:
    """The number of a kind of devices."""
    if device_type not in DEVICES:
        raise Exception("Unsupported device type: " + device_type)
    return DEVICES[device_type]


class OrtDevice:
    """A device, by the numbers of its kind, its memory and its vendor, and its own."""

    def __init__(self, c_ort_device: Any, memory: int = 0, *vendor_and_id: int):
        if isinstance(c_ort_device, OrtDevice):
            self._numbers: tuple[int, ...] = c_ort_device._numbers
        else:
            self._numbers = c_ort_device, memory, *((0, 0, *vendor_and_id)[-2:])

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        if vendor_id < 0:
            vendor_id = int(ENUMERATIONS["OrtDeviceVendorId"][VENDORS.get(ort_device_name, "NONE")])
        return OrtDevice(get_ort_device_type(ort_device_name), 0, int(vendor_id), device_id)

    def _get_c_device(self) -> OrtDevice:
        return self

    def device_type(self) -> int:
        return self._numbers[0]

    def device_mem_type(self) -> int:
        return self._numbers[1]

    def device_vendor_id(self) -> int:
        return self._numbers[2]

    def device_id(self) -> int:
        return self._numbers[3]

    mem_type, vendor_id = device_mem_type, device_vendor_id


for _name, _number in {**DEVICES, "default_memory": 0}.items():
    setattr(OrtDevice, _name, staticmethod(lambda number=_number: number))


@dataclass
class OrtMemoryInfo:
    """Where an allocator has its memory."""

    name: str = "Cpu"
    allocator_type: Any = ENUMERATIONS["OrtAllocatorType"].ORT_ARENA_ALLOCATOR
    device_id: int = 0
    mem_type: Any = ENUMERATIONS["OrtMemType"].DEFAULT
    device_mem_type: Any = DeviceMemory.DEFAULT
    device_vendor_id: int = 0

    @staticmethod
    def create_v2(
        name: str, device: int, vendor: int, number: int, memory: Any, alignment: int, allocator: Any
    ) -> OrtMemoryInfo:
        del device, alignment
        default = ENUMERATIONS["OrtMemType"].DEFAULT
        return OrtMemoryInfo(name, allocator, number, default, memory, vendor)


@dataclass
class OrtHardwareDevice:
    """A device of the machine."""

    type: Any
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class OrtEpDevice:
    """A device, and the provider that computes on it."""

    ep_name: str
    device: OrtHardwareDevice
    ep_vendor: str = "onnxlet"
    ep_metadata: dict[str, str] = field(default_factory=lambda: {"version": VERSION})
    ep_options: dict[str, str] = field(default_factory=dict)

    def memory_info(self, memory_type: Any) -> OrtMemoryInfo:
        return OrtMemoryInfo(device_mem_type=memory_type)

    def create_sync_stream(self) -> NoReturn:
        refuse("OrtSyncStream", "a device takes work in the order in which it is asked")


@dataclass
class OrtEpAssignedNode:
    """A node that a provider computes."""

    name: str
    domain: str
    op_type: str


@dataclass
class OrtEpAssignedSubgraph:
    """Nodes that a provider computes together."""

    ep_name: str
    nodes: list[OrtEpAssignedNode]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        return self.nodes


class OrtArenaCfg:
    """Accepted: plans know how much memory they need."""

    NAMES = (
        "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
    )  # fmt: skip
    max_mem = arena_extend_strategy = initial_chunk_size_bytes = max_dead_bytes_per_chunk = 0
    initial_growth_chunk_size_bytes = max_power_of_two_extend_bytes = 0

    def __init__(self, *numbers: Any):
        given = numbers[0] if len(numbers) == 1 else dict(zip(self.NAMES, numbers, strict=False))
        for name, value in given.items():
            setattr(self, name, value)


@dataclass
class OrtExternalInitializerInfo:
    """Where in a file an initializer lies."""

    filepath: str
    file_offset: int
    byte_size: int


class OrtValueVector(list[OrtValue]):
    """Values, for `InferenceSession.run_with_ortvaluevector`."""

    def push_back(self, value: Any) -> None:
        self.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value))

    def reserve(self, size: int) -> None:
        """Nothing to reserve."""

    def shrink_to_fit(self) -> None:
        """Nothing to give back."""

    def dlpack_at(self, idx: int) -> Any:
        return self[idx].__dlpack__()

    def element_type_at(self, idx: int) -> int:
        return self[idx].element_type()

    def to_dlpacks(self, to_tensor: Any) -> list[Any]:
        return [value.__dlpack__() if to_tensor is None else to_tensor(value.__dlpack__()) for value in self]


# Options, with what onnxlet has no use for.


def refuse(name: str, why: str) -> NoReturn:
    """Raise `NotImplemented`, which is an `UnsupportedError` too."""
    with raising():
        raise UnsupportedError(f"onnxlet has no {name}: {why}")
    raise AssertionError


@dataclass(slots=True)
class SessionOptions(BaseSessionOptions):
    __doc__ = BaseSessionOptions.__doc__
    providers: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """What `add_provider` was told, for sessions that are told nothing."""

    def add_provider(self, name: str, options: Any) -> None:
        """Prefer a provider, after those that were added before. A session's own argument goes before."""
        self.providers.append((name, dict(options)))

    def add_provider_for_devices(self, devices: Sequence[OrtEpDevice], options: Any) -> None:
        for device in devices:
            self.add_provider(device.ep_name, options)

    def has_providers(self) -> bool:
        return bool(self.providers)

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Prefer the GPU where one is asked for and there is one, else the CPU."""
        wanted = WEBGPU if int(policy) in (3, 4) and WEBGPU in get_available_providers() else CPU
        self.providers = [(wanted, {})]

    def set_provider_selection_policy_delegate(self, delegate: Any) -> None:
        chosen = delegate(get_ep_devices(), {}, {}, 8)
        self.providers = [(device.ep_name, {}) for device in chosen]

    def register_custom_ops_library(self, path: str) -> None:
        """Raises `NotImplemented`: operators of one's own are written in Python (`onnxlet.op`)."""
        refuse(
            "custom operator libraries",
            f"{path!r} is machine code for onnxruntime. Write operators in Python, with @onnxlet.op(name, domain=...)",
        )

    def set_load_cancellation_flag(self, flag: bool) -> None:
        """Accepted: loading is not interrupted."""

    def set_ep_context_data_read_func(self, read_func: Any, max_data_size: int) -> None:
        refuse("EPContext", "what such nodes hold was compiled for one accelerator")

    def clear_ep_context_data_read_func(self) -> None:
        """There is none."""


@dataclass(slots=True)
class RunOptions(BaseRunOptions):
    __doc__ = BaseRunOptions.__doc__

    def add_active_adapter(self, adapter: Any) -> None:
        """Raises `NotImplemented`: adapters can't be loaded."""
        refuse("LoraAdapter", REFUSED["LoraAdapter"])


_ACCELERATORS = "what is compiled for one accelerator is nothing to it"
_CALLED = "it is not called by what runs models"
REFUSED = {
    **dict.fromkeys(("LoraAdapter", "AdapterFormat"), "feed an adapter's tensors as inputs, whose names they have"),
    "ModelCompiler": "models are not compiled ahead; SessionOptions.optimized_model_filepath writes a rewritten model",
    **dict.fromkeys(("ModelPackage", "ModelPackageContext", "ModelPackageOptions"), "give a session one of its models"),
    **dict.fromkeys(("ModelPackageComponentContext", "OrtEpContextData", "OrtEpContextDataBuffer"), _ACCELERATORS),
    "OrtSyncStream": "a device takes work in the order in which it is asked",
    "SessionObjectInitializer": _CALLED,
}
"""Classes of onnxruntime's that onnxlet refuses, and why."""

REFUSED_FUNCTIONS = {
    "register_execution_provider_library": "providers are Python packages",
    "unregister_execution_provider_library": "providers are Python packages",
    **dict.fromkeys(
        (
            "get_compatibility_info_from_model", "get_compatibility_info_from_model_bytes",
            "get_hardware_device_ep_incompatibility_details", "get_model_compatibility_for_ep_devices",
        ),
        _ACCELERATORS,
    ),
    **dict.fromkeys(
        (
            "get_all_operator_schema", "get_all_opkernel_def", "get_registered_ep_kernel_defs",
            "get_session_initializer", "pack_fp4_weights_for_cuda_moe_gemm", "quantize_matmul_2bits",
            "quantize_matmul_4bits", "quantize_matmul_8bits", "quantize_matmul_bnb4", "quantize_qdq_matmul_2bits",
            "quantize_qdq_matmul_4bits",
        ),
        _CALLED,
    ),
}  # fmt: skip


class _Refusing(type):
    """Makes classes that refuse to be made, or asked for anything."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(cls.__name__, REFUSED[cls.__name__])

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _refusing(cls.__name__, REFUSED[cls.__name__])


def _refusing(name: str, why: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, why)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Raises `NotImplemented`: {why}."
    return function


REFUSING: dict[str, Any] = {
    **{
        name: _Refusing(name, (), {"__module__": STATE, "__doc__": f"Refused: {why}."}) for name, why in REFUSED.items()
    },
    **{name: _refusing(name, why) for name, why in REFUSED_FUNCTIONS.items()},
}

# Functions


def get_device() -> str:
    """What is computed on where nothing else is said."""
    return "CPU"


def get_version_string() -> str:
    return VERSION


def get_build_info() -> str:
    from .. import __version__

    return f"onnxlet {__version__}, {platform.platform()}"


def has_collective_ops() -> bool:
    return False


def get_hardware_devices() -> list[OrtHardwareDevice]:
    return [device.device for device in get_ep_devices()]


def get_ep_devices() -> list[OrtEpDevice]:
    """The providers that work here, each with its device; the CPU is the last."""
    kinds = {CPU: DeviceKind.CPU, WEBGPU: DeviceKind.GPU}
    return [OrtEpDevice(name, OrtHardwareDevice(kinds[name])) for name in get_available_providers()]


def get_default_session_options() -> SessionOptions:
    return SessionOptions()


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy the values of tensors into others, of the same types."""
    del stream
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def set_default_logger_severity(severity: int) -> None:
    """Accepted, from 0 to 4: onnxlet logs nothing. What it has to say are warnings of Python's."""
    if severity not in range(5):
        raise RuntimeError(
            f"the severity is {severity}; it is 0 (verbose), 1 (info), 2 (warning), 3 (error) or 4 (fatal)"
        )


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: onnxlet logs nothing."""


def set_default_logger_callback(callback: Any, severity: int = 2) -> None:
    """Accepted: onnxlet logs nothing."""


def enable_telemetry_events() -> None:
    """Accepted: onnxlet tells nobody anything."""


def disable_telemetry_events() -> None:
    """Accepted: onnxlet tells nobody anything."""


def set_seed(seed: int) -> None:
    """Accepted: operators that draw numbers have seeds of their own."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Accepted: `SessionOptions.intra_op_num_threads` says how many threads compute."""


def create_and_register_allocator(memory_info: Any, configuration: Any = None) -> None:
    """Accepted: sessions have memory of their own."""


def create_and_register_allocator_v2(provider: str, memory_info: Any, options: Any, configuration: Any = None) -> None:
    """Accepted: sessions have memory of their own."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None) -> None:
    """Accepted: there are no libraries to load."""


def print_debug_info() -> None:
    """Print what there is."""
    from .. import features

    print(get_build_info())
    for name, feature in features().items():
        print(f"{name}: {'yes' if feature.available else 'no'} {feature.detail}")
