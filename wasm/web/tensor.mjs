// Tensors: an element type, the elements in row-major order, dimensions; made from images, and images made from them.

const Half = globalThis.Float16Array ?? Uint16Array;

/** The array that holds each element type. (u)int4 are packed, two to a byte, the first in the low bits. */
export const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Half,
  int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array, uint32: Uint32Array,
  int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array, string: Array, int4: Uint8Array, uint4: Uint8Array,
};
// What other arrays are taken for which type: those hold the same bits.
const ALSO = { float16: [Uint16Array], int4: [Int8Array], uint8: [Uint8ClampedArray] };
// The type that an array is taken for where none is named: the first of those that it holds, but Uint16Array holds uint16.
const TYPES = new Map(Object.entries(ARRAYS).reverse().map(([type, Kind]) => [Kind, type])).set(Uint16Array, 'uint16');
const PACKED = /^u?int4$/;

/** The channels of pixels, as places in RGBA. */
const ORDERS = { RGB: [0, 1, 2], RGBA: [0, 1, 2, 3], BGR: [2, 1, 0], RBG: [0, 2, 1] };

/** Thrown for whatever goes wrong in the engine. `name` is that of onnxlet's Python error, `code` a kind that stays. */
export class OnnxletError extends Error {
  constructor(name, message, code = CODES[name] ?? 'FAIL') {
    super(message);
    this.name = name;
    this.code = code;
  }
}

const CODES = {
  ModelError: 'INVALID_MODEL', ExternalDataError: 'NO_SUCHFILE', MissingOperatorsError: 'NOT_IMPLEMENTED',
  UnsupportedError: 'NOT_IMPLEMENTED', FeedError: 'INVALID_ARGUMENT', ValueError: 'INVALID_ARGUMENT',
  TypeError: 'INVALID_ARGUMENT', ShapeError: 'INVALID_GRAPH', NodeError: 'RUNTIME_EXCEPTION', LimitError: 'OUT_OF_MEMORY',
  MemoryError: 'OUT_OF_MEMORY', ProviderError: 'EP_FAIL', DeviceLostError: 'DEVICE_LOST', WorkerError: 'WORKER_FAILED',
  SessionClosedError: 'RELEASED', TerminatedError: 'TERMINATED',
};

/** An error for wrong arguments. */
export const wrong = (Kind, message) => Object.assign(new Kind(message), { code: 'INVALID_ARGUMENT' });
export const unsupported = (message) => new OnnxletError('UnsupportedError', message);

export class Tensor {
  /**
   * `new Tensor(type, data, dims?)`, `new Tensor(data, dims?)`, or `new Tensor({location: 'gpu-buffer', type, dims, …})`.
   * A typed array is kept as it is, not copied; a list is converted.
   */
  constructor(first, second, third) {
    if (typeof first === 'string') onHost(this, first, second, third);
    else if (typeof first === 'object' && first !== null && 'location' in first) onDevice(this, first);
    else onHost(this, typeOf(first), first, second);
  }

  /** Where the elements are: 'cpu', 'gpu-buffer', or 'none' after `dispose`. */
  get location() {
    return this.dataLocation;
  }

  get data() {
    valid(this);
    if (!this.cpuData) throw new Error('the data are on the GPU: `await tensor.getData()` reads them back');
    return this.cpuData;
  }

  get gpuBuffer() {
    valid(this);
    if (this.gpuBufferData) return this.gpuBufferData;
    if (!this.handle) throw new Error('the data are not in a GPU buffer');
    throw unsupported(
      this.handle.local
        ? `a ${this.type} tensor is kept in another form on the GPU: \`await tensor.getData()\` reads it`
        : "the buffer belongs to the worker's GPU device, and buffers can't be handed to another thread: " +
            'set `env.worker = false` before the first session is made',
    );
  }

  get texture() {
    throw unsupported('tensors in WebGL textures are not supported');
  }

  get mlTensor() {
    throw unsupported("WebNN's tensors are not supported");
  }

  /** The elements, read back from the GPU if they are there; with `release` they are freed there. */
  async getData(release) {
    valid(this);
    if (this.cpuData) return this.cpuData;
    if (!this.downloader) throw new Error('this tensor was made without a `download` function');
    if (this.isDownloading) throw new Error('this tensor is being read back already');
    this.isDownloading = true;
    try {
      this.cpuData = await this.downloader();
    } finally {
      this.isDownloading = false;
    }
    this.downloader = undefined;
    this.dataLocation = 'cpu';
    if (release) free(this);
    return this.cpuData;
  }

  /** Let go of the elements, wherever they are. */
  dispose() {
    if (this.isDownloading) throw new Error('this tensor is being read back');
    free(this);
    this.cpuData = this.downloader = undefined;
    this.dataLocation = 'none';
  }

