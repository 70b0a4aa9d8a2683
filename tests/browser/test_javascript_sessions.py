"""`InferenceSession` in JavaScript: what it takes, what it gives, and where its data are."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from onnx import TensorProto
from playwright.async_api import Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from demo_site.serving import running
from tests.browser.harness import Chromium
from tests.core.models import model, node
from tests.core.test_external import model as external

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

COMMON = """
const caught = (promise) => promise.then(() => 'nothing', ({name, code, message}) => [name, code, message]);
const attempt = (call) => { try { return call(); } catch ({name, code, message}) { return [name, code, message]; } };
"""


def evaluate(chromium: Chromium, script: str, argument: Any = None, **options: Any) -> Any:
    """Run the body of an asynchronous function with the module's names in scope; `a` is the argument."""
    names = "{ InferenceSession, Tensor, env, shutdown, backend }"
    whole = f"async (a) => {{ const {names} = await import('/onnxlet/onnxlet.mjs'); {COMMON} {script} }}"

    async def run(page: Page) -> Any:
        return await page.evaluate(whole, argument)

    return chromium.visit("/site.json", run, **options)


def sums() -> list[int]:
    """The outputs `sum`, x + y, and `difference`, x - y."""
    nodes = [node("Add", ["x", "y"], ["sum"]), node("Sub", ["x", "y"], ["difference"])]
    inputs = [("x", FLOAT, ["n", 2]), ("y", FLOAT, ["n", 2])]
    return list(model(nodes, inputs, [("sum", FLOAT, ["n", 2]), ("difference", FLOAT, ["n", 2])]).SerializeToString())


def counter() -> list[int]:
    """A state that a run adds to and multiplies: next = (state + x) @ w, with the state's largest element."""
    weights = {"w": np.array([[0, 1], [1, 0]], np.float32)}
    nodes = [
        node("Add", ["state", "x"], ["moved"]),
        node("MatMul", ["moved", "w"], ["next"]),
        node("ReduceMax", ["next"], ["top"], keepdims=0),
        node("Shape", ["next"], ["0"]),
    ]
    inputs = [("state", FLOAT, [2, 2]), ("x", FLOAT, [2, 2])]
    outputs = [("next", FLOAT, [2, 2]), ("top", FLOAT, []), ("0", INT64, [2])]
    return list(model(nodes, inputs, outputs, weights).SerializeToString())


