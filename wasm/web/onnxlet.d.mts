/**
 * onnxlet for web pages. Names and meanings are those of onnxruntime-web 1.30, where there is such a name; what is
 * onnxlet's own is marked.
 */

type GlobalOf<Name extends string, Otherwise = unknown> = typeof globalThis extends { [K in Name]: { prototype: infer T } }
  ? T
  : Otherwise;
type GpuBuffer = GlobalOf<'GPUBuffer', { size: number; mapState: 'unmapped' | 'pending' | 'mapped' }>;
type GpuDevice = GlobalOf<'GPUDevice'>;

export declare namespace Tensor {
  /** Data of float16 are a Float16Array where the browser has one. (u)int4 are packed, the first in the low bits. */
  interface DataTypeMap {
    float32: Float32Array;
    float64: Float64Array;
    float16: Uint16Array;
    int8: Int8Array;
    uint8: Uint8Array;
    int16: Int16Array;
    uint16: Uint16Array;
    int32: Int32Array;
    uint32: Uint32Array;
    int64: BigInt64Array;
    uint64: BigUint64Array;
    bool: Uint8Array;
    string: string[];
    int4: Int8Array;
    uint4: Uint8Array;
  }
  type Type = keyof DataTypeMap;
  type DataType = DataTypeMap[Type];
  type DataLocation = 'none' | 'cpu' | 'cpu-pinned' | 'texture' | 'gpu-buffer' | 'ml-tensor';
  type GpuBufferType = GpuBuffer;
  /** Types that a buffer on the GPU holds as an array on the CPU does. */
  type GpuBufferDataTypes = 'float32' | 'float64' | 'int32' | 'uint32' | 'int64' | 'uint64';
  type ImageFormat = 'RGB' | 'RGBA' | 'BGR' | 'RBG';
  type ImageTensorLayout = 'NHWC' | 'NCHW';

  interface Normalization {
    /** Of an image's elements, for all channels or each; default 255, and 1 for uint8. */
    mean?: number | [number, number, number] | [number, number, number, number];
    /** Default 0. */
    bias?: number | [number, number, number] | [number, number, number, number];
  }
  interface FromImageOptions {
    tensorFormat?: ImageFormat;
    tensorLayout?: ImageTensorLayout;
    dataType?: 'float32' | 'uint8';
    resizedWidth?: number;
    resizedHeight?: number;
    /** An element is (pixel + bias) / mean. */
    norm?: Normalization;
  }
  interface ToImageOptions {
    format?: ImageFormat;
    tensorLayout?: ImageTensorLayout;
    /** A pixel is (element - bias) * mean. */
    norm?: Normalization;
  }
  interface FromGpuBufferOptions<T extends GpuBufferDataTypes> {
    /** Default 'float32'. */
    dataType?: T;
    dims: readonly number[];
    /** How to read the elements, for `getData`. */
    download?(): Promise<DataTypeMap[T]>;
    /** Called by `dispose`. */
    dispose?(): void;
  }
}

export interface TypedTensor<T extends Tensor.Type> {
  readonly dims: readonly number[];
  readonly type: T;
  readonly size: number;
  readonly location: Tensor.DataLocation;
  /** The elements, if they are on the CPU; else it throws. */
  readonly data: Tensor.DataTypeMap[T];
  /** Where Python runs in this thread (`env.worker`) and `location` is 'gpu-buffer'; else it throws. */
  readonly gpuBuffer: Tensor.GpuBufferType;
  /** Throws: WebGL is not supported. */
  readonly texture: WebGLTexture;
  /** Throws: WebNN is not supported. */
  readonly mlTensor: GlobalOf<'MLTensor', { destroy(): void }>;
  /** The elements, read back from the GPU if they are there, and then freed there if told so. */
  getData(releaseData?: boolean): Promise<Tensor.DataTypeMap[T]>;
  /** Let go of the elements: `location` is 'none' then. */
  dispose(): void;
  /** The same elements with other dimensions. */
  reshape(dims: readonly number[]): TypedTensor<T>;
  toImageData(options?: Tensor.ToImageOptions): ImageData;
  toDataURL(options?: Tensor.ToImageOptions): string;
}

export interface Tensor extends TypedTensor<Tensor.Type> {
  reshape(dims: readonly number[]): Tensor;
}

