// Boots Pyodide with NumPy and onnxlet, in a worker or on a page, and answers calls of `onnxlet_wasm.page`.

const CDN = 'https://cdn.jsdelivr.net/pyodide/v314.0.3/full/';

/** Where Pyodide and the wheel are: as told, else as the site that this module comes from says, else the CDN. */
async function places({ pyodide, wheel }) {
  if (pyodide) return { pyodide, wheel };
  const here = import.meta.url; // apart from `new URL`: a bundler takes files for its own that are named there
  const site = new URL('../site.json', here);
  const answer = await fetch(site).catch(() => null);
  if (!answer?.ok) return { pyodide: CDN, wheel: wheel ?? new URL('../onnxlet-0.1.0-py3-none-any.whl', here).href };
  const named = await answer.json();
  return { pyodide: new URL(named.pyodide, site).href, wheel: wheel ?? new URL(named.wheel, site).href };
}

/**
 * Load Pyodide, NumPy and onnxlet, all at once: NumPy and onnxlet arrive while Python starts.
 *
 * @param {{pyodide?: string|null, wheel?: string|null}} told addresses of Pyodide's folder and of onnxlet's wheel
 * @param {(stage: 'pyodide'|'ready') => void} tell called when a stage begins
 * @returns {Promise<object>} the Pyodide interpreter
 */
export async function boot(told = {}, tell = () => {}) {
  tell('pyodide');
  const { pyodide: folder, wheel } = await places(told);
  const [{ loadPyodide }, lock] = await Promise.all([
    import(/* @vite-ignore */ /* webpackIgnore: true */ new URL('pyodide.mjs', folder).href),
    fetch(new URL('pyodide-lock.json', folder)).then((answer) => answer.json()),
  ]);
  const packages = ['numpy', 'onnxlet' in lock.packages ? 'onnxlet' : wheel];
  const python = await loadPyodide({ indexURL: folder, packageBaseUrl: folder, lockFileContents: lock, packages });
  for (const name of ['numpy', 'onnxlet']) {
    if (!(name in python.loadedPackages)) throw new Error(`${name} could not be loaded: the console says why`);
  }
  tell('ready');
  return python;
}

/** Python, and the calls that it answers. */
export class Host {
  constructor(told, tell) {
    this.booted = boot(told, tell).then((python) => (this.page = python.pyimport('onnxlet_wasm.page')));
  }

  /**
   * Call a function of `onnxlet_wasm.page`. A model and its files at addresses are fetched while Python starts. Once
   * Python is there, the arguments have been read when this returns its promise.
   *
   * @param {(stage: string, done: number, total: number|null) => void} progress
   * @returns {Promise<{result: *}|{error: {name: string, message: string}}>}
   */
  async call(method, args, progress, signal) {
    if (method === 'create') {
      const [source, settings, files] = args;
      try {
        const [bytes, ...contents] = await fetched(source, files, settings.cache, progress, signal);
        const known = files.map(({ path }, i) => ({ path, data: contents[i] }));
        args = [bytes, settings, known, typeof source === 'string' ? source : null];
      } catch ({ name, message }) {
        return { error: { name, message } };
      }
    }
    const page = this.page ?? (await this.booted);
    if (signal?.aborted) return {};
    const answer = await page[method](...args, progress);
    if (signal?.aborted && answer.result) {
      // Nobody is there any more to use it.
      if (method === 'create') page.release(answer.result.id, progress);
      else for (const { handle } of answer.result) if (handle) page.free(handle, progress);
    }
    return answer;
  }
}

/** The model and the contents of its files, those at addresses downloaded, all at once; `progress` counts all bytes. */
function fetched(source, files, cache, progress, signal) {
  const parts = [];
  const sum = (key) => parts.reduce((all, part) => all + part[key], 0);
  const load = async (value, name, what) => {
    if (typeof value !== 'string') return value;
    const part = { done: 0, total: null };
    parts.push(part);
    const tell = (stage, done, total) => {
      Object.assign(part, { done, total });
      progress(stage, sum('done'), parts.every((one) => one.total) ? sum('total') : null);
    };
    return download(value, cache, tell, signal).catch(({ message }) => {
      throw Object.assign(new Error(`${what}${value} could not be downloaded: ${message}`), { name });
    });
  };
  const model = source instanceof Blob ? source.arrayBuffer().then((buffer) => new Uint8Array(buffer)) : source;
  const contents = files.map(({ path, data }) => load(data, 'ExternalDataError', `external data file '${path}': `));
  return Promise.all([load(model, 'ModelError', ''), ...contents]);
}

/** The bytes at an address, and a copy in the cache, as `onnxlet.download` fetches them. */
async function download(url, useCache, progress, signal) {
  // Cache Storage may be refused (private windows); the model is then downloaded every time.
  const store = useCache && globalThis.caches && url.startsWith('http') && (await caches.open('onnxlet-models').catch(() => null));
  const kept = store && (await store.match(url));
  let response = null;
  if (kept) {
    const head = await fetch(url, { method: 'HEAD', cache: 'no-cache', signal }).catch(() => null);
    if (!head || (head.ok && same(head, kept))) response = kept;
  }
  const cached = response !== null;
  response ??= await fetch(url, { cache: useCache ? 'default' : 'no-store', signal });
  if (!response.ok) throw new Error(`the server answered ${response.status} ${response.statusText}`.trim());
  // A compressed answer's length is not the model's.
  const length = response.headers.has('content-encoding') ? null : Number(response.headers.get('content-length')) || null;
  const saved = !cached && store && store.put(url, response.clone()).catch(() => null);
  let bytes = new Uint8Array(length ?? 1 << 20), done = 0;
  const reader = response.body.getReader();
  for (let part; !(part = await reader.read()).done; ) {
    const end = done + part.value.length;
    if (end > bytes.length) {
      const larger = new Uint8Array(Math.max(2 * bytes.length, end));
      larger.set(bytes.subarray(0, done));
      bytes = larger;
    }
    bytes.set(part.value, done);
    progress(cached ? 'cache' : 'download', (done = end), length);
  }
  await saved;
  return bytes.subarray(0, done);
}

/** Whether two answers are of the same version of a file. */
function same(a, b) {
  for (const header of ['etag', 'last-modified', 'content-length']) {
    const x = a.headers.get(header), y = b.headers.get(header);
    if (x && y) return x === y;
  }
  return false;
}
