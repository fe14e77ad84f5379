"""Models whose results are lies: each is an error that names the file, and no index is taken from one unseen."""

import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from task_specs import LANGUAGE_MODEL, write_task
from tiny_engine import copy_model, make_engine, train_tokenizer

from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.interfaces import RESULTS, SAMPLING_OPTIONS, SEARCH, Interface, interface
from xformc.format.search_options import EDITS
from xformc.runtime import Engine, load
from xformc.runtime.whole import whole_session

Arrays = Mapping[str, NDArray[Any]]
IDS, NUMBERS = np.int64, np.float32
FLOATS = ("length_penalty", "max_length_factor", "temperature", "top_p", "frames")
"""The inputs that are float32; `_mask` is bool, and all others are int64."""


def liar(face: Interface, outputs: Arrays, folder: Path) -> onnx.ModelProto:
    """Write a model that takes the interface's inputs and always gives these outputs."""
    kinds = {name: TensorProto.FLOAT if name in FLOATS else TensorProto.INT64 for name in face.inputs}
    kinds |= {option.name: TensorProto.FLOAT for option in EDITS if option.dtype == "float32" and option.name in kinds}
    kinds |= {name: TensorProto.BOOL for name in face.inputs if name.endswith("_mask")}
    constants = [numpy_helper.from_array(array, f"{name}_constant") for name, array in outputs.items()]
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in outputs.items()}
    graph = helper.make_graph(
        [helper.make_node("Identity", [f"{name}_constant"], [name]) for name in outputs],
        "liar",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    return model


def with_liar(engine: Engine, face: Interface, outputs: Arrays, folder: Path) -> Engine:
    """The engine with another model, which gives these outputs."""
    liar(face, outputs, folder)
    return replace(engine, session=whole_session(folder, face, threads=1))


SEARCHED: Arrays = {
    "tokens": np.full((2, 1, 3), 4, IDS),
    "lengths": np.full((2, 1), 3, IDS),
    "scores": np.full((2, 1), -1, NUMBERS),
}
"""What a search of two sentences may give."""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": np.full((1, 1, 3), 4, IDS)}, r"tokens is int64 \[1, 1, 3\]; this call needs int64 \[2, 1, at most"),
        ({"tokens": np.full((3, 1, 3), 4, IDS)}, r"tokens is int64 \[3, 1, 3\]"),
        ({"tokens": np.full((2, 0, 3), 4, IDS)}, r"tokens is int64 \[2, 0, 3\]"),
        ({"tokens": np.full((2, 3), 4, IDS)}, r"tokens is int64 \[2, 3\]"),
        ({"tokens": np.array(4, IDS)}, r"tokens is int64 \[\]"),
        ({"tokens": np.full((2, 1, 3), 4, NUMBERS)}, "tokens is float32"),
        ({"tokens": np.full((2, 1, 3), "x")}, "tokens is object"),
        ({"tokens": np.full((2, 1, 1000), 4, IDS)}, r"tokens is int64 \[2, 1, 1000\]; this call needs .* at most"),
        ({"tokens": np.full((2, 1, 3), -7, IDS)}, "tokens has -7, not from 0 to"),
        ({"tokens": np.full((2, 1, 3), 2**40, IDS)}, "tokens has 1099511627776, not from 0 to"),
        ({"lengths": np.full((2, 2), 3, IDS)}, r"lengths is int64 \[2, 2\]"),
        ({"lengths": np.full((2, 1), -1, IDS)}, "lengths has -1, not from 0 to"),
        ({"lengths": np.full((2, 1), 2**62, IDS)}, "lengths has 4611686018427387904, not from 0 to"),
        ({"lengths": np.full((2, 1), 3, np.int32)}, r"lengths is int32 \[2, 1\]"),
        ({"scores": np.full(2, -1, NUMBERS)}, r"scores is float32 \[2\]"),
        ({"scores": np.full((2, 1), -1, np.float64)}, "scores is float64"),
        ({"scores": np.full((2, 1), np.nan, NUMBERS)}, "scores has NaN"),
    ],
)
def test_a_search_that_lies_is_an_error(engine: Engine, changed: Arrays, message: str, tmp_path: Path) -> None:
    texts = ["hello world", "twenty-one"]
    honest = with_liar(engine, SEARCH, SEARCHED, tmp_path)
    assert len(honest.translate(texts)) == 2
    hostile = with_liar(engine, SEARCH, {**SEARCHED, **changed}, tmp_path)
    for call in (lambda: hostile.translate(texts), lambda: hostile.search([[5, 6, 3], [7, 3, 0]])):
        with pytest.raises(UserError, match=message) as caught:
            call()
        assert caught.value.place == str(tmp_path / "model.onnx")
        assert caught.value.hint


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("language_model")
    train_tokenizer(folder / "tokenizer.model")
    (folder / "spec.yaml").write_text(LANGUAGE_MODEL, encoding="utf-8")
    build_engine(
        load_spec(folder / "spec.yaml"), None, {"text": folder / "tokenizer.model"}, "portable", folder / "engine"
    )
    return load(folder / "engine", threads=1)


