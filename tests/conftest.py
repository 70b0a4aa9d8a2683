"""What all tests share: where data lies, and when something missing is a failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.combinations import Campaign, Combination

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY / "tests" / "data"


def shared_dir() -> Path | None:
    """The folder with the larger collection of models beside the checkout, or `None` where there is none.

    Tests that use it pass without it: what they need at least lies in `tests/data`.
    """
    folder = Path(os.environ.get("ONNXLET_SHARED", REPOSITORY.parent / "shared"))
    return folder if (folder / "zoo").is_dir() else None


def missing(what: str) -> NoReturn:
    """Skip the test for want of `what` (an adapter, a browser, a tool); in CI that is a failure instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it", pytrace=False)
    pytest.skip(f"{what} is missing")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of what takes long: all combinations, and the campaigns against wrong models (tests/robustness)."""
    parser.addoption("--full", action="store_true", help="run every case in every combination, not a share of them")
    parser.addoption("--fuzz", type=int, default=0, metavar="N", help="try N wrong models instead of a few hundred")
    parser.addoption("--fuzz-from", type=int, default=0, metavar="N", help="number of the first of them")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where tests run on several processes, those in a browser share one, and each other file stays together."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/browser" if nodeid.startswith("tests/browser/") else nodeid.split("::")[0]

    return ByFile(config, log)


@pytest.fixture
def campaign(
    combination: Combination, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> Campaign:
    """What to run in a combination (`tests/combinations.py`), with which the test is parametrised."""
    return Campaign(combination, pytestconfig.getoption("--full"), record_property)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder `tests/data`."""
    return DATA


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the larger collection of models; the test is skipped where there is none."""
    folder = shared_dir()
    if folder is None:
        pytest.skip("no collection of models beside the checkout")
    return folder
