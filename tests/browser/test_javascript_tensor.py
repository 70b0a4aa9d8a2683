"""`Tensor` in JavaScript, beside the one of npm's onnxruntime-common, whose shape it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page

from provision import javascript
from provision.console import SetupError
from tests.browser.harness import Chromium
from tests.conftest import missing


@pytest.fixture(scope="module")
def common(chromium: Chromium) -> str:
    """The address of onnxruntime-common's module."""
    try:
        folder = javascript.packages() / "node_modules" / "onnxruntime-common" / "dist" / "esm"
    except SetupError:
        missing("onnxruntime-common from npm")
    for path in folder.glob("*.js"):
        chromium.blobs.contents[f"common/{path.name}"] = path
    return "/blobs/common/index.js"


def evaluate(chromium: Chromium, script: str, argument: Any = None, **options: Any) -> Any:
    """Run the body of an asynchronous function; `ours` is onnxlet's module, `a` the argument."""
    whole = f"async (a) => {{ const ours = await import('/onnxlet/onnxlet.mjs'); {script} }}"

    async def run(page: Page) -> Any:
        return await page.evaluate(whole, argument)

    return chromium.visit("/site.json", run, **options)


def test_constructors(chromium: Chromium, common: str) -> None:
    """Each overload gives the same type, data, dimensions and size, and what one refuses the other refuses too."""
    given = evaluate(
        chromium,
        """
        const theirs = await import(a);
        const calls = {
          list: ['float32', [1, 2.5, -3], [3]], scalar: ['float32', [7], []], empty: ['float32', [], [0, 4]],
          big: ['int64', [1n, -2n, 2n ** 53n + 1n]], small: ['int64', [1, -2]], unsigned: ['uint64', [1n, 2]],
          bool: ['bool', [true, false]], bytes: ['bool', new Uint8Array([1, 0])], text: ['string', ['ä', ''], [2, 1]],
          clamped: ['uint8', new Uint8ClampedArray([1, 2])], clampedAlone: [new Uint8ClampedArray([1, 2]), [1, 2]],
          bits: ['float16', new Uint16Array([0x3c00, 0x7e00])], halves: ['float16', new Float16Array([1, 0.1])],
          halfList: ['float16', [1, 0.1]], halvesAlone: [new Float16Array([1])], shorts: [new Uint16Array([1, 2])],
          nibbles: ['uint4', new Uint8Array([0x21, 3]), [3]], nibblesEven: ['int4', new Uint8Array([0x21]), [2]],
          strings: [['a', 'b']], booleans: [[true, false, true], [3]], noDims: [new Int32Array(4)],
          ...Object.fromEntries(
            [Float32Array, Float64Array, Int8Array, Uint8Array, Int16Array, Int32Array, Uint32Array, BigInt64Array,
             BigUint64Array].map((Kind) => [Kind.name, [new Kind(6), [2, 3]]])),
          wrongType: ['float', [1]], wrongArray: ['float32', new Float64Array(1)], wrongSize: ['float32', [1, 2], [3]],
          wrongDims: ['float32', [1], 1], fraction: ['float32', [1], [1.5]], negative: ['float32', [1], [-1]],
          nothing: [[]], numbers: [[1, 2]], textList: ['string', 'a'], nibbleList: ['uint4', [1, 2], [2]],
          clampedWrong: ['int8', new Uint8ClampedArray(1)], location: [{location: 'moon', type: 'float32', dims: []}],
        };
        const described = ({Tensor}, call) => {
          try {
            const t = new Tensor(...call);
            return [t.type, t.dims, t.size, t.location, t.data.constructor.name, [...t.data].map(String)];
          } catch (error) {
            return error.constructor.name === 'OnnxletError' ? 'Error' : error.name;
          }
        };
        return Object.entries(calls).map(([name, call]) => [name, described(ours, call), described(theirs, call)]);
        """,
        common,
    )
    for name, ours, theirs in given:
        # A size that does not fit is a RangeError: an Error, as theirs, but one that says more.
        assert ours == theirs or (name == "wrongSize" and (ours, theirs) == ("RangeError", "Error")), name
    assert sum(isinstance(ours, list) for _, ours, _ in given) == 30


