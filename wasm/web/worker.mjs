// The worker behind onnxlet.mjs: boots Pyodide, installs onnxlet, and hands calls to onnxlet_wasm.page.

import { boot } from './boot.mjs';

let booted = null;

onmessage = async ({ data }) => {
  if (data.boot) {
    const tell = (stage) => postMessage({ progress: { stage, done: 0, total: null } });
    booted = boot(data.boot, tell).then((python) => python.pyimport('onnxlet_wasm.page'));
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
