// Counts what is asked of WebGPU, whoever asks: functions of its prototypes are wrapped.

export const counts = {
  dispatches: 0, submits: 0, readbacks: 0, pipelines: 0, shaders: 0, buffers: 0, bindGroups: 0,
  bytesWritten: 0, bytesCopied: 0, bytesRead: 0,
};

export function reset() {
  for (const key in counts) counts[key] = 0;
}

/** Let `note` see the arguments of every call of a method. */
function wrap(prototype, name, note) {
  const original = prototype[name];
  prototype[name] = function (...given) {
    note(this, ...given);
    return original.apply(this, given);
  };
}

const add = (key, amount = 1) => () => { counts[key] += amount; };

/** Bytes of a writeBuffer: `size` counts elements of a typed array, else bytes. */
function written(data, start = 0, size) {
  const width = data.BYTES_PER_ELEMENT ?? 1;
  return size === undefined ? data.byteLength - start * width : size * width;
}

wrap(GPUComputePassEncoder.prototype, 'dispatchWorkgroups', add('dispatches'));
wrap(GPUComputePassEncoder.prototype, 'dispatchWorkgroupsIndirect', add('dispatches'));
wrap(GPUQueue.prototype, 'submit', add('submits'));
wrap(GPUQueue.prototype, 'writeBuffer', (queue, buffer, offset, data, start, size) => {
  counts.bytesWritten += written(data, start, size);
});
wrap(GPUDevice.prototype, 'createBuffer', (device, { size, mappedAtCreation }) => {
  counts.buffers++;
  if (mappedAtCreation) counts.bytesWritten += size;
});
wrap(GPUBuffer.prototype, 'mapAsync', (buffer, mode, offset = 0, size = buffer.size - offset) => {
  if (mode & GPUMapMode.READ) {
    counts.readbacks++;
    counts.bytesRead += size;
  } else {
    counts.bytesWritten += size;
  }
});
wrap(GPUCommandEncoder.prototype, 'copyBufferToBuffer', (encoder, source, ...rest) => {
  // (source, start, destination, start, size), or (source, destination, size)
  const size = rest[0] instanceof GPUBuffer ? rest[1] : rest[3];
  counts.bytesCopied += size ?? source.size;
});
wrap(GPUDevice.prototype, 'createComputePipeline', add('pipelines'));
wrap(GPUDevice.prototype, 'createComputePipelineAsync', add('pipelines'));
wrap(GPUDevice.prototype, 'createShaderModule', add('shaders'));
wrap(GPUDevice.prototype, 'createBindGroup', add('bindGroups'));
