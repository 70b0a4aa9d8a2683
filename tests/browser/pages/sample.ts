import * as ort from './onnxlet.mjs';
import { InferenceSession, Tensor, env, OnnxletError, backend } from './onnxlet.mjs';
import type * as common from 'onnxruntime-common';
import { registerBackend } from 'onnxruntime-common';

// Code as it is written for onnxruntime-web.
async function classify(image: HTMLImageElement): Promise<number> {
  ort.env.wasm.numThreads = 2;
  ort.env.wasm.wasmPaths = '/assets/';
  ort.env.logLevel = 'error';
  const session = await ort.InferenceSession.create('./model.onnx', {
    executionProviders: ['webgpu', 'wasm'],
    graphOptimizationLevel: 'all',
    freeDimensionOverrides: { batch: 1 },
    preferredOutputLocation: { state: 'gpu-buffer' },
    externalData: [{ path: 'weights.bin', data: new Uint8Array(4) }, 'more.bin'],
    extra: { session: { disable_cpu_ep_fallback: '1' } },
  });
  const input = await ort.Tensor.fromImage(image, { tensorFormat: 'RGB', norm: { mean: [1, 2, 3], bias: 0 } });
  const feeds: Record<string, ort.Tensor> = { [session.inputNames[0]]: input };
  const results = await session.run(feeds);
  const output = results[session.outputNames[0]];
  const data = (await output.getData()) as Float32Array;
  for (const meta of session.inputMetadata) if (meta.isTensor) console.log(meta.type, meta.shape);
  await session.run(feeds, ['y']);
  await session.run(feeds, { y: null }, { tag: 'a' });
  await session.release();
  return data.indexOf(Math.max(...data));
}

const floats: Float32Array = new Tensor('float32', [1, 2], [2]).data;
const ids: BigInt64Array = new Tensor('int64', [1, 2n] as (number | bigint)[] as bigint[]).data;
const names: string[] = new Tensor(['a', 'b']).data;
const flags: Uint8Array = new Tensor([true, false], [2]).data;

// Values of ours where those of onnxruntime-common are asked for.
declare const session: InferenceSession;
const theirs: common.TypedTensor<'float32'> = new Tensor('float32', [1]);
const any: common.Tensor = new Tensor('int64', [1n]);
const metadata: readonly common.InferenceSession.ValueMetadata[] = session.inputMetadata;
const asSession: Pick<common.InferenceSession, 'run' | 'release' | 'inputNames' | 'outputNames' | 'outputMetadata' | 'startProfiling'> = session;
const options: InferenceSession.SessionOptions = {} as common.InferenceSession.SessionOptions;
const run: InferenceSession.RunOptions = {} as common.InferenceSession.RunOptions;
registerBackend('onnxlet', backend, 10);
const url: URL = new URL('https://example.com/model.onnx');
void InferenceSession.create(url, { progress: ({ stage, done, total }) => console.log(stage, done / (total ?? 1)) });
void InferenceSession.create(new ArrayBuffer(8), 2, 4, { signal: AbortSignal.timeout(1) });
env.worker = false;
void session.run({}).catch((error: unknown) => (error instanceof OnnxletError ? error.code === 'EP_FAIL' : false));
void InferenceSession.create('a', { executionProviders: [{ name: 'webgpu', preferredLayout: 'NHWC' }, 'wasm'] });

// @ts-expect-error: there is no such type
new Tensor('float', [1]);
// @ts-expect-error: a tensor is asked for
void session.run({ x: [1, 2] });
// @ts-expect-error: no such level
void InferenceSession.create('a', { graphOptimizationLevel: 'most' });