SAMPLING = Interface((*SAMPLING_OPTIONS, *(option.name for option in EDITS)), RESULTS)
CONTINUED: Arrays = {"tokens": np.full((2, 3), 4, IDS), "lengths": np.full(2, 3, IDS), "scores": np.zeros(2, NUMBERS)}
"""What may continue two prompts."""


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": np.full((1, 3), 4, IDS)}, r"tokens is int64 \[1, 3\]; this call needs int64 \[2, at most 5\]"),
        ({"tokens": np.full((2, 6), 4, IDS)}, r"tokens is int64 \[2, 6\]"),
        ({"tokens": np.full((2, 3), 2**31, IDS)}, "tokens has 2147483648, not from 0 to"),
        ({"lengths": np.full(1, 3, IDS)}, r"lengths is int64 \[1\]"),
        ({"lengths": np.full(2, -3, IDS)}, "lengths has -3, not from 0 to 5"),
        ({"scores": np.zeros((2, 2), NUMBERS)}, r"scores is float32 \[2, 2\]"),
    ],
)
def test_a_continuation_that_lies_is_an_error(
    language_model: Engine, changed: Arrays, message: str, tmp_path: Path
) -> None:
    assert len(with_liar(language_model, SAMPLING, CONTINUED, tmp_path).generate(["a", "b"], max_new_tokens=5)) == 2
    hostile = with_liar(language_model, SAMPLING, {**CONTINUED, **changed}, tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        hostile.generate(["a", "b"], max_new_tokens=5)
    assert caught.value.place == str(tmp_path / "model.onnx")


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("frames")
    build_engine(write_task(folder, "frames"), None, None, "portable", folder / "engine")
    return load(folder / "engine", threads=1)


def test_labels_that_lie_are_an_error(frames: Engine, tmp_path: Path) -> None:
    labels = frames.manifest.labels
    assert labels is not None
    face = interface(frames.manifest.inputs, frames.manifest.results, frames.manifest.decoding)
    arrays = {"frames": np.zeros((2, 4, 6), NUMBERS), "frames_lengths": np.array([4, 3])}
    right = frames.session.run({"frames": arrays["frames"], "frames_mask": np.ones((2, 4), np.bool_)})[0].shape
    assert len(with_liar(frames, face, {"probabilities": np.zeros(right, NUMBERS)}, tmp_path).predict(arrays)) == 2
    for wrong in ((1, *right[1:]), (3, *right[1:]), (*right[:-1], len(labels) + 1), right[1:], (*right, 1)):
        hostile = with_liar(frames, face, {"probabilities": np.ones(wrong, NUMBERS)}, tmp_path)
        with pytest.raises(UserError, match="the output probabilities is float32") as caught:
            hostile.predict(arrays)
        assert caught.value.place == str(tmp_path / "model.onnx")


def growing_model() -> onnx.ModelProto:
    """The model that copies, but for a loop without end that comes first, in which an array doubles."""
    model = copy_model()
    tokens = next(node for node in model.graph.node if node.output[0] == "tokens")
    tokens.output[0] = "copied"
    flags = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go", "go_on")]
    arrays = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("grown", "twice")]
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Concat", ["grown"] * 2, ["twice"], axis=0)],
        "body",
        [helper.make_tensor_value_info("round", TensorProto.INT64, []), flags[0], arrays[0]],
        [flags[1], arrays[1]],
    )
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.array(True), "always"), numpy_helper.from_array(np.zeros(2**16, IDS), "seeds")]
    )
    model.graph.node.extend(
        [
            helper.make_node("Loop", ["", "always", "seeds"], ["huge"], body=body),
            helper.make_node("ReduceMax", ["huge"], ["nothing"], keepdims=0),
            helper.make_node("Add", ["copied", "nothing"], ["tokens"]),
        ]
    )
    return model


def test_a_model_that_wants_more_memory_than_there_is_ends_with_an_error(tmp_path: Path) -> None:
    """The limit on memory is the caller's: `ulimit -v`, or a container's. The process lives on."""
    engine, most = make_engine(tmp_path / "engine", growing_model()), 3 << 30
    command = [sys.executable, "-m", "xformc", "translate", str(engine), "--threads", "1"]
    done = subprocess.run(
        command,
        input="hello world\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "the model failed on this input" in done.stderr
    assert "Traceback" not in done.stderr