type Numeric = Exclude<Tensor.Type, 'string' | 'bool' | 'int64' | 'uint64' | 'float16' | 'int4' | 'uint4'>;
type Image = ImageData | HTMLImageElement | HTMLCanvasElement | HTMLVideoElement | OffscreenCanvas | ImageBitmap | string | URL;

export interface TensorConstructor {
  new (type: 'string', data: readonly string[], dims?: readonly number[]): TypedTensor<'string'>;
  new (type: 'bool', data: Uint8Array | readonly boolean[], dims?: readonly number[]): TypedTensor<'bool'>;
  new (type: 'uint8', data: Uint8ClampedArray, dims?: readonly number[]): TypedTensor<'uint8'>;
  new <T extends 'int64' | 'uint64'>(
    type: T,
    data: Tensor.DataTypeMap[T] | readonly bigint[] | readonly number[],
    dims?: readonly number[],
  ): TypedTensor<T>;
  new (
    type: 'float16',
    data: Uint16Array | GlobalOf<'Float16Array', never> | readonly number[],
    dims?: readonly number[],
  ): TypedTensor<'float16'>;
  new <T extends 'int4' | 'uint4'>(type: T, data: Uint8Array | Int8Array, dims?: readonly number[]): TypedTensor<T>;
  new <T extends Numeric>(type: T, data: Tensor.DataTypeMap[T] | readonly number[], dims?: readonly number[]): TypedTensor<T>;
  new (
    type: Tensor.Type,
    data: Tensor.DataType | readonly number[] | readonly string[] | readonly bigint[] | readonly boolean[],
    dims?: readonly number[],
  ): Tensor;
  new (data: Float32Array, dims?: readonly number[]): TypedTensor<'float32'>;
  new (data: Float64Array, dims?: readonly number[]): TypedTensor<'float64'>;
  new (data: Int8Array, dims?: readonly number[]): TypedTensor<'int8'>;
  new (data: Uint8Array | Uint8ClampedArray, dims?: readonly number[]): TypedTensor<'uint8'>;
  new (data: Int16Array, dims?: readonly number[]): TypedTensor<'int16'>;
  new (data: Uint16Array, dims?: readonly number[]): TypedTensor<'uint16'>;
  new (data: Int32Array, dims?: readonly number[]): TypedTensor<'int32'>;
  new (data: Uint32Array, dims?: readonly number[]): TypedTensor<'uint32'>;
  new (data: BigInt64Array, dims?: readonly number[]): TypedTensor<'int64'>;
  new (data: BigUint64Array, dims?: readonly number[]): TypedTensor<'uint64'>;
  new (data: readonly string[], dims?: readonly number[]): TypedTensor<'string'>;
  new (data: readonly boolean[], dims?: readonly number[]): TypedTensor<'bool'>;
  new (data: Tensor.DataType, dims?: readonly number[]): Tensor;

  /** A tensor [1, channels, height, width] (or NHWC) from an image; by default RGB in float32, pixels / 255. */
  fromImage(image: Image, options?: Tensor.FromImageOptions & { dataType?: 'float32' }): Promise<TypedTensor<'float32'>>;
  fromImage(image: Image, options: Tensor.FromImageOptions & { dataType: 'uint8' }): Promise<TypedTensor<'uint8'>>;
  fromImage(image: Image, options?: Tensor.FromImageOptions): Promise<TypedTensor<'float32'> | TypedTensor<'uint8'>>;
  /** A tensor in a buffer of `env.webgpu.device`, where Python runs in this thread. */
  fromGpuBuffer<T extends Tensor.GpuBufferDataTypes = 'float32'>(
    buffer: Tensor.GpuBufferType,
    options: Tensor.FromGpuBufferOptions<T>,
  ): TypedTensor<T>;
}

export declare const Tensor: TensorConstructor;

export declare namespace InferenceSession {
  type FeedsType = { readonly [name: string]: Tensor };
  /** Names of outputs; or null, or a tensor that receives it, under the name of each. */
  type FetchesType = readonly string[] | { readonly [name: string]: Tensor | null };
  type ReturnType = { readonly [name: string]: Tensor };
  type ModelType = string | URL | ArrayBufferLike | Uint8Array | Blob;

