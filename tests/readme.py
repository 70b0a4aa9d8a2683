"""The code blocks of the README and other documents, for the tests that run them."""

from __future__ import annotations

import re

from tests.conftest import REPOSITORY

ADDRESS = "http://127.0.0.1:8000"


def block(heading: str, language: str, document: str = "README.md") -> str:
    """The first code block in `language` under a heading of a document."""
    text = (REPOSITORY / document).read_text("utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} under {heading!r}"
    return found[1]
