"""A GPU adapter for the desktop tests: the machine's, else Mesa's software one."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import system

DRIVERS = Path("/usr/share/vulkan/icd.d")


def adapter() -> dict[str, str]:
    """Environment variables that lead `wgpu` to an adapter.

    Raises `SetupError` that says what to install where Linux has no Vulkan driver.
    """
    if not DRIVERS.parent.parent.exists() or Path("/dev/dri/renderD128").exists():
        return {}  # not Linux, or a GPU of its own: wgpu finds it
    for attempt in range(2):
        found = sorted(DRIVERS.glob("lvp_icd*.json"))
        if found and _has_loader():
            return {"VK_DRIVER_FILES": str(found[0])}
        if attempt == 0:
            system.install(["mesa-vulkan-drivers", "libvulkan1"], "a GPU made of software for tests (Vulkan, Mesa)")
    return {}


def swiftshader() -> dict[str, str]:
    """Environment variables that lead every engine to Chromium's software adapter where `adapter` would choose Mesa's,
    which Dawn (onnxruntime-webgpu's WebGPU) refuses."""
    chosen = adapter()
    beside = Path(shutil.which("chromium") or "").resolve().parent
    found = [f for folder in (beside, Path("/usr/lib/chromium")) if (f := folder / "vk_swiftshader_icd.json").is_file()]
    return {"VK_DRIVER_FILES": str(found[0])} if chosen and found else chosen


def _has_loader() -> bool:
    return any(Path("/usr/lib").glob("**/libvulkan.so.1"))
