"""Fixtures for tests in a browser. Each boots at most once in a test run; see `harness.py` for what they can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from provision import browser, prepare, site
from provision.console import SetupError
from tests.browser.harness import Chromium, PyodideHost
from tests.conftest import missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """Headless Chromium with a GPU made of software, and servers of the site and of the tests' own pages."""
    try:
        executable = browser.chromium(install=False)
    except SetupError:
        missing("Chromium")
    prepare.test_pyodides()
    site.assemble()
    running = Chromium(executable)
    yield running
    running.close()


@pytest.fixture(scope="session")
def pyodide_worker(chromium: Chromium) -> PyodideHost:
    """Pyodide with onnxlet in a Web Worker of a cross-origin isolated page: how pages should use it."""
    return chromium.pyodide(worker=True, isolated=True)


@pytest.fixture(scope="session")
def pyodide_page(chromium: Chromium) -> PyodideHost:
    """The same on the page's main thread."""
    return chromium.pyodide(worker=False, isolated=True)


@pytest.fixture(scope="session")
def pyodide_plain_worker(chromium: Chromium) -> PyodideHost:
    """A Web Worker of a page without cross-origin isolation: no shared memory."""
    return chromium.pyodide(worker=True, isolated=False)


@pytest.fixture(scope="session")
def pyodide_plain_page(chromium: Chromium) -> PyodideHost:
    """The main thread of a page without cross-origin isolation."""
    return chromium.pyodide(worker=False, isolated=False)
