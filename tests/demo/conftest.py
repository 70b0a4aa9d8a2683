"""The demo's Python on the desktop, where it is the same as in a page but for `js`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from provision import models
from provision.paths import REPOSITORY

PAGES = REPOSITORY / "demo_site" / "pages"


@pytest.fixture
def page_module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """`page_module(name)` imports a module of the demo's pages."""
    monkeypatch.syspath_prepend(str(PAGES))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return importlib.import_module


@pytest.fixture(scope="session")
def pretrained() -> Callable[[str], Path]:
    """`pretrained(name)` is the folder of one of the demo's models."""
    return models.fetch
