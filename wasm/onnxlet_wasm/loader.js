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

  // Threads are workers of the page, lent to one memory at a time. A worker that is up gets its work without a turn of
  // this thread's event loop; one that is not up yet needs some.
  const MOST_THREADS = 32;
  const threads = { url: "", alive: 0, coming: 0, idle: [], jobs: [], refusal: undefined };

  const lend = (worker) => {
    const job = threads.jobs.find((job) => job.places.length);
    if (job) worker.postMessage(job.places.shift());
    else threads.idle.push(worker);
  };

  const hire = () => {
    let worker;
    try {
      worker = new Worker(threads.url, { name: "onnxlet" });
    } catch (error) {
      threads.refusal = String(error);
      return;
    }
    threads.alive++;
    threads.coming++;
    let up = false;
    worker.onmessage = () => {
      if (!up) threads.coming--;
      up = true;
      lend(worker);
    };
    // It could not be loaded, for example because the page's security policy forbids it.
    worker.onerror = (event) => {
      event.preventDefault();
      if (up) return;
      threads.alive--;
      threads.coming--;
      threads.refusal = event.message || "the browser refused to start a worker";
    };
  };

  const hireFor = (wanted, source) => {
    threads.url ||= URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    while (threads.coming < wanted && threads.alive < MOST_THREADS && !threads.refusal) hire();
  };

  const openJob = (source, places) => {
    const job = { places };
    threads.jobs.push(job);
    while (threads.idle.length && places.length) lend(threads.idle.shift());
    hireFor(
      threads.jobs.reduce((sum, { places }) => sum + places.length, 0),
      source,
    );
    return job;
  };

  const awaitThreads = async (source, count, milliseconds) => {
    const end = performance.now() + milliseconds;
    hireFor(count - threads.idle.length, source);
    while (threads.coming && threads.idle.length < count && performance.now() < end)
      await new Promise((resolve) => setTimeout(resolve, 2));
  };

  const maySleep = () => {
    try {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 1); // returns at once: it holds no 1
      return true;
    } catch {
      return false;
    }
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
    let stop = () => {};
    const runShared = (tape, words, scratch, control) => {
      try {
        exports.run_shared(tape, words, scratch, control);
      } catch (error) {
        exports.control_break(control, 0);
        throw error;
      }
    };
    let numbers = new Uint32Array(memory.buffer);
    let heapNumbers = new Uint32Array(0);
    // A run as one call: arrays in, the tape, arrays out. An array is given by where Python keeps it, and has its
    // elements' address `header` bytes on. `list` has addresses here and sizes, in turns, of `inputs` inputs, then of
    // outputs. Says whether a kernel raised one of the flags, which are `flagWords` words of 32 bits at `flags`.
    const bind = (tape, words, scratch, control, flags, flagWords, header, list, inputs) => {
      const count = list.length / 2;
      return (...arrays) => {
        const heap = python.HEAPU8;
        const own = bytes();
        if (heapNumbers.buffer !== heap.buffer) heapNumbers = new Uint32Array(heap.buffer);
        for (let i = 0; i < inputs; i++) {
          const at = heapNumbers[(arrays[i] + header) >>> 2];
          own.set(heap.subarray(at, at + list[2 * i + 1]), list[2 * i]);
        }
        if (control) runShared(tape, words, scratch, control);
        else exports.run(tape, words, scratch);
        for (let i = inputs; i < count; i++) {
          const from = list[2 * i];
          heap.set(own.subarray(from, from + list[2 * i + 1]), heapNumbers[(arrays[i] + header) >>> 2]);
        }
        if (!flagWords) return 0;
        if (numbers.buffer !== memory.buffer) numbers = new Uint32Array(memory.buffer);
        let raised = 0;
        for (let i = flags >>> 2, end = i + flagWords; i < end; i++) raised |= numbers[i];
        return raised;
      };
    };
    return {
      memory,
      bind,
      exports,
      heap: exports.__heap_base.value,
      descriptions: Array.from({ length: exports.kernel_count() }, (_, i) => text(exports.kernel_description(i))),
      run: exports.run,
      run_piece: exports.run_piece,
      run_shared: runShared,
      maySleep: maySleep(),
      // Thread `number` has the stack that ends at stacks + number * bytes.
      startThreads: (source, control, count, stacks, bytes) => {
        const place = (_, i) => ({ module, memory, control, number: i + 1, stack: stacks + (i + 1) * bytes });
        const job = openJob(source, Array.from({ length: count }, place));
        stop = () => {
          threads.jobs = threads.jobs.filter((other) => other !== job);
          exports.control_stop(control);
        };
      },
      stopThreads: () => stop(),
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
    processors: () => navigator.hardwareConcurrency ?? 1,
    awaitThreads,
    refusal: () => threads.refusal,
    hasModule: (name) => modules.has(name),
    validate: (binary) => WebAssembly.validate(bytesOf(binary)),
    compile: (name, binary) => void modules.set(name, new WebAssembly.Module(bytesOf(binary))),
    compileAsync: async (name, binary) => void modules.set(name, await WebAssembly.compile(bytesOf(binary))),
    makeHost: (name, shared, bytes, python) => makeHost(modules.get(name), shared, Math.ceil(bytes / PAGE), python),
  };
})
