"""The JavaScript API, from a page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from playwright.async_api import Page

from tests.browser.harness import Chromium
from tests.core.models import model, node
from tests.core.test_external import model as external
from tests.models import zoo

ELEMENTS = [
    "FLOAT",
    "DOUBLE",
    "INT8",
    "UINT8",
    "INT16",
    "UINT16",
    "INT32",
    "UINT32",
    "INT64",
    "UINT64",
    "BOOL",
    "STRING",
]


def evaluate(chromium: Chromium, script: str, argument: Any = None, **options: Any) -> Any:
    """Run the body of an asynchronous function with the module's names in scope; `a` is the argument."""
    whole = (
        "async (a) => { const { InferenceSession, Tensor, env, shutdown } = await import('/onnxlet/onnxlet.mjs');"
        + script
        + "}"
    )

    async def run(page: Page) -> Any:
        return await page.evaluate(whole, argument)

    return chromium.visit("/site.json", run, **options)


def identity(element: int, shape: list[int | str]) -> bytes:
    made = model([node("Identity", ["x"], ["y"])], [("x", element, shape)], [("y", element, shape)])
    return made.SerializeToString()


@pytest.mark.parametrize("isolated", [True, False])
def test_a_model_from_an_address(chromium: Chromium, isolated: bool) -> None:
    (mobilenet,) = zoo("torch_mobilenetv2_ts")
    ((name, image),) = mobilenet.values("in").items()
    ((output, expected),) = mobilenet.values("out").items()
    given = evaluate(
        chromium,
        """
        const stages = new Set();
        const session = await InferenceSession.create(a.url, {progress: ({stage}) => stages.add(stage)});
        const feeds = {[a.name]: new Tensor('float32', new Float32Array(a.data), a.dims)};
        const before = feeds[a.name].data[0];
        const result = (await session.run(feeds))[a.output];
        await session.run(feeds); // the page's own array was not taken away
        const explained = await session.explain();
        const answer = {
          data: [...result.data], dims: result.dims, type: result.type, kept: feeds[a.name].data[0] === before,
          stages: [...stages], names: [session.inputNames, session.outputNames], calls: explained.calls,
          metadata: session.inputMetadata,
        };
        await session.release();
        const gone = await session.run(feeds).catch((error) => error.message);
        return {...answer, gone};
        """,
        {
            "url": chromium.blobs.put(mobilenet.path),
            "name": name,
            "output": output,
            "data": image.ravel().tolist(),
            "dims": list(image.shape),
        },
        isolated=isolated,
    )
    assert given["dims"] == list(expected.shape)
    assert given["type"] == "float32"
    np.testing.assert_allclose(given["data"], expected.ravel(), atol=1e-4 * np.abs(expected).max())
    assert given["kept"]
    assert {"pyodide", "ready", "download"} <= set(given["stages"])
    assert given["names"] == [[name], [output]]
    assert given["metadata"] == [
        {"name": name, "isTensor": True, "type": "float32", "shape": ["batch", *image.shape[1:]]}
    ]
    assert given["calls"] == 1
    assert "released" in given["gone"]


def test_all_element_types_travel(chromium: Chromium) -> None:
    models = {name: list(identity(getattr(TensorProto, name), ["n"])) for name in [*ELEMENTS, "FLOAT16"]}
    given = evaluate(
        chromium,
        """
        const names = {FLOAT: 'float32', DOUBLE: 'float64', FLOAT16: 'float16'};
        const answer = {};
        for (const [name, bytes] of Object.entries(a)) {
          const session = await InferenceSession.create(new Uint8Array(bytes));
          const type = names[name] ?? name.toLowerCase();
          const special = {
            string: ['ä', '', 'b'], bool: [1, 0, 1], float16: new Uint16Array([0x3c00, 0x7e00, 0]),
            int64: [1n, 2n, 2n ** 53n + 1n], uint64: [1n, 2n, 2n ** 53n + 1n],
          };
          const data = special[type] ?? [1, 2, 3];
          const {y} = await session.run({x: new Tensor(type, data)});
          answer[name] = [y.type, [...y.data].map(String), y.data.constructor.name];
          await session.release();
        }
        return answer;
        """,
        models,
    )
    for name in ELEMENTS:
        expected = {
            "BOOL": ["1", "0", "1"],
            "STRING": ["ä", "", "b"],
            "INT64": ["1", "2", str(2**53 + 1)],
            "UINT64": ["1", "2", str(2**53 + 1)],
        }.get(name, ["1", "2", "3"])
        assert given[name][1] == expected, name
    assert given["INT64"][2] == "BigInt64Array"
    assert given["FLOAT16"][0] == "float16"


