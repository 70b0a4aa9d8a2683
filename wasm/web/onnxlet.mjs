// onnxlet for web pages: ONNX models run in a worker of their own, by Python (Pyodide) and compiled kernels.
//
//   import { InferenceSession, Tensor } from './onnxlet/onnxlet.mjs';
//   const session = await InferenceSession.create('model.onnx', { executionProviders: ['webgpu', 'cpu'] });
//   const { y } = await session.run({ x: new Tensor('float32', data, [1, 3, 224, 224]) });
//
// Names are those of onnxruntime-web where the meaning is the same. The worker starts with the first session and
// serves all of them; the page's own thread never computes.

/** Where the parts are loaded from. Set before the first session; by default they lie as the demo site lays them. */
export const env = {
  /** Address of the folder that holds `pyodide.mjs`, or null: named by `site.json` beside this module's folder. */
  pyodide: null,
  /** Address of onnxlet's wheel, for a Pyodide folder whose lock file does not name it. */
  wheel: null,
};

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: globalThis.Float16Array ?? Uint16Array,
  int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array, string: Array,
};

/** A tensor: an element type, the elements in row-major order, and the dimensions. */
export class Tensor {
  /**
   * @param {string} type one of float32, float64, float16, (u)int8 to (u)int64, bool, string
   * @param {ArrayLike<number|bigint|boolean|string>} data a typed array is kept as it is; other lists are converted
   * @param {readonly number[]} [dims] by default one dimension that holds all elements
   */
  constructor(type, data, dims) {
    const kind = ARRAYS[type];
    if (!kind) throw new TypeError(`unknown element type '${type}'; there are ${Object.keys(ARRAYS).join(', ')}`);
    const halves = type === 'float16' && data instanceof Uint16Array;
    this.type = type;
    this.data = data instanceof kind || halves ? data : kind.from(data);
    this.dims = Object.freeze([...(dims ?? [this.data.length])]);
    this.size = this.dims.reduce((a, b) => a * b, 1);
    if (this.size !== this.data.length) {
      throw new RangeError(`dimensions [${this.dims}] hold ${this.size} elements, but the data has ${this.data.length}`);
    }
    Object.freeze(this);
  }
}

/** Thrown for whatever goes wrong in the worker. `name` is the name of onnxlet's Python error, such as FeedError. */
export class OnnxletError extends Error {
  constructor(name, message) {
    super(message);
    this.name = name;
  }
}

let connection = null;

/** The worker and the calls that wait for its answers. */
class Connection {
  constructor() {
    this.calls = new Map();
    this.next = 1;
    this.worker = startWorker(new URL('./worker.mjs', import.meta.url));
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => this.fail(event.message || 'the worker could not be loaded');
    this.worker.onmessageerror = () => this.fail('an answer of the worker could not be read');
    this.worker.postMessage({ boot: { pyodide: absolute(env.pyodide), wheel: absolute(env.wheel) } });
  }

  /** Call a method of the worker. Resolves with its result, rejects with an OnnxletError. */
  call(method, args, progress, transfer = []) {
    return new Promise((resolve, reject) => {
      const id = this.next++;
      this.calls.set(id, { resolve, reject, progress });
      this.worker.postMessage({ id, method, args }, transfer);
    });
  }

  receive({ id, result, error, progress, fatal }) {
    if (fatal) return this.fail(fatal);
    if (progress) {
      for (const call of id ? [this.calls.get(id)] : this.calls.values()) call?.progress?.(progress);
      return;
    }
    const call = this.calls.get(id);
    this.calls.delete(id);
    if (error) call?.reject(new OnnxletError(error.name, error.message));
    else call?.resolve(result);
  }

  /** The worker is of no use any more: every call is told, and the next session starts a new one. */
  fail(reason) {
    this.worker.terminate();
    if (connection === this) connection = null;
    for (const call of this.calls.values()) call.reject(new OnnxletError('WorkerError', reason));
    this.calls.clear();
  }
}

function absolute(address) {
  return address === null ? null : new URL(address, globalThis.location?.href).href;
}

