// onnxlet for web pages: ONNX models run in a worker of their own, by Python (Pyodide) and compiled kernels.
//
//   import { InferenceSession, Tensor } from './onnxlet/onnxlet.mjs';
//   const session = await InferenceSession.create('model.onnx', { executionProviders: ['webgpu', 'cpu'] });
//   const { y } = await session.run({ x: new Tensor('float32', data, [1, 3, 224, 224]) });
//
// Names are those of onnxruntime-web where the meaning is the same; onnxlet.d.mts has all of them. The worker starts
// with the first session and serves all of them; the page's own thread computes only with `env.worker = false`.

import { ARRAYS, OnnxletError, Tensor, unsupported, wrong } from './tensor.mjs';

export { OnnxletError, Tensor };

const LOG_LEVELS = ['verbose', 'info', 'warning', 'error', 'fatal'];
const LEVELS = ['disabled', 'basic', 'extended', 'layout', 'all'];
const PROVIDERS = { cpu: 'cpu', wasm: 'cpu', onnxlet: 'cpu', webgpu: 'webgpu', auto: 'auto' };

let logLevel = 'warning';
let device = null;

/** Settings for all sessions, to be set before the first one. */
export const env = {
  /** Address of the folder that holds `pyodide.mjs`, or null: named by `site.json` beside this module's folder. */
  pyodide: null,
  /** Address of onnxlet's wheel, for a Pyodide folder whose lock file does not name it. */
  wheel: null,
  /** Whether Python runs in a worker. By default it does, unless `env.webgpu.device` is set: see there. */
  worker: null,
  /** Providers of sessions that name none. */
  executionProviders: ['cpu'],
  wasm: {},
  webgl: {},
  webgpu: {
    profiling: {},
    /** A `GPUDevice` for the sessions, whose buffers tensors may then share. It belongs to this thread: so does Python. */
    get device() {
      const here = link ? link instanceof Local : env.worker === false;
      return Promise.resolve((device ??= here ? requestDevice() : null) ?? noDevice());
    },
    set device(value) {
      if (typeof value?.createBuffer !== 'function') throw wrong(TypeError, 'env.webgpu.device must be a GPUDevice');
      device = value;
    },
  },
  versions: { common: '1.30.0', onnxlet: '0.1.0' },
  get logLevel() {
    return logLevel;
  },
  set logLevel(value) {
    if (!LOG_LEVELS.includes(value)) throw wrong(TypeError, `env.logLevel is one of ${LOG_LEVELS.join(', ')}`);
    logLevel = value;
  },
};

const noDevice = async () => {
  throw unsupported("the GPU device is the worker's: set `env.worker = false` before the first session is made");
};

async function requestDevice() {
  const { powerPreference = 'high-performance', adapter: given } = env.webgpu;
  const adapter = given ?? (await navigator.gpu?.requestAdapter({ powerPreference }));
  if (!adapter) throw new OnnxletError('ProviderError', 'this browser has no WebGPU, or no adapter for it');
  const requiredLimits = {};
  for (const name in adapter.limits) requiredLimits[name] = adapter.limits[name];
  const requiredFeatures = ['shader-f16', 'subgroups'].filter((name) => adapter.features.has(name));
  const made = await adapter.requestDevice({ requiredLimits, requiredFeatures });
  made.lost.then(() => (device = null)); // the next session gets a new one
  return made;
}

let link = null;

/** Calls of Python that wait for their answers. It runs in a worker, or in this thread. */
class Link {
  constructor() {
    this.calls = new Map();
    this.next = 1;
  }

  static open() {
    const told = { pyodide: absolute(env.pyodide), wheel: absolute(env.wheel) };
    const here = env.worker === false || (env.worker === null && (device || env.webgpu.adapter));
    link = here ? new Local(told) : new Remote(told);
    const patience = env.wasm.initTimeout;
    if (patience) link.timer = setTimeout(link.fail.bind(link), patience, `onnxlet did not start in ${patience} ms`);
    return link;
  }

