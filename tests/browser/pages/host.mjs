// Boots Pyodide with NumPy and onnxlet and runs snippets of Python, on a page or in a worker.

const RUNNER = `
import base64, io, json, traceback
import numpy as np
from pyodide.code import eval_code_async

def _plain(value):
    if isinstance(value, np.ndarray):
        file = io.BytesIO()
        np.save(file, value)
        return {"npy": base64.b64encode(file.getvalue()).decode()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(value).decode()}
    raise TypeError(f"a snippet's result may not hold a {type(value).__name__}")

async def run_snippet(code, names, values):
    """Run a snippet in a namespace of its own; the result is JSON: {result} or {type, message, traceback}."""
    space = {"__name__": "__main__"}
    for (name, kind), value in zip(names, values):
        if kind == "json":
            space[name] = json.loads(value)
        else:
            space[name] = value.to_bytes()
            if kind == "array":
                space[name] = np.load(io.BytesIO(space[name]), allow_pickle=False)
    try:
        return json.dumps({"result": await eval_code_async(code, space)}, default=_plain)
    except BaseException as error:
        names = [kind.__name__ for kind in type(error).__mro__]
        return json.dumps({"types": names, "message": str(error), "traceback": traceback.format_exc()})
`;

/**
 * Boot Pyodide from the folder `options.pyodide` and install the wheel at `options.wheel` with micropip, unless it is
 * absent. `options.before` is JavaScript to run first, to take features away from the browser.
 */
export async function boot(options) {
  if (options.before) new Function(options.before)();
  const { loadPyodide } = await import(options.pyodide + "pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL: options.pyodide });
  globalThis.pyodide = pyodide;
  await pyodide.loadPackage(["numpy", "micropip"], { messageCallback() {} });
  if (options.wheel) {
    await pyodide.pyimport("micropip").install(options.wheel);
  }
  pyodide.runPython(RUNNER);
  return {
    async run(code, inputs) {
      const names = inputs.map(({ name, kind }) => [name, kind]);
      const values = [];
      for (const { kind, value } of inputs) {
        values.push(kind === "json" ? value : new Uint8Array(await (await fetch(value)).arrayBuffer()));
      }
      pyodide.globals.set("snippet", pyodide.toPy([code, names]));
      pyodide.globals.set("snippet_values", values);
      return await pyodide.runPythonAsync("await run_snippet(*snippet, list(snippet_values))");
    },
  };
}
