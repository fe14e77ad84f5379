"""Predictions of engines built from small specs: texts and arrays in, labels with probabilities out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from task_specs import write_task
from tiny_engine import SENTENCES

from xformc.compiler.build import build_engine
from xformc.errors import UserError
from xformc.format.results import Result
from xformc.runtime import Engine, load
from xformc.runtime.kinds.kind import kind_of
from xformc.runtime.session import Session


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SentencePiece model of which a piece is a word."""
    path = tmp_path_factory.mktemp("words") / "tokenizer.model"
    with path.open("wb") as handle:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(SENTENCES), model_writer=handle, model_type="word", vocab_size=80,
            hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
        )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def tagger(vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("tagger")
    tokenizers, labels = {"words": vocabulary}, ["ADJ", "DET", "NOUN", "NUM", "VERB"]
    build_engine(write_task(folder, "tagging"), None, tokenizers, "cpu", folder / "engine", labels=labels)
    return load(folder / "engine", threads=1)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("frames")
    build_engine(write_task(folder, "frames"), None, None, "cpu", folder / "engine")
    return load(folder / "engine", threads=1)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("graph")
    build_engine(write_task(folder, "graph"), None, None, "cpu", folder / "engine")
    return load(folder / "engine", threads=1)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("images")
    labels = ["cat", "dog", "hen", "owl"]
    build_engine(write_task(folder, "images"), None, None, "cpu", folder / "engine", labels=labels)
    return load(folder / "engine", threads=1)


def test_predict_gives_a_label_for_each_word(tagger: Engine) -> None:
    results = tagger.predict(SENTENCES)
    assert [len(found.labels) for found in results] == [len(text.split()) for text in SENTENCES]
    for found in results:
        assert found.probabilities.shape == (len(found.labels), 5)
        np.testing.assert_allclose(found.probabilities.sum(-1), 1, atol=1e-5)
        best = [("ADJ", "DET", "NOUN", "NUM", "VERB")[index] for index in found.probabilities.argmax(-1)]
        assert found.labels == tuple(best)


def test_predict_gives_each_text_what_it_has_alone_whatever_the_batches(tagger: Engine) -> None:
    texts = [SENTENCES[index % 8] for index in range(30)]
    alone = {text: tagger.predict([text])[0] for text in SENTENCES}
    for batch_tokens in (1, 60, 10_000):
        for text, found in zip(texts, tagger.predict(texts, max_batch_tokens=batch_tokens), strict=True):
            assert found.labels == alone[text].labels
            np.testing.assert_allclose(found.probabilities, alone[text].probabilities, atol=1e-5)


def test_predict_labels_unknown_words_and_neighbouring_ones_too(tagger: Engine) -> None:
    (found,) = tagger.predict(["two qwertz asdf dogs yxcv"])
    assert len(found.labels) == 5


def test_predict_of_no_words_is_no_labels_without_the_model(tagger: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", None)
        assert [found.labels for found in tagger.predict(["", "  "])] == [(), ()]
    assert tagger.predict([]) == []


def test_predict_stream_reads_no_further_ahead_than_its_window(tagger: Engine) -> None:
    read: list[str] = []

    def lines():
        for text in SENTENCES:
            read.append(text)
            yield text

    next(tagger.predict_stream(lines(), window=2))
    assert len(read) == 2


def test_predict_takes_ids_too(tagger: Engine) -> None:
    ids = np.array([[5, 6, 7], [8, 0, 0]])
    assert [len(found.labels) for found in tagger.predict({"words": ids})] == [3, 1]


def test_predict_takes_vectors_with_their_lengths(frames: Engine) -> None:
    random = np.random.default_rng(0)
    arrays = {"frames": random.standard_normal((3, 7, 6), np.float32), "frames_lengths": np.array([7, 2, 5])}
    results = frames.predict({**arrays, "labels": np.zeros(3)})
    assert [len(found.labels) for found in results] == [7, 2, 5]
    nothing = replace(results[0], labels=(), probabilities=results[0].probabilities[:0])
    for name in ("label", "probability"):
        with pytest.raises(UserError, match="the example has no label"):
            getattr(nothing, name)
    arrays["frames"][1, 2:] = 1e9
    np.testing.assert_array_equal(frames.predict(arrays)[1].probabilities, results[1].probabilities)


def test_predict_takes_values_and_gives_one_label(images: Engine) -> None:
    values = np.random.default_rng(0).standard_normal((5, 3, 2, 3)).astype(np.float64)
    results = images.predict({"image": values})
    assert len(results) == 5 and all(len(found.labels) == 1 for found in results)
    assert results[0].label in ("cat", "dog", "hen", "owl")
    assert results[0].probability == pytest.approx(results[0].probabilities.max())
    assert images.predict({"image": values[:0]}) == []


def test_predict_takes_edges_and_nothing_passes_where_there_is_none(graph: Engine) -> None:
    nodes, links = np.array([[5, 6, 7, 8], [5, 6, 0, 0]]), np.zeros((2, 4, 4), np.bool_)
    links[:] = np.eye(4, dtype=np.bool_)
    links[:, 0, 1] = True
    results = graph.predict({"nodes": nodes, "links": links})
    assert [len(found.labels) for found in results] == [4, 2]
    np.testing.assert_allclose(results[0].probabilities[:2], results[1].probabilities, atol=1e-5)
    links[0, 0, 1] = False
    apart = graph.predict({"nodes": nodes, "links": links})[0]
    assert np.abs(apart.probabilities[0] - results[0].probabilities[0]).max() > 1e-4
    np.testing.assert_allclose(apart.probabilities[1:], results[0].probabilities[1:], atol=1e-5)


def test_predict_refuses_edges_that_do_not_fit(graph: Engine) -> None:
    nodes = np.array([[5, 6, 7]])
    with pytest.raises(UserError, match=r"links must be true or false of shape \[rows, nodes, nodes\], not float64"):
        graph.predict({"nodes": nodes, "links": np.ones((1, 3, 3))})
    with pytest.raises(UserError, match=r"row 0 of links has shape \[2, 2\] for 3 positions"):
        graph.predict({"nodes": nodes, "links": np.ones((1, 2, 2), np.bool_)})


V = np.zeros((2, 3, 6), np.float32)
LENGTHS = np.array([3, 1])
WRONG = [
    ({"frames": V}, "the arrays lack frames_lengths"),
    ({"frames": V, "frames_lengths": LENGTHS, "x": V}, "the arrays have x"),
    ({"frames": V[0], "frames_lengths": LENGTHS}, r"frames must be numbers of shape \[rows, frames, 6\], not float32"),
    ({"frames": V[:, :, :5], "frames_lengths": LENGTHS}, r"not float32 of \[2, 3, 5\]"),
    ({"frames": V.astype(str), "frames_lengths": LENGTHS}, "frames must be numbers of shape"),
    ({"frames": V + np.inf, "frames_lengths": LENGTHS}, "frames must be finite numbers in float32; row 0 is not"),
    (
        {"frames": V + np.float64(1e300), "frames_lengths": LENGTHS},
        "frames must be finite numbers in float32; row 0 is not",
    ),
    ({"frames": V, "frames_lengths": [4, 1]}, "frames_lengths must be from 1 to 3"),
    ({"frames": V, "frames_lengths": [0, 1]}, "frames_lengths must be from 1 to 3"),
    ({"frames": V, "frames_lengths": [1.0, 2.0]}, r"frames_lengths must be integers of shape \[rows\]"),
    ({"frames": V, "frames_lengths": [1]}, "same number of rows, not frames 2, frames_lengths 1"),
]


@pytest.mark.parametrize(("arrays", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_predict_refuses_arrays_that_do_not_fit(frames: Engine, arrays: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        frames.predict(arrays)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"frame": V[0]}, "row 1: the arrays lack frames"),
        ({"frames": V[0].reshape(-1)}, r"row 1: frames must be numbers of shape \[frames, 6\], not float32 of \[18\]"),
        ({"frames": V[0] * np.nan}, "row 1: frames must be finite numbers in float32"),
        ({"frames": [[0.0], [0.0, 1.0]]}, r"row 1: frames\[1\] has 2 items"),
        (V[0], "row 1: must be a mapping from frames to arrays, not ndarray"),
    ],
)
def test_predict_rows_refuses_rows_that_do_not_fit(frames: Engine, row: Any, message: str) -> None:
    assert len(frames.predict_rows([{"frames": V[0].tolist()}])[0].labels) == 3
    with pytest.raises(UserError, match=message):
        frames.predict_rows([{"frames": V[0]}, row])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[5, 80]], "the ids of words must be from 0 to 79"),
        ([[5, -1]], "the ids of words must be from 0 to 79"),
        ([[5.0]], r"words must be integers of shape \[rows, words\], not float64"),
        ([[5], [0]], "row 1 of words must be one or more tokens, then padding"),
        ([[0, 5]], "row 0 of words must be one or more tokens, then padding"),
    ],
)
def test_predict_refuses_ids_that_do_not_fit(tagger: Engine, ids: list[list[float]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tagger.predict({"words": np.array(ids)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[5, 6], [7]], "words[1] has 1 item, and words[0] has 2 items"),
        ([[5, 6], 7], "words[1] is no list, and words[0] has 2 items"),
        ([[[5], [6]], [[7], [8, 9]]], "words[1][1] has 2 items, and words[0][0] has 1 item"),
        ([[["a"]], [["b", [1]]]], "words[1][0] has 2 items, and words[0][0] has 1 item"),
        (["a", ["b"]], "words[1] has 1 item, and words[0] is no list"),
    ],
)
def test_predict_names_the_list_that_is_too_short(tagger: Engine, given: object, message: str) -> None:
    with pytest.raises(UserError) as error:
        tagger.predict({"words": given})
    assert (error.value.message, error.value.hint) == (message, "pad the shorter lists")