  /** The same elements with other dimensions. */
  reshape(dims) {
    valid(this);
    if (this.dataLocation === 'cpu') return new Tensor(this.type, this.cpuData, dims);
    const { dataLocation: location, type, gpuBufferData: gpuBuffer, handle, downloader: download } = this;
    const other = new Tensor({ location, type, dims, gpuBuffer, handle, download });
    if (other.size !== this.size) throw wrong(RangeError, `[${dims}] are not ${this.size} elements`);
    return other;
  }

  /**
   * A tensor [1, channels, height, width] from an image: `ImageData`, an element, an `ImageBitmap`, an address.
   *
   * Options: `tensorFormat` ('RGB'), `tensorLayout` ('NCHW' or 'NHWC'), `dataType` ('float32', or 'uint8'),
   * `resizedWidth`, `resizedHeight`, `norm: {mean, bias}`. An element is (pixel + bias) / mean. By default that is the
   * pixel / 255 for float32, and the pixel for uint8.
   */
  static async fromImage(image, options = {}) {
    const { tensorFormat = 'RGB', tensorLayout, dataType = 'float32', norm } = options;
    if (!/^(float32|uint8)$/.test(dataType)) throw wrong(TypeError, `an image becomes float32 or uint8, not ${dataType}`);
    const { data, width, height } = await pixels(image, options.resizedWidth, options.resizedHeight);
    const channels = channelsOf(tensorFormat);
    const mean = perChannel(norm?.mean, dataType === 'uint8' ? 1 : 255), bias = perChannel(norm?.bias, 0);
    const made = new ARRAYS[dataType](width * height * channels.length);
    const [step, plane] = strides(tensorLayout, channels.length, width * height);
    channels.forEach((channel, k) => {
      for (let i = channel, at = k * plane; i < data.length; i += 4, at += step) {
        made[at] = (data[i] + bias[channel]) / mean[channel];
      }
    });
    const dims = step === 1 ? [1, channels.length, height, width] : [1, height, width, channels.length];
    return new Tensor(dataType, made, dims);
  }

  /**
   * The image that a tensor of one, three or four channels holds. A pixel is (element - bias) * mean, by default the
   * element * 255. Options: `format` ('RGB'), `tensorLayout`, `norm: {mean, bias}`.
   */
  toImageData({ format, tensorLayout, norm } = {}) {
    const nhwc = tensorLayout === 'NHWC';
    const [height, width] = this.dims.slice(nhwc ? 1 : 2);
    const count = this.dims[nhwc ? 3 : 1];
    if (this.dims.length !== 4 || ![1, 3, 4].includes(count)) {
      throw wrong(TypeError, `a tensor [${this.dims}] is no image: [1, channels, height, width] is`);
    }
    const channels = count === 1 ? [0] : channelsOf(format ?? 'RGB');
    if (count > 1 && format && channels.length !== count) {
      throw wrong(TypeError, `${format} is not the format of a tensor with ${count} channels`);
    }
    const mean = perChannel(norm?.mean, 255), bias = perChannel(norm?.bias, 0);
    const image = new ImageData(width, height);
    const [step, plane] = strides(tensorLayout, count, width * height);
    const data = this.data;
    image.data.fill(255);
    channels.forEach((channel, k) => {
      for (let i = channel, at = k * plane; i < image.data.length; i += 4, at += step) {
        image.data[i] = (Number(data[at]) - bias[channel]) * mean[channel];
        if (count === 1) image.data[i + 1] = image.data[i + 2] = image.data[i];
      }
    });
    return image;
  }

  /** `toImageData` as the address of a PNG. Needs a page: workers have no such canvas. */
  toDataURL(options) {
    if (!globalThis.document) throw unsupported('only a page has a canvas that makes addresses, not a worker');
    const image = this.toImageData(options);
    const canvas = document.createElement('canvas');
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext('2d').putImageData(image, 0, 0);
    return canvas.toDataURL();
  }

  /** A tensor in a `GPUBuffer` of the sessions' device (`env.webgpu.device`). Needs `env.worker = false`. */
  static fromGpuBuffer(gpuBuffer, { dataType = 'float32', dims, download, dispose }) {
    return new Tensor({ location: 'gpu-buffer', type: dataType, dims, gpuBuffer, download, dispose });
  }

  static fromPinnedBuffer() {
    throw unsupported('pinned buffers are not supported: `new Tensor(type, data, dims)` keeps an array without a copy');
  }

  static fromTexture() {
    throw unsupported('tensors in WebGL textures are not supported');
  }

  static fromMLTensor() {
    throw unsupported("WebNN's tensors are not supported");
  }
}

// Plain functions and fields, not private ones: tensors work behind a `Proxy` too, as page frameworks wrap them.

