"""Inputs that lie along another one: checked, certified and predicted as arrays and as texts."""

from pathlib import Path

import numpy as np
import pytest

import xformc
from xformc.compiler.build import build_engine
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.arrays import read_rows
from xformc.runtime.engine import Engine
from xformc.runtime.predict import encode_example
from xformc.trainer.data.array_examples import encode_arrays
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.npz import Arrays
from xformc.trainer.data.text_examples import encode_texts, train_on
from xformc.trainer.data.text_files import Texts

SPEC = """\
task: classification
sizes: {d_model: 16, vocabulary: 40, segments: 6, features: 3, labels: 3}
inputs:
  text: {tokens: vocabulary}
  kinds: {tokens: segments, along: text}
  marks: {vectors: features, along: text}
model:
  kind: {from: kinds, do: [embedding: d_model]}
  mark: {from: marks, do: [linear: d_model]}
  states: {from: text, do: [{embedding: d_model}, {plus: kind}, {plus: mark}]}
  out: {from: states, do: [mean, {linear: labels}]}
"""
TEXTS = (
    SPEC.replace("  marks: {vectors: features, along: text}\n", "")
    .replace("  mark: {from: marks, do: [linear: d_model]}\n", "")
    .replace(", {plus: mark}", "")
    .replace("features: 3, ", "")
)
WORDS = "train: {tokenizer: {kind: word, shared: false}}\n"


def _spec(folder: Path, text: str) -> Spec:
    (folder / "model.yaml").write_text(text)
    return load_spec(folder / "model.yaml")


def _arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "text": np.array([[4, 5, 6, 3], [7, 3, 0, 0]]),
        "kinds": np.array([[4, 4, 5, 3], [5, 3, 0, 0]]),
        "marks": random.standard_normal((2, 4, 3)).astype(np.float32),
    }