def test_scalars_and_empty_tensors(chromium: Chromium) -> None:
    given = evaluate(
        chromium,
        """
        const scalar = await InferenceSession.create(new Uint8Array(a.scalar));
        const vector = await InferenceSession.create(new Uint8Array(a.vector));
        const one = (await scalar.run({x: new Tensor('float32', [7], [])})).y;
        const none = (await vector.run({x: new Tensor('float32', [], [0])})).y;
        return [one.dims, [...one.data], none.dims, none.data.length];
        """,
        {"scalar": list(identity(TensorProto.FLOAT, [])), "vector": list(identity(TensorProto.FLOAT, ["n"]))},
    )
    assert given == [[], [7], [0], 0]


def test_errors_have_names_and_the_next_call_works(chromium: Chromium) -> None:
    given = evaluate(
        chromium,
        """
        const bytes = new Uint8Array(a);
        const caught = (promise) => promise.then(() => 'nothing', ({name, message, code}) => [name, message, code]);
        const answer = [
          await caught(InferenceSession.create('/no/such/model.onnx')),
          await caught(InferenceSession.create(bytes.subarray(0, 20))),
          await caught(InferenceSession.create(bytes, {executionProviders: ['abacus']})),
          await caught(InferenceSession.create(bytes, {graphOptimizationLevel: 'most'})),
        ];
        const session = await InferenceSession.create(bytes);
        answer.push(await caught(session.run({z: new Tensor('float32', [1])})));
        answer.push(await caught(session.run({x: new Tensor('int32', [1])})));
        answer.push(await caught(session.run({x: new Tensor('float32', [1])}, ['w'])));
        answer.push((await session.run({x: new Tensor('float32', [5])})).y.data[0]);
        try { new Tensor('float32', [1, 2], [3]); } catch (error) { answer.push([error.name, error.message]); }
        return answer;
        """,
        list(identity(TensorProto.FLOAT, ["n"])),
    )
    missing, cut, provider, level, name, type_, output, works, dims = given
    assert missing[0] == "ModelError"
    assert "404" in missing[1]
    assert cut[::2] == ["ModelError", "INVALID_MODEL"]
    assert provider[::2] == ["ProviderError", "EP_FAIL"]
    assert "no available backend found. ERR: [abacus]" in provider[1]
    assert level[::2] == ["TypeError", "INVALID_ARGUMENT"]
    assert "one of disabled" in level[1]
    assert (name[::2], "no input 'z'" in name[1]) == (["FeedError", "INVALID_ARGUMENT"], True)
    assert (type_[0], "must be float32[n]" in type_[1]) == ("FeedError", True)
    assert (output[::2], "no output 'w'" in output[1]) == (["RangeError", "INVALID_ARGUMENT"], True)
    assert works == 5
    assert dims[0] == "RangeError"


def test_overlapping_runs(chromium: Chromium) -> None:
    given = evaluate(
        chromium,
        """
        const session = await InferenceSession.create(new Uint8Array(a));
        const runs = Array.from({length: 20}, (_, i) => session.run({x: new Tensor('float32', [i])}));
        return (await Promise.all(runs)).map(({y}) => y.data[0]);
        """,
        list(identity(TensorProto.FLOAT, ["n"])),
    )
    assert given == list(range(20))


