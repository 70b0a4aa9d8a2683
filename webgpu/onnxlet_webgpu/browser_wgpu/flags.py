"""WebGPU's bit flags, with wgpu's names."""

from __future__ import annotations


class BufferUsage:
    MAP_READ = 0x0001
    MAP_WRITE = 0x0002
    COPY_SRC = 0x0004
    COPY_DST = 0x0008
    INDEX = 0x0010
    VERTEX = 0x0020
    UNIFORM = 0x0040
    STORAGE = 0x0080
    INDIRECT = 0x0100
    QUERY_RESOLVE = 0x0200


class MapMode:
    READ = 0x0001
    WRITE = 0x0002


class ShaderStage:
    VERTEX = 0x1
    FRAGMENT = 0x2
    COMPUTE = 0x4


class BufferBindingType:
    """What a shader may do with a buffer, by wgpu's names for WebGPU's words."""

    uniform = "uniform"
    storage = "storage"
    read_only_storage = "read-only-storage"


def bits(flag: type, value: int | str) -> int:
    """A flag's bits, from a number or, as wgpu allows, from names such as ``"STORAGE|COPY_SRC"``.

    Raises `ValueError` for a name that the flag does not have.
    """
    if not isinstance(value, str):
        return int(value)
    found = 0
    for name in value.split("|"):
        name = name.strip()
        if not hasattr(flag, name):
            raise ValueError(f"{flag.__name__} has no flag {name!r}")
        found |= getattr(flag, name)
    return found
