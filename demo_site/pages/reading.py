"""Reads text in an image with PP-OCRv4: where lines are, which way up, what they say. Runs in the page, in Pyodide.

What goes into the models is what they were trained with (PaddleOCR): blue, green and red from -1 to 1.
"""

import json
import time

import boxes
import numpy as np

from onnxlet import InferenceSession

LONGEST = 960
"""Pixels of the longer side of what is searched for lines."""
HEIGHT = 48
"""Rows of a line that is read."""
BATCH = 6
"""Lines that are read at a time."""
STEP = 32
"""Widths are multiples of this, so that few different shapes come up, and plans are found again."""
SURE = 0.5
"""Mean probability from which on a line is shown."""
TURNED = 0.9
"""Probability from which on a line is taken to be upside down."""
DOUBTFUL = 0.8
"""Mean probability below which a line is read the other way up too."""
CLS_WIDTH = 192

state = {}


async def load(address, providers, progress):
    """Load the three models from `address`; `providers` is a list of names, the preferred one first."""
    made = {}
    for name in ("detect", "turn", "recognise"):
        made[name] = await InferenceSession.create(
            f"{address}{name}.onnx", providers=list(providers), progress=progress
        )
    return json.dumps(start(made))


def start(sessions):
    """Keep sessions for `read`, by the names of their models; earlier ones are closed."""
    for session in state.get("sessions", {}).values():
        session.close()
    letters = sessions["recognise"].get_modelmeta().custom_metadata_map["character"].splitlines()
    state.update(sessions=sessions, letters=["", *letters, " "])
    return {"providers": sessions["recognise"].get_providers()}


async def read(pixels, width, height, progress):
    """The lines of text in an image, from its pixels as a canvas has them (red, green, blue, opacity)."""
    image = on_white(np.frombuffer(pixels.to_py(), np.uint8).reshape(height, width, 4))
    return json.dumps(await lines(image, progress))


async def lines(image, progress=None):
    """What `read` tells, for an image (rows, columns, 3) of red, green and blue in 0 to 255."""
    spent = {}
    start = time.perf_counter()
    found, _ = await detect(image)
    spent["find"] = time.perf_counter() - start
    crops = [cut(image, box) for box in found]
    start = time.perf_counter()
    turned = await upside_down(crops)
    crops = [crop[::-1, ::-1] if turn else crop for crop, turn in zip(crops, turned, strict=True)]
    texts = await recognise(crops, progress)
    doubtful = [i for i, (_, probability) in enumerate(texts) if probability < DOUBTFUL]
    others = await recognise([crops[i][::-1, ::-1] for i in doubtful])
    for i, other in zip(doubtful, others, strict=True):
        texts[i] = max(texts[i], other, key=lambda text: text[1])
    spent["read"] = time.perf_counter() - start
    return {
        "lines": [
            {"text": text, "probability": probability, "box": box.tolist()}
            for box, (text, probability) in zip(found, texts, strict=True)
            if probability >= SURE
        ],
        "milliseconds": {name: seconds * 1e3 for name, seconds in spent.items()},
        "explain": state["sessions"]["recognise" if crops else "detect"].explain().to_dict(),
    }


def on_white(pixels):
    """Red, green and blue of pixels with an opacity, on white paper."""
    opacity = pixels[..., 3:].astype(np.float32) / 255
    return (pixels[..., :3] * opacity + 255 * (1 - opacity)).astype(np.float32)


async def detect(image):
    """Boxes of lines in the image's pixels, in reading order, and their scores."""
    height, width = image.shape[:2]
    scale = min(1.0, LONGEST / max(height, width))
    rows, columns = (max(STEP, round(n * scale / STEP) * STEP) for n in (height, width))
    (likely,) = await run("detect", normal(resized(image, rows, columns))[np.newaxis])
    found, scores = boxes.find(likely[0, 0])
    found = [box * [width / columns, height / rows] for box in found]
    order = boxes.reading_order(found)
    return [found[i] for i in order], [scores[i] for i in order]


async def upside_down(crops):
    """For each line whether it has to be turned around."""
    found = []
    for start in range(0, len(crops), BATCH):
        group = [strip(crop, CLS_WIDTH) for crop in crops[start : start + BATCH]]
        (scores,) = await run("turn", padded(group))
        found += (scores[: len(group), 1] > TURNED).tolist()
    return found