  /** Call a function of Python's. Resolves with its result, rejects with an OnnxletError. */
  call(method, args, { progress, signal, transfer } = {}) {
    if (this.failed) return Promise.reject(this.failed);
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const id = this.next++;
      const abort = () => {
        this.calls.delete(id);
        this.abort(id);
        reject(signal.reason);
      };
      signal?.addEventListener('abort', abort, { once: true });
      const done = () => signal?.removeEventListener('abort', abort);
      this.calls.set(id, { resolve, reject, progress, done });
      try {
        this.send(id, method, args, transfer);
      } catch (error) {
        this.receive({ id, error: { name: 'TypeError', message: `an argument can't be sent to the worker: ${error.message}` } });
      }
    });
  }

  receive({ id, result, error, progress, fatal }) {
    if (fatal) return this.fail(fatal);
    if (progress) {
      if (progress.stage === 'ready') clearTimeout(this.timer);
      for (const call of id ? [this.calls.get(id)] : this.calls.values()) call?.progress?.(progress);
      return;
    }
    const call = this.calls.get(id);
    this.calls.delete(id);
    call?.done();
    if (error) call?.reject(new OnnxletError(error.name, error.message));
    else call?.resolve(result);
  }

  /** Python is of no use any more: every call is told, and the next session starts anew. */
  fail(reason) {
    clearTimeout(this.timer);
    this.end();
    this.failed = new OnnxletError('WorkerError', reason);
    if (link === this) link = null;
    for (const call of this.calls.values()) call.reject(this.failed);
    this.calls.clear();
  }
}

class Remote extends Link {
  constructor(told) {
    super();
    this.worker = startWorker();
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => this.fail(event.message || 'the worker could not be loaded');
    this.worker.onmessageerror = () => this.fail('an answer of the worker could not be read');
    this.worker.postMessage({ boot: told });
  }

  send(id, method, args, transfer = []) {
    this.worker.postMessage({ id, method, args }, transfer);
  }

  abort(id) {
    this.worker.postMessage({ id, abort: true });
  }

  end() {
    this.worker.terminate();
  }
}

class Local extends Link {
  constructor(told) {
    super();
    this.running = new Map();
    this.arrival = import('./boot.mjs').then(({ Host }) => {
      this.host = new Host(told, (stage) => this.receive({ progress: { stage, done: 0, total: null } }));
    });
    const failed = (error) => this.fail(`onnxlet could not be started: ${error.message ?? error}`);
    this.arrival.then(() => this.host.booted).catch(failed);
  }

  async send(id, method, args) {
    const control = new AbortController();
    this.running.set(id, control);
    const progress = (stage, done, total) => this.receive({ id, progress: { stage, done, total: total ?? null } });
    if (!this.host) await this.arrival.catch(() => {});
    await this.host?.call(method, args, progress, control.signal).then(
      (answer) => this.receive({ id, ...answer }),
      (error) => this.receive({ id, error: { name: 'WorkerError', message: String(error.message ?? error) } }),
    );
    this.running.delete(id);
  }

  abort(id) {
    this.running.get(id)?.abort();
  }

  end() {}
}

function absolute(address) {
  return address === null ? null : new URL(address, globalThis.location?.href).href;
}

function startWorker() {
  try {
    // Bundlers look for just this expression.
    return new Worker(new URL('./worker.mjs', import.meta.url), { type: 'module', name: 'onnxlet' });
  } catch {
    // A worker's script must come from the page's own origin; a module that imports the real one does.
    const here = import.meta.url;
    const text = `import ${JSON.stringify(new URL('./worker.mjs', here).href)};`;
    const blob = URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
    setTimeout(() => URL.revokeObjectURL(blob), 60_000);
    return new Worker(blob, { type: 'module', name: 'onnxlet' });
  }
}

// Values on the GPU whose tensors nobody has any more.
const forgotten = new FinalizationRegistry(({ from, id }) => from.call('free', [id]).catch(() => {}));

/** A model, ready to run. */
export class InferenceSession {
  constructor(from, { id, inputs, outputs, providers }, locations) {
    Object.assign(this, { link: from, id, inputMetadata: inputs, outputMetadata: outputs, providers, locations });
    this.inputNames = inputs.map((input) => input.name);
    this.outputNames = outputs.map((output) => output.name);
  }

