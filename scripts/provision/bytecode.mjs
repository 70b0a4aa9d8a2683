// Compiles a wheel's modules to the bytecode of the Pyodide given, inside it: for hosts that lack that Python.
// node bytecode.mjs PYODIDE_FOLDER WHEEL OUTPUT_FOLDER
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, wheel, output] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
const pyodide = await loadPyodide({ indexURL: folder + "/", env: { PYTHONNODEBUGRANGES: "1" } });
const name = basename(wheel);
pyodide.FS.writeFile("/" + name, readFileSync(wheel));
pyodide.FS.writeFile("/bytecode.py", readFileSync(new URL("bytecode.py", import.meta.url)));
pyodide.globals.set("name", name);
const result = pyodide.runPython(`
import sys
sys.path.insert(0, "/")
import bytecode
bytecode.compile_wheel("/" + name, "/out")
`);
writeFileSync(join(output, result), pyodide.FS.readFile("/out/" + result));
console.log(result);