def test_data_are_not_copied(chromium: Chromium) -> None:
    given = evaluate(
        chromium,
        """
        const data = new Float32Array(6), tensor = new ours.Tensor('float32', data, [2, 3]);
        const other = tensor.reshape([3, 2]);
        const same = [tensor.data === data, (await tensor.getData()) === data, other.data === data];
        let refused = null;
        try { tensor.reshape([4]); } catch (error) { refused = error.name; }
        const proxied = new Proxy(tensor, {});
        const seen = [proxied.data === data, proxied.location, proxied.reshape([6]).size];
        tensor.dispose();
        let gone = null;
        try { tensor.data; } catch (error) { gone = error.message; }
        return {same, dims: other.dims, refused, seen, location: tensor.location, gone};
        """,
    )
    assert given["same"] == [True, True, True]
    assert given["dims"] == [3, 2]
    assert given["refused"] == "RangeError"
    assert given["seen"] == [True, "cpu", 6]
    assert given["location"] == "none"
    assert "disposed" in given["gone"]


def test_what_is_not_supported_says_so(chromium: Chromium) -> None:
    given = evaluate(
        chromium,
        """
        const {Tensor} = ours;
        const attempts = [
          () => Tensor.fromPinnedBuffer('float32', new Float32Array(1)), () => Tensor.fromTexture({}, {}),
          () => Tensor.fromMLTensor({}, {}), () => new Tensor('float32', [1]).texture,
          () => new Tensor('float32', [1]).mlTensor,
        ];
        return attempts.map((attempt) => {
          try { attempt(); } catch ({name, code, message}) { return [name, code, message]; }
        });
        """,
    )
    assert [row[:2] for row in given] == [["UnsupportedError", "NOT_IMPLEMENTED"]] * 5
    assert "pinned" in given[0][2]


IMAGES = """
const theirs = await import(a.common);
const image = new ImageData(Uint8ClampedArray.from(a.pixels), a.width, a.height);
"""


