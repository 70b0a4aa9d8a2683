// The part of the backend that lives in JavaScript: a table of WebGPU objects by number, and functions that take
// numbers, so that one call from Python does much. It is an expression: Python evaluates it once and keeps the result.
(() => {
  const objects = [null];
  const vacant = [];
  const put = (object) => {
    const number = vacant.length ? vacant.pop() : objects.length;
    objects[number] = object;
    return number;
  };

  // Numbers that Python recorded (an array of doubles), copied out of its memory.
  const numbers = (list) => {
    const view = list.getBuffer("f64");
    const copy = view.data.slice();
    view.release();
    return copy;
  };

  // Run `use` with the bytes of a Python buffer, or of a typed array or ArrayBuffer of JavaScript's own.
  const withBytes = (data, use) => {
    if (data.getBuffer) {
      const view = data.getBuffer("u8");
      try {
        return use(view.data);
      } finally {
        view.release();
      }
    }
    if (ArrayBuffer.isView(data)) return use(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return use(new Uint8Array(data));
  };

  // Operations as encoder.py writes them: a code, then its arguments.
  const operations = [
    (e, p, v, i) => (p.setPipeline(objects[v[i]]), 1),
    (e, p, v, i) => {
      const count = v[i + 2];
      if (count) p.setBindGroup(v[i], objects[v[i + 1]], [...v.subarray(i + 3, i + 3 + count)]);
      else p.setBindGroup(v[i], objects[v[i + 1]]);
      return 3 + count;
    },
    (e, p, v, i) => (p.dispatchWorkgroups(v[i], v[i + 1], v[i + 2]), 3),
    (e, p, v, i) => (p.dispatchWorkgroupsIndirect(objects[v[i]], v[i + 1]), 2),
    (e, p, v, i) => (e.copyBufferToBuffer(objects[v[i]], v[i + 1], objects[v[i + 2]], v[i + 3], v[i + 4]), 5),
    (e, p, v, i) => (e.clearBuffer(objects[v[i]], v[i + 1], v[i + 2]), 3),
  ];
  const BEGIN = 6;
  const END = 7;
  const encode = (device, v, label) => {
    const encoder = device.createCommandEncoder({ label });
    let pass = null;
    for (let i = 0; i < v.length; ) {
      const code = v[i++];
      if (code === BEGIN) pass = encoder.beginComputePass();
      else if (code === END) pass.end();
      else i += operations[code](encoder, pass, v, i);
    }
    return encoder.finish({ label });
  };

  // What is mapped of each mapped buffer, as bytes: WebGPU hands out each part of a range only once.
  const mapped = new Map();
  const range = (buffer, offset, size) => {
    if (!mapped.has(buffer)) mapped.set(buffer, new Uint8Array(objects[buffer].getMappedRange(offset, size)));
    return mapped.get(buffer);
  };

  const stage = (module, entryPoint, constants) => ({ module: objects[module], entryPoint, constants });
  const messages = async (module) =>
    (await module.getCompilationInfo()).messages.map((m) => [
      m.type,
      m.message,
      m.lineNum,
      m.linePos,
      m.offset,
      m.length,
    ]);

  return {
    put,
    drop: (number) => {
      mapped.delete(number);
      objects[number] = null;
      vacant.push(number);
    },
    get: (number) => objects[number],
    count: () => objects.length - 1 - vacant.length,
    limits: (limits) => {
      const found = {};
      for (const key in limits) if (typeof limits[key] === "number") found[key] = limits[key];
      return found;
    },
    list: (set) => [...set],
    // Python sees undefined as None, but null as an object of its own.
    requestAdapter: async (options) => (await navigator.gpu.requestAdapter(options)) ?? undefined,
    requestDevice: (adapter, options) => objects[adapter].requestDevice(options),
    lost: (device) => objects[device].lost,
    destroy: (number) => objects[number].destroy(),

    createBuffer: (device, size, usage, mappedAtCreation, label) =>
      put(objects[device].createBuffer({ size, usage, mappedAtCreation, label })),
    mapAsync: (buffer, mode, offset, size) => objects[buffer].mapAsync(mode, offset, size),
    unmap: (buffer) => {
      mapped.delete(buffer);
      objects[buffer].unmap();
    },
    // `start` and `length` say what is mapped, `offset` counts from there.
    readMapped: (buffer, start, length, offset, size, target) => {
      const source = range(buffer, start, length).subarray(offset, offset + size);
      withBytes(target, (bytes) => bytes.set(source));
    },
    writeMapped: (buffer, start, length, offset, data) => {
      const target = range(buffer, start, length).subarray(offset);
      withBytes(data, (bytes) => target.set(bytes));
    },
    writeBuffer: (device, buffer, bufferOffset, data, dataOffset, size) =>
      withBytes(data, (bytes) => objects[device].queue.writeBuffer(objects[buffer], bufferOffset, bytes, dataOffset, size)),

    createBindGroupLayout: (device, list, label) => {
      const v = numbers(list);
      const types = ["uniform", "storage", "read-only-storage"];
      const entries = [];
      for (let i = 0; i < v.length; i += 5) {
        const buffer = { type: types[v[i + 2]], hasDynamicOffset: !!v[i + 3], minBindingSize: v[i + 4] };
        entries.push({ binding: v[i], visibility: v[i + 1], buffer });
      }
      return put(objects[device].createBindGroupLayout({ entries, label }));
    },
    createPipelineLayout: (device, list, label) =>
      put(objects[device].createPipelineLayout({ bindGroupLayouts: [...numbers(list)].map((n) => objects[n]), label })),
    createBindGroup: (device, layout, list, label) => {
      const v = numbers(list);
      const entries = [];
      for (let i = 0; i < v.length; i += 4) {
        const resource = { buffer: objects[v[i + 1]], offset: v[i + 2] };
        if (v[i + 3] >= 0) resource.size = v[i + 3];
        entries.push({ binding: v[i], resource });
      }
      return put(objects[device].createBindGroup({ layout: objects[layout], entries, label }));
    },

    // What is wrong with a shader is told through its compilation info: the error scope keeps it off the console.
    createShaderModule: (device, code, label) => {
      objects[device].pushErrorScope("validation");
      const module = put(objects[device].createShaderModule({ code, label }));
      objects[device].popErrorScope().catch(() => {});
      return module;
    },
    messages: (module) => messages(objects[module]),
    createComputePipeline: (device, layout, module, entry, constants, label) =>
      put(
        objects[device].createComputePipeline({
          layout: layout ? objects[layout] : "auto",
          compute: stage(module, entry, constants),
          label,
        }),
      ),
    createComputePipelineAsync: async (device, layout, module, entry, constants, label) => {
      const shader = objects[module]; // Python may let go of it while the pipeline is made
      try {
        return put(
          await objects[device].createComputePipelineAsync({
            layout: layout ? objects[layout] : "auto",
            compute: stage(module, entry, constants),
            label,
          }),
        );
      } catch (error) {
        return [error.reason ?? "internal", error.message, await messages(shader)];
      }
    },
    bindGroupLayout: (pipeline, index) => put(objects[pipeline].getBindGroupLayout(index)),

    // Recorded work: `keep` stores it for `submit`, which encodes each of the recordings anew and submits them all.
    keep: (list) => put(numbers(list)),
    submit: (device, recordings) => {
      const d = objects[device];
      d.queue.submit([...numbers(recordings)].map((n) => encode(d, objects[n], "")));
    },
    submitOnce: (device, list, label) => objects[device].queue.submit([encode(objects[device], numbers(list), label)]),
    submittedWorkDone: (device) => objects[device].queue.onSubmittedWorkDone(),

    pushErrorScope: (device, filter) => objects[device].pushErrorScope(filter),
    popErrorScope: async (device) => {
      const error = await objects[device].popErrorScope();
      return error ? [error.constructor.name, error.message] : undefined;
    },
  };
})()