def test_predict_obeys_the_models_bound(tagger: Engine, caplog: pytest.LogCaptureFixture) -> None:
    words = replace(tagger.manifest.inputs["words"], longest=3)
    short = replace(tagger, manifest=replace(tagger.manifest, inputs={"words": words}))
    with pytest.raises(UserError, match="4 tokens; this engine takes at most 3") as error:
        short.predict(["two dogs", "two dogs in snow"])
    assert error.value.place == "line 2"
    (found,) = short.predict(["two dogs in snow"], truncate=True)
    assert len(found.labels) == 3 and "cut from 4 to 3" in caplog.text
    with pytest.raises(UserError, match="row 0 of words has 4 positions; this engine takes at most 3"):
        short.predict({"words": np.array([[5, 6, 7, 8]])})


def test_predict_refuses_one_text_in_place_of_a_list(tagger: Engine) -> None:
    with pytest.raises(UserError, match="predict takes a list of texts"):
        tagger.predict("two dogs")


def test_predict_refuses_more_texts_than_inputs(tagger: Engine) -> None:
    with pytest.raises(UserError, match="needs a text for each of words, found 2") as error:
        tagger.predict([("two dogs", "a cat")])
    assert error.value.place == "line 1"


def test_predict_refuses_text_for_what_is_no_text(images: Engine) -> None:
    with pytest.raises(UserError, match=r"'image' is read from a .png, .jpg or .jpeg file"):
        images.predict(["a cat"])


