// The kernels' home in a page or worker: modules compiled once, and memories with an instance each.
// The value of this script is the function that makes a loader; browser.py calls it.
(function () {
  const PAGE = 65536;
  const modules = new Map();

  const bytesOf = (proxy) => {
    const buffer = proxy.getBuffer("u8");
    try {
      return buffer.data.slice();
    } finally {
      buffer.release();
    }
  };

  // The largest address space that this browser grants: reserving is free where there is room, and refused where not.
  const makeMemory = (initial, shared) => {
    let refusal;
    for (const maximum of [65536, 32768, 16384, 8192, 4096]) {
      try {
        return new WebAssembly.Memory({ initial, maximum, shared });
      } catch (error) {
        refusal = error;
      }
    }
    throw refusal;
  };

  // `python` is Pyodide's module: where it shows its heap, copies to and from arrays need only their addresses.
  const makeHost = (module, shared, initial, python) => {
    const memory = makeMemory(initial, shared);
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    let view = new Uint8Array(memory.buffer);
    // Growing the memory empties earlier views, so every use asks for the current one.
    const bytes = () => (view.buffer === memory.buffer ? view : (view = new Uint8Array(memory.buffer)));
    const text = (address) => {
      const all = bytes();
      let end = address;
      while (all[end]) end++;
      return new TextDecoder().decode(all.slice(address, end));
    };
    return {
      memory,
      heap: exports.__heap_base.value,
      descriptions: Array.from({ length: exports.kernel_count() }, (_, i) => text(exports.kernel_description(i))),
      run: exports.run,
      run_piece: exports.run_piece,
      size: () => memory.buffer.byteLength,
      grow: (pages) => {
        try {
          memory.grow(pages);
          return true;
        } catch {
          return false;
        }
      },
      write: (address, array) => {
        const buffer = array.getBuffer("u8");
        try {
          bytes().set(buffer.data, address);
        } finally {
          buffer.release();
        }
      },
      writeJs: (address, array, offset, size) => bytes().set(array.subarray(offset, offset + size), address),
      read: (address, array) => {
        const buffer = array.getBuffer("u8");
        try {
          buffer.data.set(bytes().subarray(address, address + buffer.data.length));
        } finally {
          buffer.release();
        }
      },
      seesHeap: python?.HEAPU8 instanceof Uint8Array,
      copyIn: (address, source, size) => bytes().set(python.HEAPU8.subarray(source, source + size), address),
      copyOut: (address, target, size) => python.HEAPU8.set(bytes().subarray(address, address + size), target),
      zero: (address, size) => bytes().fill(0, address, address + size),
    };
  };

  return {
    isolated: () => globalThis.crossOriginIsolated === true,
    hasModule: (name) => modules.has(name),
    validate: (binary) => WebAssembly.validate(bytesOf(binary)),
    compile: (name, binary) => void modules.set(name, new WebAssembly.Module(bytesOf(binary))),
    compileAsync: async (name, binary) => void modules.set(name, await WebAssembly.compile(bytesOf(binary))),
    makeHost: (name, shared, bytes, python) => makeHost(modules.get(name), shared, Math.ceil(bytes / PAGE), python),
  };
})
