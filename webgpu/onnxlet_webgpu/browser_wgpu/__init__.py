"""The compute part of wgpu's Python API over a browser's `navigator.gpu`, for Pyodide, in pages and workers.

Names, arguments and behaviour are those of `wgpu` 0.32, whose own package has no backend for browsers; the package is
not needed. What a browser does asynchronously is asynchronous here: the ``*_async`` methods return a `GPUPromise`,
which is awaited; their ``*_sync`` twins block, where the browser has JavaScript promise integration (JSPI).

    from onnxlet_webgpu import browser_wgpu as wgpu

    adapter = await wgpu.gpu.request_adapter_async()
    device = await adapter.request_device_async()

A command encoder records numbers, and `queue.submit` encodes and submits them in one call of JavaScript. Two things
are this backend's own: `encoder.finish(reusable=True)` makes a command buffer that can be submitted again and again,
and `queue.read_buffer_async` reads a buffer without blocking.
"""

from __future__ import annotations

from . import utils
from .encoder import GPUCommandBuffer, GPUCommandEncoder, GPUComputePassEncoder
from .errors import (
    GPUCompilationInfo,
    GPUCompilationMessage,
    GPUDeviceLostInfo,
    GPUError,
    GPUInternalError,
    GPUOutOfMemoryError,
    GPUPipelineError,
    GPUValidationError,
)
from .flags import BufferBindingType, BufferUsage, MapMode, ShaderStage
from .gpu import GPU, gpu
from .objects import (
    GPUAdapter,
    GPUAdapterInfo,
    GPUBindGroup,
    GPUBindGroupLayout,
    GPUBuffer,
    GPUComputePipeline,
    GPUDevice,
    GPUPipelineLayout,
    GPUQueue,
    GPUShaderModule,
)
from .promise import GPUPromise

__all__ = [
    "GPU", "BufferBindingType", "BufferUsage", "GPUAdapter", "GPUAdapterInfo", "GPUBindGroup", "GPUBindGroupLayout",
    "GPUBuffer",
    "GPUCommandBuffer", "GPUCommandEncoder", "GPUCompilationInfo", "GPUCompilationMessage", "GPUComputePassEncoder",
    "GPUComputePipeline", "GPUDevice", "GPUDeviceLostInfo", "GPUError", "GPUInternalError", "GPUOutOfMemoryError",
    "GPUPipelineError", "GPUPipelineLayout", "GPUPromise", "GPUQueue", "GPUShaderModule", "GPUValidationError",
    "MapMode", "ShaderStage", "gpu", "utils",
]  # fmt: skip