def test_every_way_to_run(chromium: Chromium) -> None:
    """The overloads of `run` and of `create`, as onnxruntime's JavaScript API has them."""
    given = evaluate(
        chromium,
        """
        const bytes = new Uint8Array(a), padded = new Uint8Array(a.length + 9);
        padded.set(bytes, 4);
        const shared = new SharedArrayBuffer(a.length);
        new Uint8Array(shared).set(bytes);
        const address = URL.createObjectURL(new Blob([bytes]));
        const ways = [
          [bytes], [bytes, {}], [bytes, undefined], [bytes.buffer], [new Blob([bytes])], [shared],
          [padded.subarray(4, 4 + a.length)], [padded.buffer, 4, a.length],
          [padded.buffer, 4, a.length, {cache: false}], [padded.buffer.slice(4), 0, a.length],
          [padded.slice(4, 4 + a.length).buffer, {}], [address], [new URL(address)],
        ];
        const created = [];
        let session;
        for (const way of ways) {
          await session?.release();
          session = await InferenceSession.create(...way);
          created.push(session.inputNames.join());
        }
        const room = new Float32Array(100), x = room.subarray(50, 54);
        x.set([1, 2, 3, 4]);
        const feeds = {x: new Tensor(x, [2, 2]), y: new Tensor(new Float32Array([1, 1, 1, 1]), [2, 2])};
        const target = new Tensor('float32', new Float32Array(4), [2, 2]);
        const options = {tag: 'a', logSeverityLevel: 3};
        const runs = [
          await session.run(feeds), await session.run(feeds, options), await session.run(feeds, ['difference']),
          await session.run(feeds, ['difference', 'sum'], options), await session.run(feeds, {sum: null}),
          await session.run(feeds, {sum: target}, options), await session.run(feeds, {}),
          await session.run({...feeds, x: {type: 'float32', data: x, dims: [2, 2]}}),
        ].map((results) => Object.entries(results).map(([name, {data, dims, type}]) => [name, [...data], dims, type]));
        const refused = [];
        for (const call of [
          [null], [[feeds.x]], [feeds.x], [feeds, null], [feeds, 3], [feeds, 'sum'], [feeds, []], [feeds, [1]],
          [feeds, ['total']], [feeds, ['sum'], 3], [{x: feeds.x}], [{...feeds, y: [1]}], [{...feeds, y: null}],
          [feeds, {terminate: true}], [feeds, {sum: new Tensor(new Float32Array(1))}],
        ]) refused.push((await caught(session.run(...call))).slice(0, 2));
        const models = [];
        const b = bytes.buffer;
        for (const way of [[3], [null], ['/none.onnx', 3], [b, -1], [b, 0, a.length + 1], [b, 0.5]]) {
          models.push((await caught(InferenceSession.create(...way))).slice(0, 2));
        }
        const settings = [];
        for (const options of [
          {graphOptimizationLevel: 'most'}, {logSeverityLevel: 7}, {preferredOutputLocation: 'moon'},
          {preferredOutputLocation: {sum: 'texture'}}, {executionProviders: ['webnn', 'cuda']},
        ]) {
          settings.push((await caught(InferenceSession.create(bytes, options))).slice(0, 2));
        }
        const names = ['webnn', {name: 'wasm'}, {name: 'cpu', useArena: true}];
        const extra = {session: {a: {b: true}}, c: 1};
        const other = await InferenceSession.create(bytes, {executionProviders: names, extra});
        return {
          created, runs, refused, models, settings, providers: other.providers,
          same: (await session.run(feeds, {sum: target})).sum === target,
          target: [...target.data], metadata: [session.inputMetadata, session.outputMetadata],
          kept: x[0], level: attempt(() => { env.logLevel = 'loud'; })[0], versions: env.versions,
        };
        """,
        sums(),
    )
    assert given["created"] == ["x,y"] * 13
    total = ["sum", [2, 3, 4, 5], [2, 2], "float32"]
    difference = ["difference", [0, 1, 2, 3], [2, 2], "float32"]
    both = [total, difference]
    assert given["runs"] == [both, both, [difference], [difference, total], [total], [total], both, both]
    bad = ["TypeError", "INVALID_ARGUMENT"]
    feed = ["FeedError", "INVALID_ARGUMENT"]
    out = ["RangeError", "INVALID_ARGUMENT"]
    assert given["refused"] == [
        *[bad] * 7, out, out, bad, feed, bad, bad, ["TerminatedError", "TERMINATED"], feed,
    ]  # fmt: skip
    assert given["models"] == [bad, bad, bad, out, out, out]
    assert given["settings"] == [*[bad] * 4, ["ProviderError", "EP_FAIL"]]
    assert given["providers"] == ["CPUExecutionProvider"]
    assert given["same"]
    assert given["target"] == [2, 3, 4, 5]
    described = {"isTensor": True, "type": "float32", "shape": ["n", 2]}
    assert given["metadata"] == [
        [{"name": n, **described} for n in names] for names in (["x", "y"], ["sum", "difference"])
    ]
    assert given["kept"] == 1
    assert given["level"] == "TypeError"
    assert given["versions"]["common"] == "1.30.0"


