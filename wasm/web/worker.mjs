// The worker behind onnxlet.mjs: boots Pyodide, installs onnxlet, and hands calls to onnxlet_wasm.page.

import { Host } from './boot.mjs';

let host = null;
const running = new Map();

onmessage = async ({ data: { boot, id, method, args, abort } }) => {
  if (boot) {
    host = new Host(boot, (stage) => postMessage({ progress: { stage, done: 0, total: null } }));
    host.booted.catch((error) => postMessage({ fatal: `onnxlet could not be started: ${error.message ?? error}` }));
    return;
  }
  if (abort) {
    running.get(id)?.abort();
    return;
  }
  const control = new AbortController();
  running.set(id, control);
  const progress = (stage, done, total) => postMessage({ id, progress: { stage, done, total: total ?? null } });
  try {
    // Every method answers {result} or {error: {name, message}}; Python's own errors never get here.
    const answer = await host.call(method, args, progress, control.signal);
    const { result } = answer;
    const values = Array.isArray(result) ? result.map((output) => output.data) : [result];
    postMessage({ id, ...answer }, values.filter(ArrayBuffer.isView).map((view) => view.buffer));
  } catch (error) {
    // Where Python did not start, the page was told.
    if (host.page) postMessage({ id, error: { name: 'WorkerError', message: String(error.message ?? error) } });
  } finally {
    running.delete(id);
  }
};