  interface ExternalDataFile {
    /** The name by which the model knows the file. */
    path: string;
    data: string | URL | Uint8Array | ArrayBufferLike | Blob | FileSystemFileHandle;
  }
  interface Provider {
    readonly name: string;
    /** For 'webgpu': a device to compute on, where Python runs in this thread. The same as `env.webgpu.device`. */
    readonly device?: GpuDevice;
  }
  type ProviderOptions = Provider | (Provider & { readonly [option: string]: unknown });
  interface SessionOptions {
    /** In order of preference: 'webgpu', 'cpu' or 'wasm'. Others are left out, with a warning. Default: the CPU. */
    executionProviders?: readonly (string | ProviderOptions)[];
    graphOptimizationLevel?: 'disabled' | 'basic' | 'extended' | 'layout' | 'all';
    /** Lengths for symbolic dimensions of inputs. */
    freeDimensionOverrides?: { readonly [dimension: string]: number };
    /** The files in which a model keeps tensors. Those that are not listed are fetched from beside its address. */
    externalData?: readonly (string | ExternalDataFile)[];
    /** Where outputs are left: 'gpu-buffer' feeds later runs without a copy. */
    preferredOutputLocation?: Tensor.DataLocation | { readonly [output: string]: Tensor.DataLocation };
    /** Threads on the CPU; also `env.wasm.numThreads`. */
    intraOpNumThreads?: number;
    enableProfiling?: boolean;
    /** From 3 on, warnings are not shown. */
    logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
    /** Configuration entries: `{session: {disable_cpu_ep_fallback: '1'}}`. */
    extra?: Record<string, unknown>;
    /** onnxlet's own: what is being loaded, and bytes where they are known. */
    progress?(event: { stage: 'pyodide' | 'ready' | 'download' | 'cache'; done: number; total: number | null }): void;
    /** onnxlet's own: ends the loading. */
    signal?: AbortSignal;
    /** onnxlet's own: whether a model from an address is kept, and asked for, in the browser's cache. Default true. */
    cache?: boolean;
    // Accepted, without an effect.
    interOpNumThreads?: number;
    enableCpuMemArena?: boolean;
    enableMemPattern?: boolean;
    executionMode?: 'sequential' | 'parallel';
    optimizedModelFilePath?: string;
    profileFilePrefix?: string;
    logId?: string;
    logVerbosityLevel?: number;
    enableGraphCapture?: boolean;
  }
  interface RunOptions {
    /** Reject instead of running. */
    terminate?: boolean;
    /** onnxlet's own: stop waiting for the outputs. */
    signal?: AbortSignal;
    logSeverityLevel?: 0 | 1 | 2 | 3 | 4;
    logVerbosityLevel?: number;
    tag?: string;
    extra?: Record<string, unknown>;
  }
  interface TensorValueMetadata {
    readonly name: string;
    readonly isTensor: true;
    readonly type: Tensor.Type;
    /** A symbolic dimension is its name, an unknown one ''. */
    readonly shape: ReadonlyArray<number | string>;
  }
  interface NonTensorValueMetadata {
    readonly name: string;
    readonly isTensor: false;
  }
  type ValueMetadata = TensorValueMetadata | NonTensorValueMetadata;

  /** Where nodes ran, and why. */
  interface Explanation {
    readonly counts: Readonly<Record<string, number>>;
    readonly calls: number;
    readonly absent: Readonly<Record<string, string>>;
    readonly nodes: readonly Readonly<Record<string, unknown> & { node: string; operator: string; provider: string; reason: string }>[];
  }
}

export interface InferenceSession {
  readonly inputNames: readonly string[];
  readonly outputNames: readonly string[];
  readonly inputMetadata: readonly InferenceSession.ValueMetadata[];
  readonly outputMetadata: readonly InferenceSession.ValueMetadata[];
  run(feeds: InferenceSession.FeedsType, options?: InferenceSession.RunOptions): Promise<InferenceSession.ReturnType>;
  run(
    feeds: InferenceSession.FeedsType,
    fetches: InferenceSession.FetchesType,
    options?: InferenceSession.RunOptions,
  ): Promise<InferenceSession.ReturnType>;
  release(): Promise<void>;
  startProfiling(): void;
  /** onnxlet's own: resolves with the trace, in Chrome's format. */
  endProfiling(): Promise<object[]>;
  /** onnxlet's own: names of the providers in use, in order of preference. */
  readonly providers: readonly string[];
  /** onnxlet's own: where nodes ran in the last run, and why. */
  explain(): Promise<InferenceSession.Explanation>;
}