def _replaced(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {**_arrays(), **arrays}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """An engine with two inputs along its text."""
    folder = tmp_path_factory.mktemp("aligned")
    assert build_engine(_spec(folder, SPEC), None, None, "portable", folder / "engine").passed
    return xformc.load(folder / "engine")


def test_its_graph_has_one_axis_of_positions(tmp_path: Path) -> None:
    graph = _spec(tmp_path, SPEC).graph()
    assert [(value.name, str(value.type)) for value in graph.inputs] == [
        ("text", "int64[batch, text]"),
        ("kinds", "int64[batch, text]"),
        ("marks", "float32[batch, text, features=3]"),
    ]


def test_an_engine_predicts_rows_of_any_length(engine: Engine) -> None:
    assert engine.manifest.inputs["kinds"].of == engine.manifest.inputs["marks"].of == "text"
    both = engine.predict(_arrays())
    alone = engine.predict({name: array[1:, :2] for name, array in _arrays().items()})
    np.testing.assert_allclose(both[1].probabilities, alone[0].probabilities, atol=1e-6)


ROWS = [
    ({"kinds": np.array([[4, 4, 5, 0], [5, 3, 0, 0]])}, "row 0 of kinds has 3 positions, and text has 4"),
    ({"kinds": np.array([[4, 4, 5, 4], [5, 3, 4, 0]])}, "row 1 of kinds has 3 positions, and text has 2"),
    ({"marks": np.zeros((2, 3, 3), np.float32)}, "row 0 of marks has 3 positions, and text has 4"),
]


@pytest.mark.parametrize(("arrays", "message"), ROWS, ids=[message for _, message in ROWS])
def test_arrays_of_other_lengths_are_refused(engine: Engine, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UserError) as error:
        read_rows(engine.manifest.inputs, _replaced(**arrays))
    assert error.value.message == message


TRAINED = [
    ({"kinds": np.array([[4, 4, 5, 0], [5, 3, 0, 0]])}, "'kinds' must have as many ids as 'text' has positions; row 0"),
    ({"marks": np.zeros((2, 3, 3), np.float32)}, "'marks' must cover all positions of 'text', found 3; row 0"),
]


@pytest.mark.parametrize(("arrays", "message"), TRAINED, ids=[message for _, message in TRAINED])
def test_training_arrays_of_other_lengths_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    schema = data_schema(_spec(tmp_path, SPEC))
    labels = {"labels": np.array([0, 1])}
    examples = encode_arrays(Arrays(_arrays() | labels, Path("a.npz"), ""), schema, ["a", "b", "c"])
    assert {name: len(column) for name, column in examples.inputs.items()} == {"text": 2, "kinds": 2, "marks": 2}
    with pytest.raises(UserError) as error:
        encode_arrays(Arrays(_replaced(**arrays) | labels, Path("a.npz"), ""), schema, ["a", "b", "c"])
    assert message in error.value.message


class _Words:
    """A tokenizer that knows no word."""

    def encode(self, name: str, text: str) -> list[int]:
        """Not for aligned texts."""
        raise AssertionError

    def encode_words(self, name: str, text: str) -> list[int]:
        return [1] * len(text.split())

    def after(self, name: str) -> list[int]:
        return [3]


def test_texts_need_one_word_each() -> None:
    inputs = {"text": Input("tokens", 9), "kinds": Input("tokens", 9, of="text")}

    def encode(*texts: str) -> dict[str, list[int]]:
        row = encode_example(3, texts, inputs=inputs, words=False, tokenizer=_Words(), truncate=False)  # pyright: ignore[reportArgumentType]
        return {name: array.tolist() for name, array in row.items()}

    assert encode("a b", "x y") == {"text": [1, 1, 3], "kinds": [1, 1, 3]}
    with pytest.raises(UserError) as error:
        encode("a b", "x")
    assert (error.value.message, error.value.place) == ("found 1 words of kinds for 2 of text", "line 3")


def test_texts_need_a_word_tokenizer(tmp_path: Path) -> None:
    assert _spec(tmp_path, TEXTS + WORDS).graph()
    with pytest.raises(SpecError) as error:
        _spec(tmp_path, TEXTS + "train: {tokenizer: {shared: false}}\n")
    assert error.value.message.startswith(
        "'kinds' has a token for each word of 'text', so train.tokenizer.kind must be"
    )


ERRORS = [
    ("along: text", "along: txt", "along must name an input of tokens or vectors, found 'txt'"),
    ("along: text", "along: kinds", "along must name an input of tokens or vectors, found 'kinds'"),
    ("vectors: features", "values: features", "marks cannot lie along another input: values have no positions"),
    ("{tokens: segments, along: text}", "{along: text}", "kinds needs exactly one of tokens, vectors, values, edges"),
]


@pytest.mark.parametrize(("old", "new", "message"), ERRORS, ids=[message for *_, message in ERRORS])
def test_a_wrong_input_has_a_message(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        _spec(tmp_path, SPEC.replace(old, new, 1))
    assert message in str(error.value)


def test_no_input_lies_along_what_is_written(tmp_path: Path) -> None:
    text = """\
sizes: {d_model: 16, vocabulary: 40, segments: 6}
inputs: {source: {tokens: vocabulary}, text: {tokens: vocabulary}, kinds: {tokens: segments, along: text}}
results: {text: {text: states}}
model: {states: {from: text, do: [embedding: vocabulary]}}
"""
    with pytest.raises(SpecError) as error:
        _spec(tmp_path, text).graph()
    assert "'kinds' cannot lie along 'text', which the model writes token by token" in str(error.value)


def test_positions_of_two_inputs_are_not_paired_silently(tmp_path: Path) -> None:
    text = SPEC.replace(", along: text", "")
    with pytest.raises(SpecError) as error:
        _spec(tmp_path, text).graph()
    (problem,) = error.value.problems
    assert problem.span.place.endswith("model.yaml:10:52")
    assert problem.message.startswith(
        "would match every position of states/embedding: float32[batch, text, d_model=16]"
    )
    assert problem.hint is not None and "along another one" in problem.hint


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_training_texts_need_one_word_each(tmp_path: Path, task: str) -> None:
    text = TEXTS.replace("classification", task) + WORDS
    spec = _spec(tmp_path, text.replace("[mean, {linear: labels}]", "[linear: labels]") if task == "tagging" else text)
    schema = data_schema(spec)
    assert schema.suffixes == ("tsv", "npz")
    labels = ["p q r", "r p"] if task == "tagging" else ["p", "q"]
    right = {"text": ["a b c", "b a"], "kinds": ["x y x", "y y"], "labels": labels}
    tokenizer = train_on(Texts(right, [1, 2], Path("a.tsv"), 0, ""), schema, spec.train.tokenizer)
    found = encode_texts(Texts(right, [1, 2], Path("a.tsv"), 0, ""), schema, tokenizer, ["p", "q", "r"])
    assert found.inputs["text"].lengths().tolist() == found.inputs["kinds"].lengths().tolist()
    wrong = Texts({**right, "kinds": ["x y x", "y"]}, [1, 2], Path("a.tsv"), 0, "")
    with pytest.raises(UserError) as error:
        encode_texts(wrong, schema, tokenizer, ["p", "q", "r"])
    assert (error.value.place, error.value.hint) == ("a.tsv:2", "write one word of kinds for each word of text")