def test_predict_refuses_an_engine_without_a_tokenizer(tagger: Engine) -> None:
    with pytest.raises(UserError, match="has no tokenizer"):
        replace(tagger, tokenizer=None).predict(["two dogs"])


def test_every_other_method_names_the_right_one(tagger: Engine, engine: Engine) -> None:
    with pytest.raises(UserError) as error:
        tagger.translate(["two dogs"])
    assert error.value.message == "tagging is a tagging engine; translate needs a translation engine"
    assert error.value.hint == "use engine.predict(...) in Python, or xformc predict on the command line"
    with pytest.raises(UserError, match="search needs a translation engine"):
        tagger.search([[5, 3]])
    for examples in (["hello"], {"words": np.array([[5]])}):
        with pytest.raises(UserError) as error:
            engine.predict(examples)
        assert error.value.message == "copy is a translation engine; predict needs a tagging or classification engine"
        assert error.value.hint == "use engine.translate(...) in Python, or xformc translate on the command line"


def test_no_label_is_a_dash() -> None:
    several = {"several": True}
    whole = Result("labels", {"labels": 2}, labels=("a", "b"), settings=several)
    words = replace(whole, positions="words")
    kind = kind_of(whole)
    assert kind.line(kind.value(whole, [np.array([0.9, 0.6], np.float32)])) == "a b"
    assert kind.line(kind.value(whole, [np.array([0.1, 0.2], np.float32)])) == "-"
    assert kind.line(kind.value(words, [np.array([[0.1, 0.2], [0.7, 0.8]], np.float32)])) == "- a,b"
    assert kind.line(kind.nothing(words)) == ""


def test_an_example_without_positions_has_empty_cells_and_null_in_json() -> None:
    for name, axes, empty in (
        ("numbers", {}, "numbers"),
        ("numbers", {"n": 2}, "numbers"),
        ("vectors", {"d": 2}, "vector"),
    ):
        whole = Result(name, axes)
        kind, each = kind_of(whole), replace(whole, positions="words")
        assert kind.line(kind.nothing(whole)) == kind.line(kind.nothing(each)) == ""
        assert kind.fields(whole, kind.nothing(whole)) == {empty: None}
        assert kind.fields(each, kind.nothing(each)) == {name: []}