  /**
   * Load a model from an address (it is kept in a cache, unless `cache` is false), bytes or a Blob. An ArrayBuffer may
   * be followed by an offset and a length. Options: see onnxlet.d.mts.
   */
  static async create(model, ...rest) {
    let source = model, begin, length;
    if (model instanceof ArrayBuffer || isShared(model)) {
      if (typeof rest[0] === 'number') begin = rest.shift();
      if (begin !== undefined && typeof rest[0] === 'number') length = rest.shift();
      source = part(model, begin, length);
    } else if (typeof model === 'string' || model instanceof URL) source = absolute(String(model));
    else if (!(model instanceof Uint8Array || model instanceof Blob)) {
      throw wrong(TypeError, 'a model is an address, an ArrayBuffer, a Uint8Array or a Blob');
    }
    const options = rest.find((value) => value !== undefined) ?? {};
    if (typeof options !== 'object') throw wrong(TypeError, "'options' must be an object");
    const { progress, signal, externalData = [], preferredOutputLocation: locations = 'cpu' } = options;
    for (const location of typeof locations === 'string' ? [locations] : Object.values(locations)) {
      if (!/^(cpu|gpu-buffer)$/.test(location)) {
        throw wrong(TypeError, `preferredOutputLocation is 'cpu' or 'gpu-buffer', not '${location}'`);
      }
    }
    signal?.throwIfAborted();
    const settings = settingsOf(options);
    const gpu = settings.providers.find(([name]) => name === 'webgpu')?.[1];
    if (gpu?.device) env.webgpu.device = gpu.device;
    const from = link ?? Link.open();
    settings.local = from instanceof Local;
    if (gpu) await chooseDevice(gpu, from);
    const transfer = [];
    if (source instanceof Uint8Array) source = owned(source, from, transfer);
    const files = externalData.map((file) => externalFile(file, from, transfer));
    const args = [source, settings, files];
    return new this(from, await from.call('create', args, { progress, signal, transfer }), locations);
  }

  /**
   * `run(feeds)`, `run(feeds, options)`, `run(feeds, fetches, options)`: compute outputs from tensors by name. `fetches`
   * are the names of those that are wanted, or an object with null or a tensor, which receives it, under each name.
   */
  async run(feeds, fetches, options) {
    if (!isMapping(feeds)) throw wrong(TypeError, "'feeds' must be an object with a tensor under each input's name");
    if (fetches === null || !['object', 'undefined'].includes(typeof fetches) || isTensor(fetches)) {
      throw wrong(TypeError, "'fetches' must be an array of names or an object");
    }
    let targets = {};
    if (Array.isArray(fetches)) {
      if (!fetches.length) throw wrong(TypeError, "'fetches' can't be empty: leave it out for all outputs");
      for (const name of fetches) {
        if (!this.outputNames.includes(name)) {
          throw wrong(RangeError, `the model has no output '${name}'; its outputs are ${this.outputNames.join(', ')}`);
        }
      }
      targets = Object.fromEntries(fetches.map((name) => [name, null]));
    } else if (fetches) {
      for (const name of this.outputNames) {
        if (Object.hasOwn(fetches, name) && (fetches[name] === null || isTensor(fetches[name]))) targets[name] = fetches[name];
      }
      if (!Object.keys(targets).length) options = fetches;
    }
    if (options !== undefined && !isMapping(options)) throw wrong(TypeError, "'options' must be an object");
    if (options?.terminate) throw new OnnxletError('TerminatedError', 'the run was ended by its option `terminate`');
    const names = Object.keys(targets).length ? Object.keys(targets) : this.outputNames;
    const transfer = [];
    const given = Object.entries(feeds).map(([name, tensor]) => fed(name, tensor, this.link, transfer));
    const { locations } = this;
    const stays = (name) => (typeof locations === 'string' ? locations : locations[name]) === 'gpu-buffer';
    const kept = names.map((name) => stays(name) && !targets[name]);
    const outputs = await this.link.call('run', [this.id, given, names, kept], { signal: options?.signal, transfer });
    return Object.fromEntries(outputs.map((o) => [o.name, received(o, this.link, targets[o.name])]));
  }