function startWorker(url) {
  if (url.origin === globalThis.location?.origin) return new Worker(url, { type: 'module', name: 'onnxlet' });
  // A worker's script must come from the page's own origin; a module that imports the real one does.
  const blob = URL.createObjectURL(new Blob([`import ${JSON.stringify(url.href)};`], { type: 'text/javascript' }));
  try {
    return new Worker(blob, { type: 'module', name: 'onnxlet' });
  } finally {
    setTimeout(() => URL.revokeObjectURL(blob), 60_000);
  }
}

/** A model, ready to run. */
export class InferenceSession {
  #connection;
  #id;

  constructor(connection_, description) {
    this.#connection = connection_;
    this.#id = description.id;
    this.inputMetadata = description.inputs;
    this.outputMetadata = description.outputs;
    this.inputNames = description.inputs.map((input) => input.name);
    this.outputNames = description.outputs.map((output) => output.name);
    /** Names of the providers in use, in order of preference. */
    this.providers = description.providers;
  }

  /**
   * Load a model.
   *
   * @param {string|URL|ArrayBuffer|Uint8Array|Blob} model an address (kept in a persistent cache) or the model itself
   * @param {object} [options]
   * @param {(string|{name: string})[]} [options.executionProviders] in order of preference; default ['cpu']
   * @param {'disabled'|'basic'|'extended'|'layout'|'all'} [options.graphOptimizationLevel] default 'all'
   * @param {(string|{path: string, data: string|URL|ArrayBuffer|Uint8Array|Blob|FileSystemFileHandle})[]}
   *   [options.externalData] the files in which the model keeps tensors, under the names that it knows them by; those
   *   not listed are fetched from beside the model's address
   * @param {({stage, done, total}) => void} [options.progress] what is being loaded, and bytes where they are known
   * @param {boolean} [options.cache] whether a model from an address is kept and asked for in the cache; default true
   * @returns {Promise<InferenceSession>}
   */
  static async create(model, options = {}) {
    const { progress, externalData = [], ...rest } = options;
    let source = model;
    if (typeof model === 'string' || model instanceof URL) source = absolute(String(model));
    else if (model instanceof Blob) source = new Uint8Array(await model.arrayBuffer());
    else if (model instanceof ArrayBuffer) source = new Uint8Array(model);
    else if (!(model instanceof Uint8Array)) throw new TypeError('a model is an address, an ArrayBuffer, a Uint8Array or a Blob');
    connection ??= new Connection();
    const used = connection;
    return new InferenceSession(used, await used.call('create', [source, rest, externalData.map(externalFile)], progress));
  }

  /**
   * Run the model.
   *
   * @param {Record<string, Tensor>} feeds a tensor for each input
   * @param {string[]} [fetches] the outputs that are wanted; default all
   * @returns {Promise<Record<string, Tensor>>}
   */
  async run(feeds, fetches) {
    const given = Object.entries(feeds).map(([name, tensor]) => {
      if (!(tensor?.data && tensor.dims)) throw new TypeError(`input '${name}' must be a Tensor`);
      return { name, type: tensor.type, dims: [...tensor.dims], data: tensor.data };
    });
    const outputs = await this.#connection.call('run', [this.#id, given, fetches ?? []]);
    return Object.fromEntries(outputs.map((o) => [o.name, o.dims ? fromWorker(o) : o.value]));
  }

  /** Where each node ran and why: `{counts, calls, absent, nodes: [{node, operator, provider, reason, …}]}`. */
  async explain() {
    return JSON.parse(await this.#connection.call('explain', [this.#id]));
  }

  /** Free the model's memory. */
  async release() {
    await this.#connection.call('release', [this.#id]);
  }
}

/** A file of external data, as the worker takes it. */
function externalFile(file) {
  const { path, data } = typeof file === 'string' ? { path: file.split('/').pop(), data: file } : file;
  if (typeof path !== 'string') throw new TypeError('a file of external data is {path, data} or an address');
  return { path, data: typeof data === 'string' || data instanceof URL ? absolute(String(data)) : data };
}

function fromWorker({ type, data, dims }) {
  const kind = ARRAYS[type];
  if (type === 'string' || data instanceof kind) return new Tensor(type, data, dims);
  // Halves travel as their bits.
  return new Tensor(type, new kind(data.buffer, data.byteOffset, data.length), dims);
}

/** End the worker and free everything it holds; sessions made before can't be used afterwards. */
export function shutdown() {
  connection?.fail('the worker was shut down');
}