def test_images(chromium: Chromium, common: str) -> None:
    """From the same pixels come the same elements, and from the same elements the same pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 4), np.uint8)
    pixels[..., 3] = 255
    given = evaluate(
        chromium,
        IMAGES
        + """
        const options = [
          undefined, {}, {tensorFormat: 'BGR'}, {tensorFormat: 'RGBA'}, {tensorFormat: 'RBG'},
          {norm: {mean: 127.5, bias: -127.5}},
          {norm: {mean: [58.4, 57.1, 57.4], bias: [-123.7, -116.3, -103.5]}, tensorFormat: 'BGR'},
        ];
        const answer = {from: [], to: []};
        for (const o of options) {
          const mine = await ours.Tensor.fromImage(image, o && {...o});
          const other = await theirs.Tensor.fromImage(image, o && {...o});
          answer.from.push([mine.dims, [...mine.data], other.dims, [...other.data]]);
        }
        const norms = [{mean: 128, bias: 1}, {mean: [255, 200, 100], bias: [0, 0.1, 0]}];
        for (const o of [undefined, {format: 'RGB'}, ...norms.map((norm) => ({norm, format: 'RGB'}))]) {
          const data = Float32Array.from(a.planes);
          const mine = new ours.Tensor('float32', data, [1, 3, a.height, a.width]).toImageData(o);
          const other = new theirs.Tensor('float32', data, [1, 3, a.height, a.width]).toImageData(o);
          answer.to.push([mine.width, mine.height, [...mine.data], [...other.data]]);
        }
        const again = (await ours.Tensor.fromImage(image)).toImageData();
        answer.again = [...again.data];
        return answer;
        """,
        {
            "common": common,
            "pixels": pixels.ravel().tolist(),
            "width": 7,
            "height": 5,
            "planes": np.linspace(-0.5, 1.5, 105).tolist(),
        },
    )
    for dims, data, their_dims, theirs in given["from"]:
        assert dims == their_dims
        np.testing.assert_allclose(data, theirs, rtol=1e-6)
    for width, height, data, theirs in given["to"]:
        assert (width, height) == (7, 5)
        np.testing.assert_array_equal(data, theirs)
    np.testing.assert_array_equal(given["again"], pixels.ravel())


def test_images_of_all_kinds(chromium: Chromium) -> None:
    """Elements, a bitmap, a canvas and addresses hold the same pixels; sizes, layouts, types, greys."""
    pixels = np.random.default_rng(1).integers(0, 256, (4, 6, 4), np.uint8)
    pixels[..., 3] = 255
    given = evaluate(
        chromium,
        """
        const image = new ImageData(Uint8ClampedArray.from(a), 6, 4);
        const canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [6, 4];
        canvas.getContext('2d').putImageData(image, 0, 0);
        const element = new Image();
        element.src = canvas.toDataURL();
        const blob = await new Promise((resolve) => canvas.toBlob(resolve));
        const sources = [image, canvas, element, element.src, URL.createObjectURL(blob), await createImageBitmap(blob)];
        const kinds = [];
        for (const source of sources) kinds.push([...(await ours.Tensor.fromImage(source, {dataType: 'uint8'})).data]);
        const floats = await ours.Tensor.fromImage(image, {tensorLayout: 'NHWC', tensorFormat: 'RGBA'});
        const plain = new Image();
        plain.src = new ours.Tensor('float32', new Float32Array(2 * 3 * 3).fill(0.5), [1, 3, 2, 3]).toDataURL();
        await plain.decode();
        const half = (await ours.Tensor.fromImage(plain, {dataType: 'uint8'})).data;
        const flat = new ImageData(8, 8);
        flat.data.fill(255);
        const resized = await ours.Tensor.fromImage(flat, {resizedWidth: 3, resizedHeight: 2});
        const grey = new ours.Tensor('float32', [0, 1, 0.2, 0.4], [1, 1, 2, 2]).toImageData();
        const wrong = await ours.Tensor.fromImage(7).catch((error) => error.name);
        const refused = [[1, 2, 3], [1, 3, 2, 2]].map((dims, i) => {
          const tensor = new ours.Tensor('float32', new Float32Array(dims.reduce((x, y) => x * y)), dims);
          try { tensor.toImageData(i ? {format: 'RGBA'} : {}); } catch (error) { return error.name; }
        });
        return {
          kinds, floats: [floats.dims, [...floats.data]],
          back: [...floats.toImageData({tensorLayout: 'NHWC', format: 'RGBA'}).data],
          half: [...half], resized: [resized.dims, [...resized.data]], grey: [...grey.data], wrong, refused,
        };
        """,
        pixels.ravel().tolist(),
    )
    planes = pixels[..., :3].transpose(2, 0, 1).ravel()
    for kind in given["kinds"]:
        np.testing.assert_array_equal(kind, planes)
    assert given["floats"][0] == [1, 4, 6, 4]
    np.testing.assert_allclose(given["floats"][1], pixels.ravel() / np.float32(255), rtol=1e-6)
    np.testing.assert_array_equal(given["back"], pixels.ravel())
    assert set(given["half"]) == {128}
    assert given["resized"] == [[1, 3, 2, 3], [1.0] * 18]
    assert given["grey"] == [0, 0, 0, 255, 255, 255, 255, 255, 51, 51, 51, 255, 102, 102, 102, 255]
    assert given["wrong"] == "TypeError"
    assert given["refused"] == ["TypeError", "TypeError"]
