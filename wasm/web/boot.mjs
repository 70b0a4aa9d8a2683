// Boots Pyodide with NumPy and onnxlet, in a worker or on a page.

const CDN = 'https://cdn.jsdelivr.net/pyodide/v314.0.3/full/';

/** Where Pyodide and the wheel are: as told, else as the site that this module comes from says, else the CDN. */
async function places({ pyodide, wheel }) {
  if (pyodide) return { pyodide, wheel };
  const site = new URL('../site.json', import.meta.url);
  const answer = await fetch(site).catch(() => null);
  if (!answer?.ok) return { pyodide: CDN, wheel: wheel ?? new URL('../onnxlet-0.1.0-py3-none-any.whl', import.meta.url).href };
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
    import(new URL('pyodide.mjs', folder).href),
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
