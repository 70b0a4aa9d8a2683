// A worker that runs one of the demo's Python modules, named in its address: worker.mjs?module=file_types
//
// The page sends {id, method, args}; the answer is {id, result} (what the Python function returned, as JSON), or
// {id, error: {name, message}}. Progress arrives as {progress: {stage, done, total}}.

import { boot } from './onnxlet/boot.mjs';

const name = new URL(self.location.href).searchParams.get('module');
const progress = (stage, done = 0, total = null) => postMessage({ progress: { stage, done, total: total ?? null } });

async function start() {
  const [python, source] = await Promise.all([
    boot({}, progress),
    fetch(new URL(`${name}.py`, self.location.href)).then((answer) => answer.text()),
  ]);
  python.FS.writeFile(`${name}.py`, source);
  return python.pyimport(name);
}

const module = start();
module.catch((error) => postMessage({ fatal: String(error.message ?? error) }));

onmessage = async ({ data: { id, method, args } }) => {
  try {
    const loaded = await module;
    postMessage({ id, result: JSON.parse(await loaded[method](...args, progress)) });
  } catch (error) {
    // A Python error's message ends with "Name: what went wrong".
    const last = String(error.message ?? error).trim().split('\n').findLast((line) => /^\S/.test(line)) ?? '';
    const [, kind, text] = last.match(/^(?:[\w.]*\.)?(\w+): ([\s\S]*)$/) ?? [null, error.name, last];
    postMessage({ id, error: { name: error.type ?? kind, message: text } });
  }
};
