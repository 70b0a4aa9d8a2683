"""The device that code shares which asks for none in particular, as `wgpu.utils` has it.

wgpu's own `wgpu.utils.compute` runs on this: make `wgpu` stand for `browser_wgpu`, and `wgpu.utils` for this module.
"""

from __future__ import annotations

from functools import lru_cache

from .gpu import gpu
from .objects import GPUDevice


@lru_cache(maxsize=1)
def get_default_device() -> GPUDevice:
    """A device with the default limits, the same one at every call. Blocks: it needs JSPI."""
    return gpu.request_adapter_sync(power_preference="high-performance").request_device_sync()
