// Both engines in one worker, measured by the same clock in the same thread.

import * as ort from '/peer/dist/ort.wasm.min.mjs';

const BYTES = { bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, int32: Int32Array, int64: BigInt64Array, float32: Float32Array };

let settings;
let python; // onnxlet's side: the functions of bench.py
let parts = []; // of the case at hand: {peer, ours, feeds, outputs}

const commands = { boot, load, round, explain, release };

self.onmessage = async ({ data: { number, command, argument } }) => {
  try {
    self.postMessage({ number, result: await commands[command](argument) });
  } catch (error) {
    self.postMessage({ number, error: String(error?.stack ?? error).slice(0, 4000) });
  }
};

const text = async (url) => (await fetch(url)).text();
const bytes = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());

/** Start both engines. `told`: {threads, pyodide}, the latter an address. */
async function boot(told) {
  settings = told;
  ort.env.wasm.numThreads = told.threads;
  ort.env.wasm.wasmPaths = '/peer/dist/';
  ort.env.logLevel = 'error';
  const { loadPyodide } = await import(new URL('pyodide.mjs', told.pyodide).href);
  const pyodide = await loadPyodide({ indexURL: told.pyodide });
  await pyodide.loadPackage(['numpy', 'onnxlet'], { messageCallback() {}, errorCallback() {} });
  pyodide.FS.writeFile('compare.py', await text('/bench/compare.py'));
  python = pyodide.runPython(await text('/bench/web/bench.py'));
  const relaxed = pyodide.runPython("__import__('onnxlet').features()['relaxed-simd'].available");
  return { python: pyodide.version, isolated: self.crossOriginIsolated, relaxed };
}

/** Create sessions on both engines for the parts of a case and run each once. Returns ms to the first result. */
async function load(described) {
  const first = {};
  for (const { model, feeds, outputs } of described) {
    const inputs = [];
    for (const { name, type, dims, url } of feeds) inputs.push({ name, type, dims, data: await bytes(url) });
    const peerFeeds = {};
    for (const { name, type, dims, data } of inputs) {
      peerFeeds[name] = new ort.Tensor(type, new BYTES[type](data.slice().buffer), dims);
    }
    const forPeer = await bytes(model);
    let begin = performance.now();
    const peer = await ort.InferenceSession.create(forPeer, { executionProviders: ['wasm'], graphOptimizationLevel: 'all' });
    await peer.run(peerFeeds);
    first.peer ??= performance.now() - begin;
    const forUs = await bytes(model);
    begin = performance.now();
    const ours = await python.create(forUs, settings.threads, inputs, outputs);
    ours.run(1);
    first.onnxlet ??= performance.now() - begin;
    parts.push({ peer, ours, feeds: peerFeeds, outputs });
  }
  return first;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * One round: each engine's turn after a pause, and the difference of their outputs.
 * `told`: {first: 'peer'|'onnxlet', pause, turn, least}, times in ms.
 */
async function round(told) {
  const times = {};
  const order = told.first === 'peer' ? ['peer', 'onnxlet'] : ['onnxlet', 'peer'];
  for (const engine of order) {
    await pause(told.pause);
    const run = engine === 'peer' ? runPeer : async (part, count) => part.ours.run(count);
    for (const part of parts) await run(part, 1);
    times[engine] = [];
    for (const part of parts) times[engine].push(await turn(run, part, told.turn / parts.length, told.least));
  }
  let difference = 0;
  for (const part of parts) {
    const results = await part.peer.run(part.feeds);
    const plain = Object.entries(results).map(([name, { type, dims, data }]) => ({
      name, type, dims, data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
    }));
    difference = Math.max(difference, part.ours.difference(plain));
  }
  return { times, difference: Number.isFinite(difference) ? difference : 1e30 };
}

/** Run again and again for about `ms`. Returns ms per run; short runs are timed several at a time. */
async function turn(run, part, ms, least) {
  let begin = performance.now();
  await run(part, 1);
  const together = Math.max(1, Math.floor(0.5 / Math.max(performance.now() - begin, 0.005)));
  const samples = [];
  const end = performance.now() + ms;
  while (samples.length < least || performance.now() < end) {
    begin = performance.now();
    await run(part, together);
    samples.push((performance.now() - begin) / together);
  }
  return samples;
}

async function runPeer({ peer, feeds, outputs }, count) {
  for (let i = 0; i < count; i++) await (outputs ? peer.run(feeds, outputs) : peer.run(feeds));
}

/** What of the case at hand onnxlet left to NumPy: operator to number. */
function explain() {
  return parts[0].ours.on_numpy().toJs({ dict_converter: Object.fromEntries });
}

async function release() {
  for (const { peer, ours } of parts) {
    await peer.release();
    ours.close();
    ours.destroy();
  }
  parts = [];
}