export interface InferenceSessionFactory {
  create(model: InferenceSession.ModelType, options?: InferenceSession.SessionOptions): Promise<InferenceSession>;
  create(
    buffer: ArrayBufferLike,
    byteOffset: number,
    byteLength?: number,
    options?: InferenceSession.SessionOptions,
  ): Promise<InferenceSession>;
}

export declare const InferenceSession: InferenceSessionFactory;

/** Settings for all sessions, to be set before the first one. */
export interface Env {
  /** onnxlet's own: address of Pyodide's folder, or null: named by `site.json` beside this module's folder, or the CDN. */
  pyodide: string | null;
  /** onnxlet's own: address of onnxlet's wheel, for a Pyodide folder whose lock file does not name it. */
  wheel: string | null;
  /** onnxlet's own: whether Python runs in a worker. Default (null): it does, unless `webgpu.device` is set. */
  worker: boolean | null;
  /** onnxlet's own: providers of sessions that name none. */
  executionProviders: readonly (string | InferenceSession.ProviderOptions)[];
  logLevel?: 'verbose' | 'info' | 'warning' | 'error' | 'fatal';
  debug?: boolean;
  trace?: boolean;
  readonly versions: { readonly common: string; readonly onnxlet: string; readonly web?: string; readonly node?: string };
  readonly wasm: {
    /** Threads on the CPU; 0 or nothing: as many as the machine has, up to 8. */
    numThreads?: number;
    /** Milliseconds in which the engine has to start. */
    initTimeout?: number;
    // Accepted, without an effect: Pyodide and the wheel hold everything.
    wasmPaths?: string | { wasm?: URL | string; mjs?: URL | string };
    wasmBinary?: ArrayBufferLike | Uint8Array;
    simd?: boolean | 'fixed' | 'relaxed';
    proxy?: boolean;
    trace?: boolean;
  };
  readonly webgl: { [flag: string]: unknown };
  readonly webgpu: {
    powerPreference?: 'low-power' | 'high-performance';
    /** An adapter for the device, where Python runs in this thread. */
    adapter?: GlobalOf<'GPUAdapter'>;
    /** The sessions' device, where Python runs in this thread; setting it makes it run there. */
    get device(): Promise<GpuDevice>;
    set device(value: GpuDevice);
    // Accepted, without an effect.
    forceFallbackAdapter?: boolean;
    validateInputContent?: boolean;
    profilingMode?: 'off' | 'default';
    profiling: { mode?: 'off' | 'default'; ondata?: (data: unknown) => void };
  };
  [name: string]: unknown;
}

export declare const env: Env;

/** What promises reject with when loading or running fails; wrong arguments are TypeError or RangeError, with a code too. */
export declare class OnnxletError extends Error {
  private constructor();
  /** The name of onnxlet's Python error: 'ModelError', 'FeedError', 'ProviderError', … */
  readonly name: string;
  readonly code:
    | 'INVALID_MODEL' | 'NO_SUCHFILE' | 'NOT_IMPLEMENTED' | 'INVALID_ARGUMENT' | 'INVALID_GRAPH' | 'RUNTIME_EXCEPTION'
    | 'OUT_OF_MEMORY' | 'EP_FAIL' | 'DEVICE_LOST' | 'WORKER_FAILED' | 'RELEASED' | 'TERMINATED' | 'FAIL';
}

/** End the worker and free everything it holds; sessions made before can't be used afterwards. */
export declare function shutdown(): void;

/** For `registerBackend` of onnxruntime-common. */
export declare const backend: {
  init(name: string): Promise<void>;
  createInferenceSessionHandler(model: string | Uint8Array, options?: object): Promise<any>;
};

declare const everything: {
  InferenceSession: InferenceSessionFactory;
  Tensor: TensorConstructor;
  env: Env;
  OnnxletError: typeof OnnxletError;
  shutdown: typeof shutdown;
  backend: typeof backend;
};
export default everything;
