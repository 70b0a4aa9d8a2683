"""Small files whose type is known, made on the spot for checks."""

from __future__ import annotations

import struct
import zlib


def png(size: int = 64) -> bytes:
    """A square picture: a gradient, in RGB."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes(v for x in range(size) for v in (x * 4 & 255, y * 4 & 255, 128)) for y in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


MARKDOWN = b"""# Tide tables

The sea comes and goes. This file says **when**.

## Use

1. Look up the harbour in [the list](harbours.md).
2. Add the correction:

```python
time = high_water + correction[harbour]
```

| harbour | correction |
| ------- | ---------- |
| North   | +0:12      |
| South   | -0:40      |
"""