def test_types_that_javascript_has_no_array_for(chromium: Chromium) -> None:
    """Nibbles are packed, two to a byte; halves are a Float16Array; what is neither is refused with its name."""
    nibbles = model(
        [node("Cast", ["x"], ["wide"], to=TensorProto.INT32), node("Identity", ["x"], ["y"])],
        [("x", TensorProto.INT4, ["n"])],
        [("wide", TensorProto.INT32, ["n"]), ("y", TensorProto.INT4, ["n"])],
    )
    brains = model(
        [node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)], [("x", FLOAT, [1])], [("y", TensorProto.BFLOAT16, [1])]
    )
    halves = model(
        [node("Add", ["x", "x"], ["y"])], [("x", TensorProto.FLOAT16, ["n"])], [("y", TensorProto.FLOAT16, ["n"])]
    )
    pieces = model(
        [node("SplitToSequence", ["x"], ["y"], axis=0)], [("x", FLOAT, ["n"])], [("y", FLOAT, None)], check=False
    )
    pieces.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    given = evaluate(
        chromium,
        """
        const sessions = await Promise.all(a.map((bytes) => InferenceSession.create(new Uint8Array(bytes))));
        const [nibbles, brains, halves, pieces] = sessions;
        const packed = await nibbles.run({x: new Tensor('int4', new Uint8Array([0x98, 0x07, 0x0f]), [5])});
        const small = await halves.run({x: new Tensor(new Float16Array([1.5, -2]))});
        const parts = await pieces.run({x: new Tensor(new Float32Array([1, 2]))});
        return {
          wide: [...packed.wide.data], bytes: [...packed.y.data], dims: packed.y.dims, type: packed.y.type,
          refused: await caught(brains.run({x: new Tensor(new Float32Array([1]))})),
          small: [small.y.data.constructor.name, [...small.y.data]],
          parts: [parts.y.map((p) => [...p]), pieces.outputMetadata],
        };
        """,
        [list(m.SerializeToString()) for m in (nibbles, brains, halves, pieces)],
    )
    assert given["wide"] == [-8, -7, 7, 0, -1]
    assert (given["bytes"], given["dims"], given["type"]) == ([0x98, 0x07, 0x0F], [5], "int4")
    assert given["refused"][:2] == ["UnsupportedError", "NOT_IMPLEMENTED"]
    assert "bfloat16" in given["refused"][2]
    assert given["small"] == ["Float16Array", [3, -4]]
    assert given["parts"] == [[[1], [2]], [{"name": "y", "isTensor": False}]]


def test_outputs_stay_on_the_gpu(chromium: Chromium) -> None:
    """In a worker: they feed the next run, are read back when asked for, and freed. Their buffers can't leave it."""
    given = evaluate(
        chromium,
        """
        const options = {executionProviders: ['webgpu', 'cpu'], preferredOutputLocation: {next: 'gpu-buffer'}};
        const session = await InferenceSession.create(new Uint8Array(a), options);
        const other = await InferenceSession.create(new Uint8Array(a), options);
        const x = new Tensor('float32', [1, 2, 3, 4], [2, 2]);
        let state = new Tensor('float32', [0, 0, 0, 0], [2, 2]);
        const states = [], tops = [];
        for (let step = 0; step < 4; step++) {
          const used = step % 2 ? other : session; // sessions share the device
          const results = await used.run({state, x});
          states.push(state);
          state = results.next;
          tops.push(results.top.data[0]);
        }
        const {location, dims, type} = state;
        const missing = attempt(() => state.data), buffer = attempt(() => state.gpuBuffer);
        const seen = [location, dims, type, [...(await state.getData())], state.location, [...state.data]];
        const reshaped = [...(await states[2].reshape([4]).getData())];
        states[3].dispose();
        const late = await caught(session.run({state: states[3], x}));
        const {next} = await session.run({state: states[2], x}, {next: new Tensor(new Float32Array(4), [2, 2])});
        const feed = Tensor.fromGpuBuffer({size: 16}, {dims: [2, 2]});
        const foreign = await caught(session.run({state: feed, x}));
        const plain = await InferenceSession.create(new Uint8Array(a), {preferredOutputLocation: 'gpu-buffer'});
        const host = await plain.run({state: x, x});
        const everything = {...options, preferredOutputLocation: 'gpu-buffer'};
        const all = await InferenceSession.create(new Uint8Array(a), everything);
        const places = Object.values(await all.run({state: x, x})).map(({location}) => location);
        await other.release();
        const lost = [...(await states[2].getData(true))];
        shutdown();
        const ended = await caught(session.run({state: x, x}));
        const again = await InferenceSession.create(new Uint8Array(a), options);
        const old = await caught(again.run({state, x: states[1]}));
        return {seen, tops, missing, buffer, reshaped, late, next: [next.location, [...next.data]], foreign,
                host: [host.next.location, host.top.data[0]], lost, ended, old, places};
        """,
        counter(),
    )
    step = np.array([[1, 2], [3, 4]], np.float32)
    swap = np.array([[0, 1], [1, 0]], np.float32)
    states = [np.zeros((2, 2), np.float32)]
    for _ in range(4):
        states.append((states[-1] + step) @ swap)
    last = states[4].ravel().tolist()
    assert given["seen"] == ["gpu-buffer", [2, 2], "float32", last, "cpu", last]
    assert given["tops"] == [float(s.max()) for s in states[1:]]
    assert "getData" in given["missing"][2]
    assert given["buffer"][1] == "NOT_IMPLEMENTED"
    assert "env.worker = false" in given["buffer"][2]
    assert given["reshaped"] == states[2].ravel().tolist()
    assert "disposed" in given["late"][2]
    assert given["next"] == ["cpu", states[3].ravel().tolist()]
    assert "env.worker = false" in given["foreign"][2]
    assert given["host"] == ["cpu", 8]
    assert given["places"] == ["gpu-buffer"] * 3
    assert given["lost"] == states[2].ravel().tolist()
    assert given["ended"][:2] == ["WorkerError", "WORKER_FAILED"]
    assert given["old"][0] == "FeedError"


