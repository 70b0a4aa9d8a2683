from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

from onnxlet.tools.cli import FAILED, NO, YES, build_parser, main
from tests.conftest import REPOSITORY
from tests.core.models import FLOAT, model, node


@pytest.fixture
def path(tmp_path):
    made = model(
        [node("Mul", ["x", "k"], ["y"])], [("x", FLOAT, ["n", 2])], [("y", FLOAT, ["n", 2])], {"k": np.float32(3)}
    )
    onnx.save(made, tmp_path / "triple.onnx")
    np.save(tmp_path / "x.npy", np.array([[1, 2], [3, 4]], np.float32))
    return tmp_path / "triple.onnx"


def result(capsys, *arguments):
    code = main([str(a) for a in arguments])
    return code, capsys.readouterr()


def test_run_computes_and_writes_outputs(path, capsys):
    out = path.with_name("out.npz")
    code, streams = result(capsys, "run", path, f"x={path.with_name('x.npy')}", "-o", out, "--repeat", 3)
    assert code == YES
    with np.load(out) as arrays:
        np.testing.assert_array_equal(arrays["y"], [[3, 6], [9, 12]])
    assert "float[2,2]" in streams.out.replace(" ", "")
    assert "3 to 12" in streams.out
    assert "median" in streams.out


def test_run_makes_inputs_up(path, capsys):
    code, streams = result(capsys, "run", path, "--dim", "n=5", "--fill", "ones", "--json")
    assert code == YES
    (row,) = json.loads(streams.out)["outputs"]
    assert row["range"] == "3 to 3"
    assert row["type"].replace(" ", "") == "float[5,2]"
    code, streams = result(capsys, "run", path)
    assert "chosen: n=1" in streams.err


def test_compare_says_yes_and_no(path, capsys):
    code, streams = result(capsys, "compare", path, "--against", "onnxruntime")
    assert (code, "they agree" in streams.out) == (YES, True)
    np.savez(path.with_name("wrong.npz"), y=np.zeros((1, 2), np.float32))
    code, streams = result(capsys, "compare", path, "--saved", path.with_name("wrong.npz"))
    assert (code, "THEY DIFFER" in streams.out) == (NO, True)


def test_inspect_check_explain(path, capsys):
    code, streams = result(capsys, "inspect", path, "--nodes", "--json")
    assert code == YES
    assert json.loads(streams.out)["operators"] == {"Mul": 1}
    code, streams = result(capsys, "check", path)
    assert (code, streams.out.strip()) == (YES, "0 errors, 0 warnings, 0 notes")
    code, streams = result(capsys, "explain", path, "--json")
    assert code == YES
    assert json.loads(streams.out)["counts"] == {"CPUExecutionProvider": 1}


def test_profile_tells_nodes_and_operators(data, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    made = data / "zoo/torch_mobilenetv2_ts/model.onnx"
    code, streams = result(capsys, "profile", made, "--runs", 3, "--json", "--trace", trace, "--level", "disable_all")
    assert code == YES
    found = json.loads(streams.out)
    operators = [n["operator"] for n in found["nodes"]]
    assert (operators.count("Conv"), operators.count("Clip")) == (29, 20)
    assert all(n["provider"] == "CPUExecutionProvider" for n in found["nodes"])
    assert sum(found["operators"].values()) == pytest.approx(sum(n["milliseconds"] for n in found["nodes"]))
    assert all(event["ph"] == "X" for event in json.loads(trace.read_text()))
    code, streams = result(capsys, "profile", made, "--runs", 1)
    assert "Conv" in streams.out


def test_check_says_no(path, capsys):
    path.write_bytes(path.read_bytes()[:40])
    code, streams = result(capsys, "check", path, "--json")
    assert code == NO
    assert json.loads(streams.out)["counts"]["error"] >= 1


def test_optimize_writes_a_model_that_onnx_accepts(data, tmp_path, capsys):
    out = tmp_path / "smaller.onnx"
    code, streams = result(capsys, "optimize", data / "zoo/torch_mobilenetv2_ts/model.onnx", out)
    assert code == YES
    onnx.checker.check_model(out, full_check=True)
    code, streams = result(capsys, "compare", data / "zoo/torch_mobilenetv2_ts/model.onnx", "--other", out)
    assert code == YES
    code, streams = result(capsys, "optimize", "--list")
    assert "fold_batch_norm" in streams.out.split()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "absent.onnx"], "No such file"),
        (["run", "MODEL", "--dim", "m=2"], "no input has a dimension called 'm'"),
        (["run", "MODEL", "--shape", "x=1,3"], "which the shape [1, 3] does not fit"),
        (["run", "MODEL", "--disable", "nothing"], "no rewrite is called nothing"),
        (["run", "MODEL", "x.npy"], "say of which input"),
        (["optimize", "MODEL"], "name the model and the file to write"),
    ],
    ids=lambda v: "-".join(v[:3]) if isinstance(v, list) else "",
)
def test_what_can_not_be_used_is_said_in_one_line(path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(path.parent)
    code, streams = result(capsys, *["triple.onnx" if a == "MODEL" else a for a in arguments])
    assert code == FAILED
    line = streams.err.strip().splitlines()[-1]
    assert line.startswith("onnxlet: ")
    assert words in line


def test_a_wrong_command_line_ends_with_2(path, capsys):
    for wrong in (["run"], ["run", str(path), "--dim", "n"], ["dance"]):
        with pytest.raises(SystemExit) as stop:
            main(wrong)
        assert stop.value.code == 2


def test_every_command_has_help(capsys):
    for name in ("run", "inspect", "check", "explain", "profile", "compare", "optimize", "completion"):
        with pytest.raises(SystemExit) as stop:
            build_parser().parse_args([name, "--help"])
        assert stop.value.code == 0
        assert "usage: onnxlet" in capsys.readouterr().out


def test_output_may_be_cut_off(path):
    command = f"{sys.executable} -m onnxlet.tools.cli optimize --list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "sink_dequantize"
    assert done.stderr == ""


def test_completion(capsys):
    pytest.importorskip("shtab")
    code, streams = result(capsys, "completion", "bash")
    assert code == YES
    assert "optimize" in streams.out


def commands() -> list[str]:
    """The command lines of the document, but those for other machines' devices and shells."""
    text = (REPOSITORY / "docs" / "command-line.md").read_text("utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    lines = [line.split("#")[0].strip() for line in blocks.splitlines()]
    return [line.removeprefix("onnxlet ") for line in lines if line.startswith("onnxlet ") and "webgpu" not in line]


def test_the_command_lines_of_the_document(path, capsys, monkeypatch):
    monkeypatch.chdir(path.parent)
    path.rename("model.onnx")
    assert len(commands()) >= 12
    for line in commands():
        if line.startswith("compare") and "small.onnx" in line:
            main(["optimize", "model.onnx", "small.onnx"])
        code, streams = result(capsys, *line.split())
        assert code == YES, f"{line}: {streams.err}"
    assert {"out.npz", "small.onnx", "t.json"} <= {p.name for p in path.parent.iterdir()}
