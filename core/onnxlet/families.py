"""Modules that register what they define under the names of operators, imported when an operator is asked for.

Their package has no list of them: whatever lies in it is a family. A wheel has an index (`scripts/index_wheel.py`), so
that a model imports the families of its own operators; elsewhere the first question imports them all.
"""

from __future__ import annotations

from importlib import import_module

INDEX = "onnxlet.family_index"
"""A module that is in wheels only. Its `NAMES` tell, for a package, a family and a domain, the names of the operators
that the family registers, in one text."""


class Families:
    """The families in a package."""

    def __init__(self, package: str):
        self.package = package
        self._index: dict[tuple[str, str], list[str]] | None = None
        self._complete = False

    def load(self, domain: str, name: str) -> None:
        """Import what registers something for the operator `name` of `domain`."""
        if self._complete:
            return
        if self._index is None:
            self._index = self._read_index()
        if not self._index:
            self.load_all()
        for family in self._index.get((domain, name), ()):
            import_module(family)

    def load_all(self) -> None:
        """Import all families."""
        if not self._complete:
            for family in self.names():
                import_module(family)
            self._complete = True

    def names(self) -> list[str]:
        """The modules in the package, and in packages within it."""
        from pkgutil import walk_packages

        return [found.name for found in walk_packages(import_module(self.package).__path__, f"{self.package}.")]

    def _read_index(self) -> dict[tuple[str, str], list[str]]:
        try:
            names = import_module(INDEX).NAMES[self.package]
        except ModuleNotFoundError:
            return {}
        index: dict[tuple[str, str], list[str]] = {}
        for family, domains in names.items():
            module = f"{self.package}.{family}"
            for domain, words in domains.items():
                for name in words.split():
                    index.setdefault((domain, name), []).append(module)
        return index
