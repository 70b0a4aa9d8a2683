"""What every operator means: one NumPy function per operator version, one file per family.

Importing a family registers its operators; `registry` imports a family when an operator is asked for.
"""

from __future__ import annotations

from .registry import op

__all__ = ["op"]