def test_gpu_buffers_where_python_runs_in_the_page(chromium: Chromium) -> None:
    """With `env.webgpu.device` set: tensors have buffers of that device, and are made of them."""
    given = evaluate(
        chromium,
        """
        const adapter = await navigator.gpu.requestAdapter();
        const device = await adapter.requestDevice();
        const early = await caught(env.webgpu.device);
        const bad = attempt(() => { env.webgpu.device = {}; });
        env.webgpu.device = device;
        const options = {executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer'};
        const session = await InferenceSession.create(new Uint8Array(a), options);
        const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
        const buffer = device.createBuffer({size: 16, usage});
        device.queue.writeBuffer(buffer, 0, new Float32Array([1, 2, 3, 4]));
        const x = Tensor.fromGpuBuffer(buffer, {dataType: 'float32', dims: [2, 2]});
        const state = new Tensor(new Float32Array(4), [2, 2]);
        const first = await session.run({state, x});
        const second = await session.run({state: first.next, x});
        // Read by the page's own commands, on its own device.
        const staging = device.createBuffer({size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
        const encoder = device.createCommandEncoder();
        encoder.copyBufferToBuffer(second.next.gpuBuffer, 0, staging, 0, 16);
        device.queue.submit([encoder.finish()]);
        await staging.mapAsync(GPUMapMode.READ);
        const read = [...new Float32Array(staging.getMappedRange())];
        // The page's buffer is read anew at every run.
        device.queue.writeBuffer(buffer, 0, new Float32Array([5, 6, 7, 8]));
        const third = await session.run({state, x});
        const tiny = Tensor.fromGpuBuffer(device.createBuffer({size: 8, usage}), {dims: [2, 2]});
        const writable = device.createBuffer({size: 16, usage: GPUBufferUsage.COPY_DST});
        const closed = Tensor.fromGpuBuffer(writable, {dims: [2, 2]});
        const bytes = Tensor.fromGpuBuffer(buffer, {dataType: 'uint8', dims: [2, 2]});
        const plain = await InferenceSession.create(new Uint8Array(a));
        const answer = {
          early, bad, read, again: [...(await third.next.getData())], top: [...(await second.top.getData())],
          shape: [second[0].location, [...(await second[0].getData())].map(Number)],
          same: (await env.webgpu.device) === device, host: [...(await plain.run({state: state, x: state})).next.data],
          refused: [await caught(session.run({state, x: tiny})), await caught(session.run({state, x: closed})),
                    await caught(session.run({state, x: bytes})), await caught(plain.run({state, x}))],
          download: await caught(x.getData()),
        };
        await session.release();
        await plain.release();
        const alive = device.createBuffer({size: 16, usage});
        answer.alive = await Promise.race([device.lost.then(() => false), new Promise((r) => setTimeout(r, 50, true))]);
        return answer;
        """,
        counter(),
    )
    step = np.array([[1, 2], [3, 4]], np.float32)
    swap = np.array([[0, 1], [1, 0]], np.float32)
    second = (step @ swap + step) @ swap
    assert given["early"][1] == "NOT_IMPLEMENTED"
    assert given["bad"][0] == "TypeError"
    assert given["read"] == second.ravel().tolist()
    assert given["top"] == [second.max()]
    assert given["again"] == [6, 5, 8, 7]
    assert given["shape"] == ["gpu-buffer", [2, 2]]
    assert given["same"]
    assert given["host"] == [0, 0, 0, 0]
    small, closed, other, host = (row[2] for row in given["refused"])
    assert "takes 16 bytes" in small
    assert "STORAGE" in closed
    assert "another form" in other
    assert "no 'webgpu'" in host
    assert "download" in given["download"][2]
    assert given["alive"]