function onHost(tensor, type, data, dims) {
  const Kind = ARRAYS[type];
  if (!Kind) throw wrong(TypeError, `unknown element type '${type}'; there are ${Object.keys(ARRAYS).join(', ')}`);
  const packed = PACKED.test(type);
  tensor.cpuData = converted(type, Kind, data);
  const { length } = tensor.cpuData;
  place(tensor, 'cpu', type, dims ?? [packed ? 2 * length : length]);
  const { size } = tensor;
  if ((packed ? Math.ceil(size / 2) : size) !== length) {
    throw wrong(RangeError, `dimensions [${dims}] hold ${size} elements, but the data has ${length}`);
  }
}

function onDevice(tensor, { location, type, dims, gpuBuffer, handle, download, dispose }) {
  if (location !== 'gpu-buffer') throw unsupported(`tensors in the location '${location}' are not supported`);
  if (!ARRAYS[type] || type === 'string') throw wrong(TypeError, `a GPU buffer can't hold a ${type} tensor`);
  Object.assign(tensor, { gpuBufferData: gpuBuffer, handle, downloader: download, disposer: dispose });
  place(tensor, location, type, dims);
}

function place(tensor, location, type, dims) {
  if (!Array.isArray(dims)) throw wrong(TypeError, 'dimensions are an array of integers');
  for (const n of dims) {
    if (!Number.isSafeInteger(n)) throw wrong(TypeError, `dimensions are integers, not ${n}`);
    if (n < 0) throw wrong(RangeError, `dimensions are not negative: ${n}`);
  }
  const size = dims.reduce((a, b) => a * b, 1);
  Object.assign(tensor, { dataLocation: location, type, dims, size });
}

function valid(tensor) {
  if (tensor.dataLocation === 'none') throw new Error('the tensor was disposed of');
}

function free(tensor) {
  tensor.disposer?.();
  tensor.disposer = tensor.gpuBufferData = tensor.handle = undefined;
}

/** The element type that data are of. */
function typeOf(data) {
  if (Array.isArray(data)) {
    const type = { string: 'string', boolean: 'bool' }[typeof data[0]];
    if (type) return type;
    throw wrong(TypeError, "the element type of a list can't be told: `new Tensor(type, data, dims)`");
  }
  const type = data instanceof Uint8ClampedArray ? 'uint8' : TYPES.get(data?.constructor);
  if (type) return type;
  throw wrong(TypeError, `a tensor's data are a typed array or a list, not ${data?.constructor?.name ?? data}`);
}

function converted(type, Kind, data) {
  if (data instanceof Kind) return data;
  if (ALSO[type]?.some((Other) => data instanceof Other)) {
    return new Kind(data.buffer, data.byteOffset, data.length);
  }
  if (!Array.isArray(data) || type === 'string') {
    throw wrong(TypeError, `the data of a ${type} tensor are a ${Kind.name}, not ${data?.constructor?.name ?? data}`);
  }
  if (PACKED.test(type) || (type === 'float16' && Kind === Uint16Array)) {
    throw wrong(TypeError, `a ${type} tensor is made of a ${Kind.name} with its bits, not of a list`);
  }
  return /64$/.test(type) && type !== 'float64' ? Kind.from(data, BigInt) : Kind.from(data);
}

function channelsOf(format) {
  if (!Object.hasOwn(ORDERS, format)) {
    throw wrong(TypeError, `'${format}' is not a format of images: there are ${Object.keys(ORDERS).join(', ')}`);
  }
  return ORDERS[format];
}

function perChannel(value, fallback) {
  return Array.isArray(value) ? [0, 1, 2, 3].map((i) => value[i] ?? fallback) : Array(4).fill(value ?? fallback);
}

/** How far apart the elements of a channel are, and the first elements of channels. */
function strides(layout, channels, area) {
  return layout === 'NHWC' ? [channels, 1] : [1, area];
}

/** An image's RGBA bytes, resized if a size is given. */
async function pixels(image, resizedWidth, resizedHeight) {
  let source = image;
  if (typeof image === 'string' || image instanceof URL) source = await loaded(String(image));
  else if (globalThis.HTMLImageElement && image instanceof HTMLImageElement) await image.decode();
  const width = source.naturalWidth || source.videoWidth || source.displayWidth || source.width;
  const height = source.naturalHeight || source.videoHeight || source.displayHeight || source.height;
  if (!width || !height) throw wrong(TypeError, 'an image is ImageData, an element, an ImageBitmap or an address');
  const wide = resizedWidth ?? width, high = resizedHeight ?? height;
  if (source instanceof ImageData) {
    if (wide === width && high === height) return source;
    const whole = canvas(width, height);
    whole.putImageData(source, 0, 0);
    source = whole.canvas;
  }
  const drawn = canvas(wide, high);
  drawn.drawImage(source, 0, 0, wide, high);
  return drawn.getImageData(0, 0, wide, high);
}

async function loaded(address) {
  if (globalThis.Image) {
    const image = new Image();
    image.crossOrigin = 'anonymous';
    image.src = address;
    await image.decode();
    return image;
  }
  return createImageBitmap(await (await fetch(address)).blob());
}

function canvas(width, height) {
  return new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
}
