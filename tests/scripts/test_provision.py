"""The parts of the set-up: downloads are checked, lock files name what is there, requirements come from the project."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import pytest

from demo_site.server import create_app
from demo_site.serving import running
from provision import browser, console, downloads, packaging, paths, pyodide, site, system, venv
from provision.console import SetupError


def test_a_download_that_is_not_the_file_expected_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "numpy.whl"
    path.write_bytes(b"something else")
    with pytest.raises(SetupError, match=r"numpy\.whl from PyPI is not the file expected"):
        downloads.check(path, "0" * 64, "PyPI")


def test_fetch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "site"
    source.mkdir()
    (source / "file.zip").write_bytes(b"x" * 2_000_000)
    with running(create_app(source)) as url:
        downloads.fetch(f"{url}/file.zip", tmp_path / "got.zip", timeout=5)
        with pytest.raises(downloads.Unreachable):
            downloads.fetch(f"{url}/missing.zip", tmp_path / "missing.zip", timeout=5)
    assert (tmp_path / "got.zip").read_bytes() == b"x" * 2_000_000
    assert "2.0 MB" in capsys.readouterr().out
    with pytest.raises(downloads.Unreachable):
        downloads.fetch(f"{url}/file.zip", tmp_path / "closed.zip", timeout=5)


def test_the_cdn_is_asked_first_and_only_once_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ONNXLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pyodide, "_cdn_answers", True)
    folder = tmp_path / "cdn" / "v1.2.3" / "full"
    folder.mkdir(parents=True)
    (folder / "a.whl").write_bytes(b"a")
    wanted = {"a.whl": hashlib.sha256(b"a").hexdigest()}
    with running(create_app(tmp_path / "cdn")) as url:
        monkeypatch.setattr(pyodide, "CDN", url + "/v{version}/full/{name}")
        assert pyodide._from_cdn("1.2.3", wanted, tmp_path / "got", "packages")
        assert (tmp_path / "got" / "a.whl").read_bytes() == b"a"
        assert not pyodide._from_cdn("1.2.3", {"a.whl": "0" * 64}, tmp_path / "got", "packages")
        assert "is not the file expected" in capsys.readouterr().out
        assert not pyodide._from_cdn("1.2.3", wanted, tmp_path / "again", "packages")
    assert "Asking" not in capsys.readouterr().out


def test_every_release_has_its_files_and_packages() -> None:
    for version, release in pyodide.RELEASES.items():
        assert downloads.complete(pyodide.core(version), release.core)
        names = [path.name.split("-")[0] for path in pyodide.packages(version)]
        assert names == list(pyodide.PACKAGES)


def test_the_site_carries_just_what_its_lock_file_names() -> None:
    folder = site.assemble() / "pyodide" / pyodide.PINNED
    lock = json.loads((folder / pyodide.LOCK).read_text("utf-8"))
    assert set(lock["packages"]) == {"numpy", "micropip", "packaging", "onnxlet"}
    assert lock["packages"]["onnxlet"]["depends"] == ["numpy"]
    assert lock["packages"]["onnxlet"]["imports"] == ["onnxlet", "onnxlet_wasm", "onnxlet_webgpu"]
    assert lock["info"]["abi_version"] == "2026_0"
    for entry in lock["packages"].values():
        assert paths.sha256(folder / entry["file_name"]) == entry["sha256"]
    assert {path.name for path in folder.glob("*.whl")} == {e["file_name"] for e in lock["packages"].values()}


def test_the_site_says_where_things_lie() -> None:
    root = site.assemble()
    places = json.loads((root / "site.json").read_text("utf-8"))
    assert (root / places["pyodide"] / "pyodide.mjs").is_file()
    assert zipfile.is_zipfile(root / places["wheel"])
    for found in places["models"].values():
        assert list((root / found["path"]).glob("*.onnx"))
        assert found["about"]
        assert found["licence"]
    assert (root / "onnxlet" / "onnxlet.mjs").is_file()


def test_a_package_that_the_site_lacks_is_an_error(tmp_path: Path) -> None:
    wheel = packaging.build_wheel("pure")
    with pytest.raises(SetupError, match="needs numpy, which the site does not have"):
        pyodide.assemble(pyodide.PINNED, [wheel], tmp_path)


def test_requirements() -> None:
    found = venv.requirements(["build"], ["demo"])
    assert {name.split(">")[0].split("=")[0] for name in found} == {
        *("numpy", "hatchling", "ziglang", "starlette", "uvicorn")
    }
    assert any(name.startswith("pytest==") for name in venv.requirements(["dev"]))


def test_a_failing_command_shows_the_end_of_its_output() -> None:
    with pytest.raises(SetupError, match=r"(?s)ended with status 3:.*the reason.*Try again"):
        console.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], remedy="Try again.")
    with pytest.raises(SetupError, match="no-such-program is not there"):
        console.run(["no-such-program"])


def test_a_browser_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXLET_CHROMIUM", "/no/such/chromium")
    with pytest.raises(SetupError, match="/no/such/chromium"):
        browser.chromium()
    monkeypatch.delenv("ONNXLET_CHROMIUM")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SetupError, match=r"sudo apt install chromium|No Chromium found"):
        browser.chromium()


def test_a_python_without_venv_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(system, "may_install", lambda: False)
    with pytest.raises(SetupError, match=r"sudo apt install python3-venv"):
        venv.create(tmp_path / "environment")


def test_a_debian_package_is_installed_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(system, "may_install", lambda: True)
    monkeypatch.setattr(system, "run", lambda command, **_: calls.append(command))
    system.install(["chromium"], "Chromium")
    assert calls[0][:2] == ["apt-get", "update"]
    assert calls[1][:2] == ["apt-get", "install"]
    assert calls[1][-1] == "chromium"


@pytest.mark.parametrize(("size", "text"), [(2_916_023, "2.9 MB"), (84_000, "84 kB"), (10, "1 kB")])
def test_sizes_for_people(size: int, text: str) -> None:
    assert console.megabytes(size) == text