def test_models_are_kept_in_the_cache(chromium: Chromium) -> None:
    url = chromium.blobs.put(identity(TensorProto.FLOAT, ["n"]))
    given = evaluate(
        chromium,
        """
        const stages = [];
        for (const cache of [true, true, false]) {
          const seen = new Set();
          const session = await InferenceSession.create(a, {cache, progress: ({stage}) => seen.add(stage)});
          await session.run({x: new Tensor('float32', [1])});
          await session.release();
          stages.push([...seen].filter((stage) => stage === 'download' || stage === 'cache'));
        }
        return stages;
        """,
        url,
    )
    assert given == [["download"], ["cache"], ["download"]]


def test_external_data(chromium: Chromium) -> None:
    """From beside the model's address, from buffers, `Blob`s, handles of files, other addresses; what is missing is
    named."""
    weights = np.arange(12, dtype=np.float32)
    data = weights.tobytes() + np.zeros(3, np.int64).tobytes()
    model_bytes = external("weights.bin").SerializeToString()
    chromium.blobs.contents["weights.bin"] = data
    given = evaluate(
        chromium,
        """
        const bytes = new Uint8Array(a.data), address = new URL(a.weights, location.href);
        const lost = {externalData: [{path: 'weights.bin', data: '/blobs/lost.bin'}]};
        const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('models', {create: true});
        const handle = await folder.getFileHandle('kept.bin', {create: true});
        const writer = await handle.createWritable();
        await writer.write(bytes);
        await writer.close();
        if (!(handle instanceof FileSystemFileHandle)) throw new Error('no handle');
        const ways = [
          [a.url, {}], [a.url, {cache: false}],
          ...[bytes, bytes.buffer, new Blob([bytes]), handle, a.weights, address].map(
            (data) => [new Uint8Array(a.model), {externalData: [{path: './weights.bin', data}]}]),
          [new Uint8Array(a.model), {externalData: [a.weights]}],
        ];
        const answers = [];
        for (const [source, options] of ways) {
          const session = await InferenceSession.create(source, options);
          answers.push((await session.run({x: new Tensor('float32', new Float32Array(12), [3, 4])})).y.data[11]);
          await session.release();
        }
        const caught = (promise) => promise.then(() => [], (error) => [error.name, error.message]);
        await folder.removeEntry('kept.bin');
        const gone = {externalData: [{path: 'weights.bin', data: handle}]};
        return {
          answers,
          gone: await caught(InferenceSession.create(new Uint8Array(a.model), gone)),
          lost: await caught(InferenceSession.create(new Uint8Array(a.model), lost)),
          none: await caught(InferenceSession.create(new Uint8Array(a.model))),
        };
        """,
        {
            "url": chromium.blobs.put(model_bytes),
            "weights": "/blobs/weights.bin",
            "data": list(data),
            "model": list(model_bytes),
        },
    )
    assert given["answers"] == [11.0] * 9
    assert given["gone"][0] == given["lost"][0] == given["none"][0] == "ExternalDataError"
    assert "'weights.bin'" in given["gone"][1]
    assert "/blobs/lost.bin could not be downloaded" in given["lost"][1]
    assert "'weights.bin'" in given["none"][1]


def test_the_gpu_from_javascript(chromium: Chromium) -> None:
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        ),
        ir_version=10,
        opset_imports=[helper.make_opsetid("", 21)],
    )
    given = evaluate(
        chromium,
        """
        const session = await InferenceSession.create(new Uint8Array(a), {executionProviders: ['webgpu', 'cpu']});
        const {y} = await session.run({x: new Tensor('float32', [1, 2, 3, 4], [2, 2])});
        return [[...y.data], session.providers, (await session.explain()).counts];
        """,
        list(made.SerializeToString()),
    )
    assert given[0] == [7, 10, 15, 22]
    assert given[1] == ["WebGpuExecutionProvider", "CPUExecutionProvider"]
    assert given[2] == {"WebGpuExecutionProvider": 1}
