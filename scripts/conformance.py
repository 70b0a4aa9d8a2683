"""Runs all cases natively and in Pyodide and writes `docs/conformance.md`: `.venv/bin/python scripts/conformance.py`.

`tests/conformance/test_document.py` fails where the file says something else than the cases that there are.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import onnxlet
from onnxlet.ops import registry
from tests.conformance import model_suites, older, suite, versions
from tests.conformance.suite import Case
from tests.conformance.versions import Version
from tests.conftest import REPOSITORY
from tests.core.ops import recording

DOCUMENT = REPOSITORY / "docs" / "conformance.md"
DOMAINS = {
    "": "ai.onnx",
    "ai.onnx.ml": "ai.onnx.ml",
    "ai.onnx.preview": "ai.onnx.preview",
    "ai.onnx.preview.training": "ai.onnx.preview.training",
    "com.microsoft": "com.microsoft",
}

HEAD = """# Conformance

Written by `scripts/conformance.py` from runs of all cases below, natively and in Pyodide in headless Chromium, through
`InferenceSession` with the CPU provider. A test fails when this file is stale, and others when any case fails: there is
no list of exceptions. The standard's cases are those of onnx {onnx}.

A result must have the right type and shape, and values within the case's own tolerance, the absolute one being at least
1e-5 of the largest expected value. Of cases that draw random numbers without a seed only type and shape are compared.

| Cases | Number | Pass natively | Pass in Pyodide |
|---|---:|---:|---:|
"""

TABLE = """
## {title}

| Operator | Version | Cases | Native | Pyodide | Own tests |
|---|---:|---:|---:|---:|:-:|
"""

EXPLANATION = """
*Moved* are cases of the single-operator suite at versions of the operator of which it has none, where nothing but the
element types differs between the versions. *Our own* are cases for the versions that remain, with values worked out
from their text. The tables count the cases that use a version in any of their nodes. *Own tests* are calls in
`tests/core/ops`, each of which is repeated in Pyodide.
"""


def groups() -> dict[str, list[Case]]:
    """All cases, by where they come from."""
    single = suite.collect()
    return {
        "single operators (`node`)": single,
        **{f"small models (`{kind}`)": model_suites.collect(kind) for kind in model_suites.COUNTS},
        "single operators, moved": [case for _, case in versions.moved(single)],
        "single operators, our own": older.collect(),
    }


def render(cases: Mapping[str, Sequence[Case]], native: Iterable[str], pyodide: Iterable[str]) -> str:
    """The document, given the names of the cases that pass."""
    passed = [set(native), set(pyodide)]
    text = HEAD.format(onnx=onnx.__version__)
    totals: Counter[Version] = Counter()
    passing: tuple[Counter[Version], Counter[Version]] = (Counter(), Counter())
    for title, group in cases.items():
        text += f"| {title} | {len(group)} |"
        text += "".join(f" {sum(case.name in names for case in group)} |" for names in passed) + "\n"
        for case in group:
            used = versions.used(onnx.load_model_from_string(case.model))
            totals.update(used)
            for counter, names in zip(passing, passed, strict=True):
                counter.update(used if case.name in names else ())
    text += EXPLANATION
    called = recording.versions_called()
    for domain, title in DOMAINS.items():
        text += TABLE.format(title=title)
        for version in _versions(domain):
            counts = [counter[version] or "–" for counter in (totals, *passing)]
            row = [version.operator, version.since, *counts, "✓" if version in called else "–"]
            text += "| " + " | ".join(map(str, row)) + " |\n"
    return text


def _versions(domain: str) -> list[Version]:
    """All versions of a domain's operators that onnxlet has, by the standard's schemas where there are some."""
    names = sorted({o.name for o in registry.registered() if o.domain == domain})
    found = []
    for name in names:
        history = [schema.since_version for schema in versions.histories().get((domain, name), [])]
        since = history or [o.since for o in registry.registered() if (o.domain, o.name) == (domain, name)]
        found += [Version(domain, name, v) for v in since]
    return found


def main() -> None:
    from provision import browser, prepare, site
    from tests.browser import repeating
    from tests.browser.harness import Chromium

    warnings.simplefilter("ignore")
    cases = groups()
    everything = [case for group in cases.values() for case in group]
    names = [case.name for case in everything]
    assert len(names) == len(set(names))
    print(f"{len(everything)} cases, natively, with onnxlet {onnxlet.__version__}", flush=True)
    failed = suite.failures(everything, suite.run_session)
    print(*failed, "in Pyodide", sep="\n", flush=True)
    prepare.test_pyodides()
    site.assemble()
    chromium = Chromium(browser.chromium(install=False))
    try:
        host = chromium.pyodide(worker=True, isolated=True)
        repeating.install(host)
        failed_there = repeating.failures(host, everything, "run_session")
    finally:
        chromium.close()
    print(*failed_there, sep="\n")
    native, pyodide = (set(names) - {line.split(": ")[0] for line in lines} for lines in (failed, failed_there))
    DOCUMENT.write_text(render(cases, native, pyodide), "utf-8")
    print(f"Wrote {DOCUMENT.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
