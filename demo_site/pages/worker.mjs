// A worker that runs one of the demo's Python modules, the last named in its address, and has those before it for that
// one to import: worker.mjs?modules=wordpiece,search
//
// The page sends {id, method, args}; the answer is {id, result} (what the Python function returned, as JSON), or
// {id, error: {name, message}}. Progress arrives as {progress: {stage, done, total}}.

import { boot } from './onnxlet/boot.mjs';

const names = new URL(self.location.href).searchParams.get('modules').split(',');
const progress = (stage, done = 0, total = null) => postMessage({ progress: { stage, done, total: total ?? null } });

async function start() {
  const source = async (name) => (await fetch(new URL(`${name}.py`, self.location.href))).text();
  const [python, ...sources] = await Promise.all([boot({}, progress), ...names.map(source)]);
  names.forEach((name, i) => python.FS.writeFile(`${name}.py`, sources[i]));
  return python.pyimport(names.at(-1));
}

const module = start();
module.catch((error) => postMessage({ fatal: String(error.message ?? error).trimEnd().split('\n').at(-1) }));

onmessage = async ({ data: { id, method, args } }) => {
  try {
    const loaded = await module;
    postMessage({ id, result: JSON.parse(await loaded[method](...args, progress)) });
  } catch (error) {
    // A Python error's message is its traceback, which ends with "its.module.Name: what went wrong".
    const text = String(error.message ?? error).trimEnd();
    const name = error.type ?? error.name;
    const at = text.lastIndexOf(`${name}: `);
    postMessage({ id, error: { name, message: at < 0 ? text.split('\n').at(-1) : text.slice(at + name.length + 2) } });
  }
};