async def recognise(crops, progress=None):
    """The text of each line, and the mean probability of its letters."""
    order = sorted(range(len(crops)), key=lambda i: crops[i].shape[1] / crops[i].shape[0])
    texts = [("", 0.0)] * len(crops)
    for start in range(0, len(order), BATCH):
        group = order[start : start + BATCH]
        widest = max(crops[i].shape[1] / crops[i].shape[0] for i in group) * HEIGHT
        width = max(STEP * 10, -(-int(widest) // STEP) * STEP)
        (scores,) = await run("recognise", padded([strip(crops[i], width) for i in group]))
        for i, row in zip(group, scores, strict=False):
            texts[i] = spell(row)
        if progress is not None:
            progress("reading", min(start + BATCH, len(order)), len(order))
    return texts


async def run(name, tensor):
    session = state["sessions"][name]
    return await session.run_async(None, {session.get_inputs()[0].name: tensor})


def padded(strips):
    """A whole batch, so that its shape is always the same: what is missing is empty."""
    batch = np.zeros((BATCH, *strips[0].shape), np.float32)
    batch[: len(strips)] = strips
    return batch


def spell(scores):
    """The best letter at each step, repeated ones once, without the blank between them (Graves et al., "Connectionist
    Temporal Classification", 2006); and the mean of their probabilities."""
    best = scores.argmax(1)
    kept = (best != 0) & np.r_[True, best[1:] != best[:-1]]
    if not kept.any():
        return "", 0.0
    return "".join(state["letters"][i] for i in best[kept]), float(scores.max(1)[kept].mean())


def normal(image):
    """(rows, columns, 3) in 0 to 255 to (3, rows, columns) in -1 to 1, blue first."""
    return np.ascontiguousarray((image[..., ::-1] / 127.5 - 1).transpose(2, 0, 1), np.float32)


def strip(crop, width):
    """A line as the models read it: (3, HEIGHT, width), scaled to the height; what is to its right is empty."""
    fits = min(width, max(1, round(crop.shape[1] / crop.shape[0] * HEIGHT)))
    found = np.zeros((3, HEIGHT, width), np.float32)
    found[:, :, :fits] = normal(resized(crop, HEIGHT, fits))
    return found


def cut(image, box):
    """The pixels of a box, upright: its own rows and columns; a box taller than a line is taken to lie on its side."""
    width, height = (max(1, round(side)) for side in boxes.sides(box))
    across = (np.arange(width) + 0.5) / width
    down = (np.arange(height) + 0.5) / height
    points = box[0] + across[:, np.newaxis] * (box[1] - box[0]) + down[:, np.newaxis, np.newaxis] * (box[3] - box[0])
    found = sampled(image, points[..., 1] - 0.5, points[..., 0] - 0.5)
    return np.rot90(found) if height >= 1.5 * width else found


def resized(image, rows, columns):
    """The image at another size: the mean of pixels that fall together, and between neighbours where it grows."""
    for axis, size in ((0, rows), (1, columns)):
        old = image.shape[axis]
        if size < old:
            edges = np.linspace(0, old, size + 1)
            sums = np.concatenate([np.zeros_like(image.take([0], axis)), np.cumsum(image, axis, np.float64)], axis)
            whole = np.minimum(edges.astype(int), old - 1)
            part = (edges - whole).reshape([-1 if a == axis else 1 for a in range(3)])
            upto = sums.take(whole, axis) + image.take(whole, axis) * part
            image = (np.diff(upto, axis=axis) * (size / old)).astype(np.float32)
        elif size > old:
            at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
            low = np.minimum(at.astype(int), max(old - 2, 0))
            part = (at - low).reshape([-1 if a == axis else 1 for a in range(3)]).astype(np.float32)
            image = image.take(low, axis) * (1 - part) + image.take(np.minimum(low + 1, old - 1), axis) * part
    return image


def sampled(image, y, x):
    """Pixels between others: the mean of the four around, weighted by distance; outside, the nearest on the edge."""
    height, width = image.shape[:2]
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    top, left = np.minimum(y.astype(int), max(height - 2, 0)), np.minimum(x.astype(int), max(width - 2, 0))
    down, right = (y - top)[..., np.newaxis], (x - left)[..., np.newaxis]
    bottom, far = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    upper = image[top, left] * (1 - right) + image[top, far] * right
    lower = image[bottom, left] * (1 - right) + image[bottom, far] * right
    return (upper * (1 - down) + lower * down).astype(np.float32)
