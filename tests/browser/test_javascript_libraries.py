"""Other people's JavaScript on onnxlet: onnxruntime-common's backends, and transformers.js's pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from playwright.async_api import Page

from provision import javascript, peers
from provision.console import SetupError
from tests.browser.harness import Chromium
from tests.browser.transformer_models import folders
from tests.conftest import missing
from tests.core.models import model, node
from tests.pretrained import MODELS
from tests.readme import ADDRESS, block


@pytest.fixture(scope="module")
def libraries(chromium: Chromium) -> None:
    """onnxruntime-common, transformers.js, its own runtime and models for it, under ``/blobs/``."""
    contents = chromium.blobs.contents
    try:
        common = javascript.packages() / "node_modules" / "onnxruntime-common" / "dist" / "esm"
        transformers, runtime = javascript.transformers(), peers.onnxruntime_web(webgpu=True)
    except SetupError:
        missing("JavaScript packages from npm")
    contents.update({f"common/{path.name}": path for path in common.glob("*.js")})
    contents.update({f"transformers/{path.name}": path for path in (transformers / "dist").glob("*.js")})
    contents.update({f"runtime/{path.name}": path for path in (runtime / "dist").iterdir()})
    contents.update({f"hub/{name}": content for name, content in folders().items()})


def evaluate(chromium: Chromium, script: str, argument: Any = None) -> Any:
    async def run(page: Page) -> Any:
        return await page.evaluate(f"async (a) => {{ {script} }}", argument)

    return chromium.visit("/site.json", run)


def test_a_backend_of_onnxruntime_common(chromium: Chromium, libraries: None) -> None:
    """Its sessions run here, with tensors of its own kind, under a name of ours or in the place of its backends."""
    made = model(
        [node("Add", ["x", "x"], ["y"]), node("Identity", ["s"], ["t"])],
        [("x", TensorProto.FLOAT, ["n"]), ("s", TensorProto.STRING, [1])],
        [("y", TensorProto.FLOAT, ["n"]), ("t", TensorProto.STRING, [1])],
    )
    given = evaluate(
        chromium,
        """
        const common = await import('/blobs/common/index.js');
        const {backend} = await import('/onnxlet/onnxlet.mjs');
        common.registerBackend('onnxlet', backend, 10);
        common.registerBackend('webgpu', backend, 5);
        const answers = [];
        for (const options of [undefined, {executionProviders: ['onnxlet']},
                               {executionProviders: ['webgpu', 'onnxlet'], preferredOutputLocation: 'gpu-buffer'}]) {
          const session = await common.InferenceSession.create(new Uint8Array(a), options);
          const feeds = {x: new common.Tensor(new Float32Array([1, 2])), s: new common.Tensor(['ä'])};
          const {y, t} = await session.run(feeds);
          const one = await session.run(feeds, ['t'], {tag: 'x'});
          const failed = await session.run({...feeds, x: new common.Tensor(new Int32Array(1))}).catch((e) => e.name);
          answers.push({
            own: y instanceof common.Tensor && t instanceof common.Tensor, y: [...y.data], t: t.data, failed,
            names: [session.inputNames, session.outputNames], metadata: session.inputMetadata, one: Object.keys(one),
          });
          session.startProfiling();
          session.endProfiling();
          await session.release();
        }
        return answers;
        """,
        list(made.SerializeToString()),
    )
    metadata = [
        {"name": "x", "isTensor": True, "type": "float32", "shape": ["n"]},
        {"name": "s", "isTensor": True, "type": "string", "shape": [1]},
    ]
    expected = {"own": True, "y": [2, 4], "t": ["ä"], "failed": "FeedError", "metadata": metadata, "one": ["t"]}
    assert given == [{**expected, "names": [["x", "s"], ["y", "t"]]}] * 3


PIPELINES = """
env.allowLocalModels = true;
env.allowRemoteModels = false;
env.localModelPath = '/blobs/hub/';
const device = a.device && {device: a.device};
const extract = await pipeline('feature-extraction', 'encoder', {dtype: 'fp32', ...device});
const texts = ['The little cat sees a fish', 'An old dog', 'the bird sings under the river'];
const features = [await extract(texts), await extract(texts, {pooling: 'mean', normalize: true})];
const generate = await pipeline('text-generation', 'decoder', {dtype: 'fp32', ...device});
const options = {max_new_tokens: 12, do_sample: false};
const answer = {
  features: features.map(({dims, data}) => [dims, [...data]]),
  text: await generate('the small cat likes', options),
  beams: await generate('a purple dog', {...options, repetition_penalty: 1.3}),
};
const {logits} = await generate.model(await generate.tokenizer('the warm river runs slow'));
answer.logits = [...logits.data];
await extract.dispose();
await generate.dispose();
"""

THEIRS = """
const {pipeline, env} = await import('/blobs/transformers/transformers.min.js');
const runtime = `${location.origin}/blobs/runtime/ort-wasm-simd-threaded.asyncify`;
env.backends.onnx.wasm.wasmPaths = {mjs: `${runtime}.mjs`, wasm: `${runtime}.wasm`};
env.backends.onnx.wasm.numThreads = 1;
"""

IMPORT_MAP = """
const map = document.createElement('script');
map.type = 'importmap';
const onnxlet = `${location.origin}/onnxlet/onnxlet.mjs`;
map.text = JSON.stringify({imports: {'onnxruntime-web/webgpu': onnxlet, 'onnxruntime-common': onnxlet}});
document.head.append(map);
const {pipeline, env} = await import('/blobs/transformers/transformers.web.min.js');
"""

WATCHED = """
const {InferenceSession} = await import('/onnxlet/onnxlet.mjs');
const run = InferenceSession.prototype.run, seen = new Set();
InferenceSession.prototype.run = async function (feeds, ...rest) {
  const results = await run.call(this, feeds, ...rest);
  for (const [kind, tensors] of [['feed', feeds], ['result', results]]) {
    for (const [name, {location}] of Object.entries(tensors)) seen.add(`${kind} ${name} ${location}`);
  }
  return results;
};
"""


def symbol_lines() -> str:
    """The two lines of the documentation that import transformers.js onto onnxlet."""
    lines = block("transformers.js", "js", "docs/javascript.md").replace(ADDRESS, "").splitlines()
    assert "device: 'auto'" in lines[2]
    return "\n".join(lines[:2]).replace("{ pipeline }", "{ pipeline, env }").replace("'/tr", "'/blobs/tr")


def test_pipelines_of_transformers_js(chromium: Chromium, libraries: None) -> None:
    """The same numbers and text as with its own runtime: by one line before the import, or by an import map."""
    expected = evaluate(chromium, THEIRS + PIPELINES + "return answer;", {})
    ways = {
        "symbol": evaluate(chromium, symbol_lines() + PIPELINES + "return answer;", {"device": "auto"}),
        "import map": evaluate(chromium, IMPORT_MAP + PIPELINES + "return answer;", {}),
        "webgpu": evaluate(
            chromium, WATCHED + IMPORT_MAP + PIPELINES + "return {...answer, seen: [...seen]};", {"device": "webgpu"}
        ),
    }
    assert len(expected["text"][0]["generated_text"].split()) > 8
    for name, given in ways.items():
        for (dims, data), (their_dims, theirs) in zip(given["features"], expected["features"], strict=True):
            assert dims == their_dims, name
            np.testing.assert_allclose(data, theirs, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(given["logits"], expected["logits"], atol=1e-4, err_msg=name)
        assert given["text"] == expected["text"], name
        assert given["beams"] == expected["beams"], name
    # The cache stays on the GPU from step to step; what the page looks at is read back.
    seen = set(ways["webgpu"]["seen"])
    assert {"feed past_key_values.0.key gpu-buffer", "result present.0.value gpu-buffer", "result logits cpu"} <= seen


EMBEDDINGS = """
env.allowLocalModels = true;
env.allowRemoteModels = false;
env.localModelPath = '/blobs/hub/';
const extract = await pipeline('feature-extraction', 'minilm', {dtype: 'fp32', ...a});
const texts = ['The little cat sees a fish under the warm river', 'an old dog likes the small purple bird'];
const {dims, data} = await extract(texts, {pooling: 'mean', normalize: true});
return [dims, [...data]];
"""


def test_a_pretrained_model_under_transformers_js(chromium: Chromium, libraries: None) -> None:
    """MiniLM with weights of 8 bits, whose words are those of the small encoder: embeddings as its own runtime's."""
    contents = chromium.blobs.contents
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        contents[f"hub/minilm/{name}"] = contents[f"hub/encoder/{name}"]
    contents["hub/minilm/onnx/model.onnx"] = MODELS["minilm_int8"].path()
    dims, data = evaluate(chromium, symbol_lines() + EMBEDDINGS, {"device": "auto"})
    their_dims, theirs = evaluate(chromium, THEIRS + EMBEDDINGS, {})
    assert dims == their_dims == [2, 384]
    # Activations are rounded to 8 bits on the way, and a sum that ends up on the other side of a step moves them.
    np.testing.assert_allclose(data, theirs, atol=0.01)
    cosines = (np.reshape(data, dims) * np.reshape(theirs, dims)).sum(1)
    assert cosines.min() > 0.999