def test_the_device_that_sessions_in_the_page_share(chromium: Chromium) -> None:
    """With `env.worker = false`: made of the page's adapter, known to the page, and made anew when it is lost."""
    given = evaluate(
        chromium,
        """
        env.worker = false;
        env.webgpu.adapter = await navigator.gpu.requestAdapter();
        const options = {executionProviders: ['webgpu'], preferredOutputLocation: {next: 'gpu-buffer'}};
        const x = new Tensor('float32', [1, 2, 3, 4], [2, 2]);
        const session = await InferenceSession.create(new Uint8Array(a), options);
        const {next} = await session.run({state: x, x});
        const device = await env.webgpu.device;
        const staging = device.createBuffer({size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
        const encoder = device.createCommandEncoder();
        encoder.copyBufferToBuffer(next.gpuBuffer, 0, staging, 0, 16);
        device.queue.submit([encoder.finish()]);
        await staging.mapAsync(GPUMapMode.READ);
        const read = [...new Float32Array(staging.getMappedRange())];
        const size = ({limits}) => limits.maxStorageBufferBindingSize;
        const limits = size(device) === size(env.webgpu.adapter);
        env.webgpu.adapter = undefined; // an adapter makes one device
        device.destroy();
        await device.lost;
        const again = await InferenceSession.create(new Uint8Array(a), options);
        const other = await again.run({state: x, x});
        const data = [...(await other.next.getData())];
        return {read, limits, data, changed: (await env.webgpu.device) !== device};
        """,
        counter(),
    )
    assert given == {"read": [4, 2, 8, 6], "limits": True, "data": [4, 2, 8, 6], "changed": True}


def test_loading_can_be_watched_and_ended(chromium: Chromium) -> None:
    """A model's download begins before Python is there; an AbortSignal ends it, and what waits for a run."""
    content, apart, weights = bytes(sums()), external("weights.bin").SerializeToString(), bytes(72)
    slow: dict[str, int] = {"sent": 0}

    async def endless(request: Request) -> Response:
        def chunks() -> Any:
            for _ in range(600):
                slow["sent"] += 1
                yield b"0" * 1000
                time.sleep(0.1)

        return StreamingResponse(chunks(), headers={"Access-Control-Allow-Origin": "*"})

    with running(Starlette(routes=[Route("/model.onnx", endless)])) as url:
        given = evaluate(
            chromium,
            """
            const stages = [];
            const session = await InferenceSession.create(a.url, {progress: (event) => stages.push(event.stage)});
            const control = new AbortController();
            const loading = InferenceSession.create(a.slow, {
              signal: control.signal, cache: false,
              progress: ({done}) => done > 2000 && control.abort(new Error('enough')),
            });
            const ended = await caught(loading);
            const before = await caught(InferenceSession.create(a.url, {signal: AbortSignal.abort()}));
            const feeds = {x: new Tensor(new Float32Array(2), [1, 2]), y: new Tensor(new Float32Array([1, 2]), [1, 2])};
            const stop = new AbortController();
            const waiting = caught(session.run(feeds, {signal: stop.signal}));
            stop.abort();
            const run = await waiting;
            const {sum} = await session.run(feeds, {signal: new AbortController().signal});
            shutdown();
            const events = [], externalData = [{path: 'weights.bin', data: a.weights}];
            await InferenceSession.create(a.apart, {externalData, progress: (event) => events.push(event)});
            return {stages, ended, before, run, sum: [...sum.data], events};
            """,
            {
                "url": chromium.blobs.put(content),
                "slow": f"{url}/model.onnx",
                "apart": chromium.blobs.put(apart),
                "weights": chromium.blobs.put(weights),
            },
            isolated=False,
        )
    assert given["stages"].index("download") < given["stages"].index("ready")
    assert given["ended"][2] == "enough"
    assert given["before"][0] == "AbortError"
    assert given["run"][0] == "AbortError"
    assert given["sum"] == [1, 2]
    assert slow["sent"] < 600
    # The files that a model keeps tensors in come along, and are counted too.
    stages = [event["stage"] for event in given["events"]]
    assert set(stages[: stages.index("ready")]) == {"pyodide", "download"}
    last = [event for event in given["events"] if event["stage"] == "download"][-1]
    assert last["done"] == last["total"] == len(apart) + len(weights)


