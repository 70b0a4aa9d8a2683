// The worker behind onnxlet.mjs: boots Pyodide, installs onnxlet, and hands calls to onnxlet_wasm.page.

const CDN = 'https://cdn.jsdelivr.net/pyodide/v314.0.3/full/';

let booted = null;

function tell(stage, done = 0, total = null) {
  postMessage({ progress: { stage, done, total } });
}

/** Where Pyodide and the wheel are: as told, else as the site that this module comes from says, else the CDN. */
async function places({ pyodide, wheel }) {
  if (pyodide) return { pyodide, wheel };
  const site = new URL('../site.json', import.meta.url);
  const answer = await fetch(site).catch(() => null);
  if (!answer?.ok) return { pyodide: CDN, wheel: wheel ?? new URL('../onnxlet-0.1.0-py3-none-any.whl', import.meta.url).href };
  const named = await answer.json();
  return { pyodide: new URL(named.pyodide, site).href, wheel: wheel ?? new URL(named.wheel, site).href };
}

async function boot(told) {
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
  return python.pyimport('onnxlet_wasm.page');
}

onmessage = async ({ data }) => {
  if (data.boot) {
    booted = boot(data.boot);
    booted.catch((error) => postMessage({ fatal: `onnxlet could not be started: ${error.message ?? error}` }));
    return;
  }
  const { id, method, args } = data;
  let page;
  try {
    page = await booted;
  } catch {
    return; // the page was told
  }
  const progress = (stage, done, total) => postMessage({ id, progress: { stage, done, total: total ?? null } });
  // Every method answers {result} or {error: {name, message}}; Python's own errors never get here.
  const answer = await page[method](...args, progress);
  const transfer = [];
  for (const output of Array.isArray(answer.result) ? answer.result : []) {
    if (ArrayBuffer.isView(output.data)) transfer.push(output.data.buffer);
  }
  postMessage({ id, ...answer }, transfer);
};
