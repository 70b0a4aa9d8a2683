"""The documents as a site, by Sphinx: `python3 scripts/docs.py`."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

project = "onnxlet"
author = "The onnxlet authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "onnxlet"
html_copy_source = False
html_show_sphinx = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
"""A link to a file of the checkout that is no document: the site does not have it."""
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
"""What docstrings have in backticks, also with an ending after them: `Blob`s."""


def setup(app: Sphinx) -> None:
    def without_outside(app: Sphinx, name: str, source: list[str]) -> None:
        source[0] = OUTSIDE.sub(r"`\1`", source[0])

    def with_code(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
        lines[:] = CODE.sub(r"``\1``\\ ", "\n".join(lines)).split("\n")

    app.connect("source-read", without_outside)
    app.connect("autodoc-process-docstring", with_code)