def test_starting_can_fail_and_be_tried_again(chromium: Chromium) -> None:
    given = evaluate(
        chromium,
        """
        const outcomes = [];
        const {pyodide} = env;
        for (const worker of [true, false]) {
          env.worker = worker;
          env.pyodide = '/nowhere/';
          outcomes.push(await caught(InferenceSession.create(new Uint8Array(a))));
        }
        [env.worker, env.pyodide, env.wasm.initTimeout] = [true, pyodide, 1];
        outcomes.push(await caught(InferenceSession.create(new Uint8Array(a))));
        env.wasm.initTimeout = 0;
        const session = await InferenceSession.create(new Uint8Array(a));
        return {outcomes, names: session.outputNames};
        """,
        sums(),
    )
    assert [row[1] for row in given["outcomes"]] == ["WORKER_FAILED"] * 3
    assert "could not be started" in given["outcomes"][0][2]
    assert "did not start in 1 ms" in given["outcomes"][2][2]
    assert given["names"] == ["sum", "difference"]


def test_options_reach_the_engine(chromium: Chromium) -> None:
    """Lengths of symbolic dimensions, the trace of a run, configuration entries, levels of optimisation."""
    text = model([node("Identity", ["x"], ["y"])], [("x", TensorProto.STRING, [1])], [("y", TensorProto.STRING, [1])])
    chain = model(
        [node("Identity", ["x"], ["a"]), node("Identity", ["a"], ["b"]), node("Neg", ["b"], ["y"])],
        [("x", FLOAT, [2])],
        [("y", FLOAT, [2])],
    )
    given = evaluate(
        chromium,
        """
        env.wasm.numThreads = 1;
        const [sums, text, chain] = a.map((bytes) => new Uint8Array(bytes));
        const session = await InferenceSession.create(sums, {freeDimensionOverrides: {n: 1}, enableProfiling: true});
        const pair = new Tensor(new Float32Array([1, 2]), [1, 2]), two = new Tensor(new Float32Array(4), [2, 2]);
        await session.run({x: pair, y: pair});
        const shapes = session.inputMetadata.map((input) => input.shape);
        const refused = await caught(session.run({x: two, y: two}));
        const first = await session.endProfiling(), none = await session.endProfiling();
        session.startProfiling();
        await session.run({x: pair, y: pair});
        const second = await session.endProfiling();
        const strict = {executionProviders: ['webgpu'], extra: {session: {disable_cpu_ep_fallback: true}}};
        const alone = await InferenceSession.create(text, strict);
        const auto = await InferenceSession.create(sums, {executionProviders: ['auto']});
        const {sum} = await auto.run({x: pair, y: pair});
        const counts = [];
        for (const graphOptimizationLevel of ['disabled', 'all']) {
          const one = await InferenceSession.create(chain, {graphOptimizationLevel});
          await one.run({x: new Tensor(new Float32Array([1, 2]))});
          counts.push((await one.explain()).nodes.length);
        }
        return {
          shapes, refused, first: first.map(({name}) => name), none, second: second.map(({cat}) => cat),
          fallback: await caught(alone.run({x: new Tensor(['a'])})), counts, sum: [...sum.data],
        };
        """,
        [sums(), list(text.SerializeToString()), list(chain.SerializeToString())],
    )
    assert given["shapes"] == [[1, 2], [1, 2]]
    assert given["refused"][0] == "FeedError"
    assert "model_run" in given["first"]
    assert given["none"] == []
    assert {"Session", "Node"} <= set(given["second"])
    assert given["fallback"][:2] == ["ProviderError", "EP_FAIL"]
    assert given["counts"] == [3, 1]
    assert given["sum"] == [2, 4]
