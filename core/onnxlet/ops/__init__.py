"""What every operator means: one NumPy function per operator version, one file per family.

Importing a family registers its operators; importing this package imports all families that lie in it.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .registry import op

__all__ = ["op"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
