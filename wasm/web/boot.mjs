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
   * Call a function of `onnxlet_wasm.page`. A model at an address is fetched while Python starts. Once Python is there,
   * the arguments have been read when this returns its promise.
   *
   * @param {(stage: string, done: number, total: number|null) => void} progress
   * @returns {Promise<{result: *}|{error: {name: string, message: string}}>}
   */
  async call(method, args, progress, signal) {
    if (method === 'create') {
      const [source, settings, ...rest] = args;
      const address = typeof source === 'string' ? source : null;
      let bytes = source;
      try {
        if (address) bytes = await download(address, settings.cache, progress, signal);
        else if (source instanceof Blob) bytes = new Uint8Array(await source.arrayBuffer());
      } catch (error) {
        return { error: { name: 'ModelError', message: `${address ?? 'the Blob'} could not be read: ${error.message}` } };
      }
      args = [bytes, settings, ...rest, address];
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
