// The worker of startup.html. It keeps what it made: the page's memory is looked at afterwards.

const ARRAYS = { int32: Int32Array, int64: BigInt64Array, float32: Float32Array };
const kept = [];

self.onmessage = async ({ data: told }) => {
  if (told.runs !== undefined) return again(told);
  const ends = [];
  const done = (step) => ends.push([step, performance.timeOrigin + performance.now() - told.origin]);
  done('worker');
  try {
    await { onnxlet, peer, idle, empty }[told.engine](told, done);
    self.postMessage({ ends });
  } catch (error) {
    self.postMessage({ error: String(error?.stack ?? error).slice(0, 4000) });
  }
};

/** Zeros for each input: [{name, type, dims}] as JSON. */
const inputs = (told) => JSON.parse(told.inputs);

const STEPS = [
  ['import of NumPy', 'import numpy'],
  ['import of onnxlet', 'import onnxlet, onnxlet_wasm.provider, onnxlet_wasm.browser'],
  ['kernels', '(await onnxlet_wasm.browser.create_host_async()).close()'],
  ['model', 'from onnxlet import download; source = await download.fetch(model)'],
  ['session', 'session = await onnxlet.InferenceSession.create(source); del source'],
  ['first run', 'import json; session.run(None, {i["name"]: numpy.zeros(i["dims"], i["type"]) for i in json.loads(inputs)})'],
];

async function onnxlet(told, done) {
  const { boot } = await import('/onnxlet/boot.mjs');
  const python = await boot();
  kept.push(python);
  done('Pyodide; NumPy and the wheel arrive');
  python.globals.set('model', told.model);
  python.globals.set('inputs', told.inputs);
  for (const [step, code] of STEPS) {
    await python.runPythonAsync(code);
    done(step);
  }
}

async function idle(told, done) {
  const { loadPyodide } = await import(`${told.pyodide}pyodide.mjs`);
  const python = await loadPyodide({ indexURL: told.pyodide, packages: ['numpy'] });
  python.runPython('import numpy');
  kept.push(python);
  done('Pyodide and NumPy');
}

async function empty() {}

const AGAIN = `
feeds = {i["name"]: numpy.zeros(i["dims"], i["type"]) for i in json.loads(inputs)}
for _ in range(runs):
    session.run(None, feeds)
source = await download.fetch(model)
for _ in range(cycles):
    other = await onnxlet.InferenceSession.create(source)
    other.run(None, feeds)
    other.close()
del source
import gc
gc.collect()
`;

/** Run the session `runs` times, make and close `cycles` other ones, and tell how large Pyodide's memory is. */
async function again({ runs, cycles }) {
  const [python] = kept;
  python.globals.set('runs', runs);
  python.globals.set('cycles', cycles);
  try {
    await python.runPythonAsync(AGAIN);
    self.postMessage({ heap: python._module.HEAP8.length });
  } catch (error) {
    self.postMessage({ error: String(error).slice(-2000) });
  }
}

async function peer(told, done) {
  const ort = await import('/peer/dist/ort.wasm.min.mjs');
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = '/peer/dist/';
  done('module');
  const session = await ort.InferenceSession.create(told.model, { executionProviders: ['wasm'], graphOptimizationLevel: 'all' });
  kept.push(session);
  done('session');
  const feeds = {};
  for (const { name, type, dims } of inputs(told)) {
    feeds[name] = new ort.Tensor(type, new ARRAYS[type](dims.reduce((a, b) => a * b, 1)), dims);
  }
  await session.run(feeds);
  done('first run');
}