  /** Where each node ran and why: `{counts, calls, absent, nodes: [{node, operator, provider, reason, …}]}`. */
  async explain() {
    return JSON.parse(await this.link.call('explain', [this.id]));
  }

  /** Time nodes from now on, as with the option `enableProfiling` from the beginning. */
  startProfiling() {
    this.link.call('profile', [this.id, true]).catch(() => {}); // of a session that is gone
  }

  /** Stop that. Resolves with the events, in the format of Chrome's traces. */
  async endProfiling() {
    return JSON.parse(await this.link.call('profile', [this.id, false]));
  }

  /** Free the model's memory. */
  async release() {
    await this.link.call('release', [this.id]);
  }
}

const isTensor = (value) => typeof value?.type === 'string' && Array.isArray(value.dims);
const isMapping = (value) => typeof value === 'object' && value !== null && !Array.isArray(value) && !isTensor(value);
const isShared = (value) => globalThis.SharedArrayBuffer !== undefined && value instanceof SharedArrayBuffer;

/** A part of a buffer. */
function part(buffer, begin = 0, length = buffer.byteLength - begin) {
  const inside = Number.isSafeInteger(begin) && Number.isSafeInteger(length) && begin >= 0 && length > 0;
  if (!inside || begin + length > buffer.byteLength) {
    throw wrong(RangeError, `${length} bytes from ${begin} on are not inside a buffer of ${buffer.byteLength}`);
  }
  return new Uint8Array(buffer, begin, length);
}

/** The settings of a session, as Python takes them. */
function settingsOf({
  executionProviders, graphOptimizationLevel = 'all', logSeverityLevel = LOG_LEVELS.indexOf(logLevel), extra = {},
  intraOpNumThreads, freeDimensionOverrides = {}, enableProfiling = false, cache = true,
}) {
  if (!LEVELS.includes(graphOptimizationLevel)) {
    throw wrong(TypeError, `graphOptimizationLevel is one of ${LEVELS.join(', ')}, not '${graphOptimizationLevel}'`);
  }
  if (![0, 1, 2, 3, 4].includes(logSeverityLevel)) throw wrong(TypeError, 'logSeverityLevel is an integer from 0 to 4');
  return {
    level: graphOptimizationLevel, severity: logSeverityLevel, threads: intraOpNumThreads ?? env.wasm.numThreads ?? 0,
    entries: Object.fromEntries(entries(extra)), providers: providersOf(executionProviders), cache,
    dimensions: freeDimensionOverrides, profile: enableProfiling,
  };
}

/** `{session: {intra: true}}` as `['session.intra', '1']`. */
function* entries(extra, prefix = '') {
  for (const [key, value] of Object.entries(extra)) {
    if (isMapping(value)) yield* entries(value, `${prefix}${key}.`);
    else yield [prefix + key, typeof value === 'boolean' ? `${+value}` : `${value}`];
  }
}

/** Providers as `[name, options]`. Those of other runtimes are left out, as long as one stays. */
function providersOf(asked) {
  const wanted = (asked?.length ? asked : env.executionProviders).map((p) => (typeof p === 'string' ? { name: p } : p));
  const names = wanted.map(({ name }) => name);
  const missing = names.filter((name) => !PROVIDERS[name]).map((name) => `[${name}] backend not found.`);
  const found = wanted.filter(({ name }) => PROVIDERS[name]);
  if (!found.length) throw new OnnxletError('ProviderError', `no available backend found. ERR: ${missing.join(', ')}`);
  if (missing.length) console.warn(`execution providers that are not there are left out: ${missing.join(', ')}`);
  return found.map(({ name, ...options }) => [PROVIDERS[name], name === 'webgpu' ? options : {}]);
}

/** Let a session use `env.webgpu.device`: where Python runs in this thread it always does. */
async function chooseDevice(options, from) {
  if (from instanceof Local) options.device = await env.webgpu.device.catch(() => undefined);
  else if (device) await noDevice();
  else options.power_preference ??= env.webgpu.powerPreference ?? 'high-performance';
}

/** Bytes that nobody else changes, or that `postMessage` copies: then just those, and not all of their buffer. */
function owned(view, from, transfer) {
  if (from instanceof Remote && view.byteLength === view.buffer.byteLength && !isShared(view.buffer)) return view;
  const copy = view.slice();
  transfer.push(copy.buffer);
  return copy;
}

