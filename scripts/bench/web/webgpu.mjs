// Both engines' WebGPU providers in one worker, measured by the same clock and counted from outside.

import { counts, reset } from './counting.mjs';
import * as ort from '/peer/dist/ort.webgpu.bundle.min.mjs';

const ARRAYS = { bool: Uint8Array, int32: Int32Array, int64: BigInt64Array, float32: Float32Array };

let python; // onnxlet's side: the functions of webgpu.py
let engines; // of the case at hand: what runs it on each engine

const commands = { boot, load, round, explain };

self.onmessage = async ({ data: { number, command, argument } }) => {
  try {
    self.postMessage({ number, result: await commands[command](argument) });
  } catch (error) {
    self.postMessage({ number, error: String(error?.stack ?? error).slice(0, 4000) });
  }
};

const text = async (url) => (await fetch(url)).text();
const bytes = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());

/** Start both engines and let each compute a tiny model. `told`: {pyodide, tiny}, addresses. Returns the adapter. */
async function boot(told) {
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = '/peer/dist/';
  ort.env.logLevel = 'error';
  const { loadPyodide } = await import(new URL('pyodide.mjs', told.pyodide).href);
  const pyodide = await loadPyodide({ indexURL: told.pyodide });
  await pyodide.loadPackage(['numpy', 'onnxlet'], { messageCallback() {}, errorCallback() {} });
  pyodide.FS.writeFile('compare.py', await text('/bench/compare.py'));
  python = await pyodide.runPythonAsync(await text('/bench/web/webgpu.py'));
  const tiny = { feeds: [{ name: 'x', type: 'float32', dims: [4], data: new Uint8Array(16) }], state: {}, steps: 1, advancing: [] };
  for (const make of Object.values(MAKERS)) {
    const engine = await make(await bytes(told.tiny), tiny);
    await engine.run();
    await engine.close();
  }
  const { vendor, architecture, description } = (await navigator.gpu.requestAdapter()).info;
  return [vendor, architecture, description].filter(Boolean).join(' ');
}

/** onnxruntime-web. Values that feed the next step stay on the GPU, between runs too. */
async function peer(model, told) {
  const location = Object.fromEntries(Object.keys(told.state).map((name) => [name, 'gpu-buffer']));
  const session = await ort.InferenceSession.create(model, {
    executionProviders: ['webgpu'],
    graphOptimizationLevel: 'all',
    preferredOutputLocation: location,
  });
  const fed = new Set(Object.values(told.state));
  const fixed = {};
  const begin = {};
  const device = await ort.env.webgpu.device;
  for (const { name, type, dims, data } of told.feeds) {
    if (!fed.has(name)) {
      fixed[name] = new ort.Tensor(type, new ARRAYS[type](data.slice().buffer), dims);
      continue;
    }
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const gpuBuffer = device.createBuffer({ size: Math.max(16, Math.ceil(data.byteLength / 16) * 16), usage });
    device.queue.writeBuffer(gpuBuffer, 0, data);
    begin[name] = ort.Tensor.fromGpuBuffer(gpuBuffer, { dataType: type, dims });
  }
  return {
    async run() {
      let state = begin;
      let results;
      for (let step = 0; step < told.steps; step++) {
        const feeds = { ...fixed, ...state };
        for (const name of told.advancing) {
          const { type, dims, data } = fixed[name];
          feeds[name] = new ort.Tensor(type, data.map((value) => value + BigInt(step)), dims);
        }
        results = await session.run(feeds);
        if (state !== begin) for (const tensor of Object.values(state)) tensor.dispose();
        state = Object.fromEntries(Object.entries(told.state).map(([from, to]) => [to, results[from]]));
      }
      for (const tensor of Object.values(state)) tensor.dispose();
      return Object.entries(results)
        .filter(([name]) => !(name in told.state))
        .map(([name, { type, dims, data }]) => ({
          name, type, dims, data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
        }));
    },
    close: () => session.release(),
  };
}

/** onnxlet, in Pyodide. */
async function onnxlet(model, told) {
  const runner = await python.create(model, told.feeds, told.state, told.steps, told.advancing);
  return {
    run: () => runner.run(),
    difference: (wanted) => runner.difference(wanted),
    explain: () => runner.elsewhere().toJs({ dict_converter: Object.fromEntries }),
    close: () => runner.close(),
  };
}

const MAKERS = { peer, onnxlet };

const counted = async (work) => {
  reset();
  const result = await work();
  return [result, { ...counts }];
};

/**
 * Create a session on each engine and run it once.
 * Returns for each the ms from the model's bytes to the first result, and what was asked of WebGPU in them.
 */
async function load(told) {
  for (const feed of told.feeds) feed.data = await bytes(feed.url);
  const first = {};
  engines = {};
  for (const name of told.order) {
    const model = await bytes(told.model);
    await pause(told.pause);
    const [ms, asked] = await counted(async () => {
      const begin = performance.now();
      engines[name] = await MAKERS[name](model, told);
      await engines[name].run();
      return performance.now() - begin;
    });
    first[name] = { ms, counts: asked };
  }
  return first;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Each engine's turn after a pause, and the difference of their outputs. `told`: {order, pause, turn}, times in ms. */
async function round(told) {
  const times = {};
  const asked = {};
  let results;
  for (const name of told.order) {
    const engine = engines[name];
    await pause(told.pause);
    times[name] = [];
    const end = performance.now() + told.turn;
    do {
      const begin = performance.now();
      const [found, seen] = await counted(() => engine.run());
      times[name].push(performance.now() - begin);
      asked[name] = seen;
      if (name === 'peer') results = found;
    } while (performance.now() < end);
  }
  const difference = engines.onnxlet.difference(results);
  return { times, counts: asked, difference: Number.isFinite(difference) ? difference : 1e30 };
}

function explain() {
  return engines.onnxlet.explain();
}
