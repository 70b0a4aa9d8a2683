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
 * Load Pyodide, NumPy and onnxlet.
 *
 * @param {{pyodide?: string|null, wheel?: string|null}} told addresses of Pyodide's folder and of onnxlet's wheel
 * @param {(stage: 'pyodide'|'packages'|'ready') => void} tell called when a stage begins
 * @returns {Promise<object>} the Pyodide interpreter
 */
export async function boot(told = {}, tell = () => {}) {
  tell('pyodide');
  const { pyodide: folder, wheel } = await places(told);
  const { loadPyodide } = await import(new URL('pyodide.mjs', folder).href);
  const python = await loadPyodide({ indexURL: folder });
  tell('packages');
  const silent = { messageCallback() {}, errorCallback() {} };
  await python.loadPackage('numpy', silent);
  if ('onnxlet' in (python.lockfile?.packages ?? {})) await python.loadPackage('onnxlet', silent);
  else await python.loadPackage(wheel, silent);
  tell('ready');
  return python;
}