/** A file of external data, as Python takes it. */
function externalFile(file, to, transfer) {
  const { path, data } = typeof file === 'string' ? { path: file.split('/').pop(), data: file } : file;
  if (typeof path !== 'string') throw wrong(TypeError, 'a file of external data is {path, data} or an address');
  if (typeof data === 'string' || data instanceof URL) return { path, data: absolute(String(data)) };
  return { path, data: data instanceof Uint8Array && to instanceof Remote ? owned(data, to, transfer) : data };
}

/** An input, as Python takes it. */
function fed(name, tensor, to, transfer) {
  if (!isTensor(tensor)) throw wrong(TypeError, `input '${name}' must be a Tensor`);
  const { type, location, handle } = tensor;
  const dims = [...tensor.dims];
  if (location === 'gpu-buffer') {
    if (handle && handle.from !== to) throw new OnnxletError('FeedError', `input '${name}' is from a worker that has ended`);
    if (handle) return { name, handle: handle.id };
    if (to instanceof Remote) throw unsupported(`input '${name}' is in a GPU buffer of this thread: set \`env.worker = false\``);
    return { name, type, dims, buffer: tensor.gpuBuffer };
  }
  let data = tensor.data;
  if (type === 'float16' && !(data instanceof Uint16Array)) data = new Uint16Array(data.buffer, data.byteOffset, data.length);
  // In this thread, Python reads the data before anybody can change them.
  if (type !== 'string' && to instanceof Remote) data = owned(data, to, transfer);
  return { name, type, dims, data };
}

/** An output, from what Python gives; in `target` if that is a tensor. */
function received({ type, dims, data, value, handle: id, buffer }, from, target) {
  if (!type) return value;
  if (id) {
    const handle = { from, id, local: from instanceof Local };
    const free = () => {
      forgotten.unregister(handle);
      from.call('free', [id]).catch(() => {}); // of a worker that has ended
    };
    const download = async () => viewed(type, await from.call('read', [id]));
    forgotten.register(handle, { from, id }, handle); // its tensors, reshaped ones too, refer to it
    return new Tensor({ location: 'gpu-buffer', type, dims, handle, gpuBuffer: buffer, download, dispose: free });
  }
  const tensor = new Tensor(type, viewed(type, data), dims);
  if (!target) return tensor;
  if (target.type !== type || target.size !== tensor.size) {
    throw new OnnxletError('FeedError', `an output is ${type}[${dims}], not ${target.type}[${target.dims}] as its tensor`);
  }
  if (type === 'string') target.data.splice(0, tensor.size, ...tensor.data);
  else target.data.set(tensor.data);
  return target;
}

/** Python's bytes as the array of an element type: halves travel as their bits. */
function viewed(type, data) {
  const Kind = ARRAYS[type];
  return type === 'string' || data instanceof Kind ? data : new Kind(data.buffer, data.byteOffset, data.length);
}

/** End the worker and free everything it holds; sessions made before can't be used afterwards. */
export function shutdown() {
  link?.fail('the worker was shut down');
}

/** For `registerBackend(name, backend, priority)` of onnxruntime-common, under any name, or 'wasm', 'cpu', 'webgpu'. */
export const backend = {
  async init(name) {
    PROVIDERS[name] ??= 'cpu';
  },

  async createInferenceSessionHandler(model, options = {}) {
    const session = await InferenceSession.create(model, { ...options });
    const { inputNames, outputNames, inputMetadata, outputMetadata } = session;
    return {
      inputNames, outputNames, inputMetadata, outputMetadata,
      async run(feeds, fetches, runOptions) {
        const results = await session.run(feeds, fetches, runOptions);
        // That package makes tensors of its own kind of these, from their data.
        for (const name in results) await results[name].getData?.(true);
        return results;
      },
      dispose: () => session.release(),
      startProfiling: () => session.startProfiling(),
      endProfiling: () => void session.endProfiling().then(console.log, console.error), // nobody there takes it
    };
  },
};

/** Everything under one name, as other packages import it. */
export default { InferenceSession, Tensor, env, OnnxletError, shutdown, backend };
