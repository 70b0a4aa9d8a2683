from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.readme import block


def test_on_a_desktop(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the provider that is skipped
        exec(compile(block("On a desktop", "python"), "README.md", "exec"), {})
    assert "array([0., 2., 4.]" in capsys.readouterr().out


def test_operators_of_your_own():
    names: dict = {}
    exec(compile(block("Operators of your own", "python"), "README.md", "exec"), names)
    assert names["triple"](np.float32(2), plus=1.0) == pytest.approx(7)
