from __future__ import annotations

import asyncio
from difflib import SequenceMatcher

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

import onnxlet

LINES = [("onnxlet reads text in images", 36), ("Total 1,234.50 EUR", 28), ("No. 42 Main Street", 24)]


@pytest.fixture
def boxes(page_module):
    return page_module("boxes")


@pytest.fixture
def reading(page_module, pretrained):
    module = page_module("reading")
    sessions = {n: onnxlet.InferenceSession(pretrained("ocr") / f"{n}.onnx") for n in ("detect", "turn", "recognise")}
    module.start(sessions)
    yield module
    for session in sessions.values():
        session.close()


def page() -> Image.Image:
    image = Image.new("RGB", (640, 300), (250, 248, 240))
    draw = ImageDraw.Draw(image)
    for i, (text, size) in enumerate(LINES):
        draw.text((40, 40 + 80 * i), text, font=ImageFont.load_default(size), fill=(20, 20, 30))
    return image


def read(reading, image: Image.Image) -> list[dict]:
    return asyncio.run(reading.lines(np.asarray(image, np.float32)))["lines"]


def test_lines_are_found_and_read(reading):
    found = read(reading, page())
    assert [line["text"].replace(" ", "") for line in found] == [text.replace(" ", "") for text, _ in LINES]
    for i, line in enumerate(found):
        box = np.array(line["box"])
        # Where it was drawn: 40 from the left, 80 apart.
        assert abs(box[:, 0].min() - 40) < 8
        assert 40 + 80 * i - 6 < box[:, 1].min() < box[:, 1].max() < 40 + 80 * i + 50


@pytest.mark.parametrize("angle", [10, 90, 180])
def test_lines_that_lie_otherwise(reading, angle):
    found = read(reading, page().rotate(angle, expand=True, fillcolor=(250, 248, 240)))
    assert len(found) == 3
    ours = sorted(line["text"].replace(" ", "") for line in found)
    drawn = sorted(text.replace(" ", "") for text, _ in LINES)
    for one, other in zip(ours, drawn, strict=True):
        assert SequenceMatcher(None, one, other).ratio() > 0.85, (one, other)


def test_an_image_without_text_has_no_lines(reading):
    assert read(reading, Image.new("RGB", (200, 100), "white")) == []
    assert read(reading, Image.new("RGB", (3, 2), "black")) == []


def test_regions_join_at_corners(boxes):
    mask = np.array(
        [
            [1, 1, 0, 0, 0],
            [0, 0, 1, 0, 1],
            [0, 0, 0, 0, 1],
            [1, 0, 1, 0, 0],
            [1, 1, 1, 0, 0],
        ],
        bool,
    )
    found = sorted(sorted(map(tuple, r.tolist())) for r in boxes.regions(mask))
    assert found == [
        [(0, 0), (1, 0), (2, 1)],
        [(0, 3), (0, 4), (1, 4), (2, 3), (2, 4)],
        [(4, 1), (4, 2)],
    ]
    assert boxes.regions(np.zeros((2, 3), bool)) == []


def test_the_smallest_rectangle_of_a_turned_one(boxes):
    x, y = np.meshgrid(np.arange(120), np.arange(120))
    angle = 0.3
    u = (x - 60) * np.cos(angle) + (y - 60) * np.sin(angle)
    v = -(x - 60) * np.sin(angle) + (y - 60) * np.cos(angle)
    inside = (abs(u) < 40) & (abs(v) < 10)
    box = boxes.smallest_rectangle(np.argwhere(inside)[:, ::-1])
    long, short = sorted(boxes.sides(box))[::-1]
    assert long == pytest.approx(80, abs=2.5)
    assert short == pytest.approx(20, abs=2.5)
    top_left, top_right, *_ = boxes.in_order(box)
    slope = np.arctan2(*(top_right - top_left)[::-1])
    assert slope == pytest.approx(angle, abs=0.05)


def test_one_pixel_is_a_square(boxes):
    assert sorted(boxes.sides(boxes.smallest_rectangle(np.array([[3, 5]])))) == [1, 1]


def test_boxes_grow_by_area_over_circumference(boxes):
    box = np.array([[0, 0], [10, 0], [10, 4], [0, 4]], float)
    distance = 40 * 1.6 / 28
    low, high = [-distance, -distance], [10 + distance, 4 + distance]
    np.testing.assert_allclose(boxes.grown(box)[[0, 2]], [low, high])


def test_reading_order(boxes):
    def at(x, y):
        return np.array([[x, y], [x + 30, y], [x + 30, y + 10], [x, y + 10]], float)

    assert boxes.reading_order([at(50, 1), at(0, 20), at(0, 0), at(90, 2)]) == [2, 0, 3, 1]


def test_sizes(reading):
    image = np.arange(16, dtype=np.float32).reshape(4, 4, 1)
    np.testing.assert_allclose(reading.resized(image, 2, 2)[..., 0], [[2.5, 4.5], [10.5, 12.5]])
    # Three from four: each covers one and a third of the old ones.
    np.testing.assert_allclose(reading.resized(image[:1], 1, 3)[0, :, 0], [0.25, 1.5, 2.75], atol=1e-6)
    np.testing.assert_allclose(reading.resized(image[:1, :2], 1, 4)[0, :, 0], [0, 0.25, 0.75, 1])


def test_letters_are_spelled_without_blanks_and_repeats(reading):
    reading.state["letters"] = ["", "a", "b", " "]
    scores = np.eye(4, dtype=np.float32)[[1, 1, 0, 1, 2, 2, 3, 0]]
    assert reading.spell(scores) == ("aab ", 1.0)
    assert reading.spell(np.eye(4, dtype=np.float32)[[0, 0]]) == ("", 0.0)
