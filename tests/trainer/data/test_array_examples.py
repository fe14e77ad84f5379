"""Arrays as examples: each kind of input, and each error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xformc.compiler.graph.axes import Axis
from xformc.compiler.spec.model import Input, InputKind
from xformc.compiler.spec.problems import Source, Span
from xformc.errors import UserError
from xformc.trainer.data.array_examples import encode_arrays
from xformc.trainer.data.batches import make_batch, plan_batches
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.npz import Arrays, array_labels, read_arrays

NOWHERE = Span(Source("model.yaml", ""), 1, 1, 1)


def declare(kind: InputKind, *sizes: int, of: str | None = None) -> Input:
    return Input(kind, tuple(Axis(f"axis_{size}", size) for size in sizes), of, NOWHERE)


GRAPH = {"nodes": declare("tokens", 10), "edges": declare("edges", of="nodes")}
SPEECH = {"frames": declare("vectors", 2)}
IMAGE = {"image": declare("values", 4, 3, 2)}


def schema(inputs: dict[str, Input], *, positions: str | None = None, classes: int = 3, longest: int = 8) -> DataSchema:
    return DataSchema("classification" if positions is None else "tagging", inputs, classes, positions, longest)


def arrays(**named: Any) -> Arrays:
    return Arrays({name: np.asarray(array) for name, array in named.items()}, Path("a.npz"), "")


def speech(**changed: Any) -> Arrays:
    frames = np.arange(12, dtype=np.float64).reshape(2, 3, 2)
    return arrays(**{"frames": frames, "frames_lengths": [3, 1], "labels": [2, 0], **changed})


def graph(**changed: Any) -> Arrays:
    edges = np.ones((2, 3, 3), np.bool_)
    return arrays(
        **{"nodes": [[4, 5, 6], [7, 0, 0]], "edges": edges, "labels": [[0, 1, -100], [2, -100, 0]], **changed}
    )


def mistakes(given: Arrays, wanted: DataSchema, names: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(UserError) as caught:
        encode_arrays(given, wanted, names)
    assert caught.value.place == "a.npz"
    return caught.value.message.split("\n  ")


def test_vectors_become_frames_and_their_mask() -> None:
    batch = make_batch(encode_arrays(speech(), schema(SPEECH), ()), np.array([1, 0]))
    assert list(batch.inputs) == ["frames", "frames_mask"]
    assert batch.inputs["frames"].dtype == torch.float32
    assert batch.inputs["frames"].tolist()[0] == [[6, 7], [0, 0], [0, 0], [0, 0]]
    assert batch.inputs["frames_mask"].tolist() == [[True, False, False, False], [True, True, True, False]]
    assert batch.labels.tolist() == [0, 2]


def test_values_become_float32() -> None:
    image = np.arange(48, dtype=np.uint8).reshape(2, 4, 3, 2)
    examples = encode_arrays(arrays(image=image, labels=[0, 2]), schema(IMAGE), ())
    batch = make_batch(examples, np.array([1]))
    assert batch.inputs["image"].dtype == torch.float32
    assert batch.inputs["image"].flatten().tolist() == list(range(24, 48))
    assert [len(rows) for rows in plan_batches(examples, 12, 1, 0)] == [1, 1]
    assert [len(rows) for rows in plan_batches(examples, 24, 1, 0)] == [2]


def test_edges_and_labels_are_padded_with_their_tokens() -> None:
    batch = make_batch(
        encode_arrays(graph(labels=[[0, 1, -100], [2, -100, -100]]), schema(GRAPH, positions="nodes"), ()),
        np.array([0, 1]),
    )
    assert batch.inputs["nodes"].tolist() == [[4, 5, 6, 0], [7, 0, 0, 0]]
    assert batch.inputs["edges"].dtype == torch.bool
    assert batch.inputs["edges"].sum((1, 2)).tolist() == [9, 1]
    assert batch.inputs["edges"].shape == (2, 4, 4)
    assert batch.labels.tolist() == [[0, 1, -100, -100], [2, -100, -100, -100]]
    assert batch.count == 3


def test_labels_may_be_names() -> None:
    given = graph(labels=[["b", "a", ""], ["c", "", ""]])
    names = array_labels(given, 3)
    assert names == ("a", "b", "c")
    batch = make_batch(encode_arrays(given, schema(GRAPH, positions="nodes"), names), np.array([0]))
    assert batch.labels.tolist() == [[1, 0, -100, -100]]
    assert array_labels(speech(), 3) == ("0", "1", "2")


def test_long_examples_are_left_out_and_counted() -> None:
    examples = encode_arrays(speech(), schema(SPEECH, longest=2), ())
    assert (len(examples), examples.too_long) == (1, 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"frames": np.zeros((2, 3, 5))}, "'frames' must be float [n, longest, 2], found float64 [2, 3, 5]"),
        ({"frames": np.zeros((2, 3, 2), int)}, "'frames' must be float [n, longest, 2], found int64 [2, 3, 2]"),
        ({"frames": np.full((2, 3, 2), np.nan)}, "'frames' must be finite numbers in float32; row 0 is not"),
        ({"frames": np.full((2, 3, 2), 1e300)}, "'frames' must be finite numbers in float32; row 0 is not"),
        ({"frames_lengths": [3, 4]}, "'frames_lengths' must be from 1 to 3; row 1 is not"),
        ({"frames_lengths": [0, 3]}, "'frames_lengths' must be from 1 to 3; row 0 is not"),
        ({"labels": [0, 3]}, "'labels' must be from 0 to 2; row 1 is not"),
        ({"labels": [0, -100]}, "'labels' must be from 0 to 2; row 1 is not"),
        ({"labels": [[0], [1]]}, "'labels' must be int or text [n], found int64 [2, 1]"),
        ({"more": [1, 2]}, "'more' is not one of the arrays frames, frames_lengths, labels"),
        (
            {"labels": [1]},
            "every array needs one row for each example; 'frames' has 2, 'frames_lengths' has 2, 'labels' has 1",
        ),
    ],
)
def test_vectors_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    assert mistakes(speech(**changed), schema(SPEECH)) == [message]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nodes": [[4, 10, 6], [7, 0, 0]]}, "'nodes' must be ids from 0 to 9; row 0 is not"),
        (
            {"nodes": [[4, 5, 6], [0, 7, 0]]},
            "'nodes' must be one or more ids in each row, then padding (0); row 1 is not",
        ),
        (
            {"nodes": [[0, 0, 0], [7, 0, 0]]},
            "'nodes' must be one or more ids in each row, then padding (0); row 0 is not",
        ),
        ({"edges": np.full((2, 3, 3), 2)}, "'edges' must be 0 or 1; row 0 is not"),
        ({"edges": np.ones((2, 2, 2), bool)}, "'edges' must cover all positions of 'nodes', found 2; row 0 is not"),
        ({"edges": np.ones((2, 9), bool)}, "'edges' must be bool or int [n, longest, longest], found bool [2, 9]"),
        (
            {"labels": [[0, 1, 9], [2, -100, -100]]},
            "'labels' must be from 0 to 2, or -100 for positions without a label; row 0 is not",
        ),
        (
            {"labels": [[0, 1, 2], [2, 1, -100]]},
            "'labels' must be from 0 to 2, or -100 for positions without a label; row 1 is not",
        ),
        ({"labels": [[0, 1], [2, 1]]}, "'labels' must cover all positions of 'nodes', found 2; row 0 is not"),
        ({"labels": [[0, 1, 2], [-100] * 3]}, "'labels' must have a label in each row; row 1 is not"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    given = graph(**{"labels": [[0, 1, -100], [2, -100, -100]], **changed})
    assert mistakes(given, schema(GRAPH, positions="nodes")) == [message]


def test_all_mistakes_are_told_at_once() -> None:
    given = arrays(frames=np.zeros((2, 3, 5)), label=[1, 2])
    assert mistakes(given, schema(SPEECH)) == [
        "'frames' must be float [n, longest, 2], found float64 [2, 3, 5]",
        "'frames_lengths' must be int [n], but is missing",
        "'labels' must be int or text [n], but is missing",
        "'label' is not one of the arrays frames, frames_lengths, labels",
    ]


def test_labels_of_another_number_are_refused() -> None:
    with pytest.raises(UserError, match="has 2 distinct labels, but the spec's model predicts 3: a, b") as caught:
        array_labels(speech(labels=["b", "a"]), 3)
    assert caught.value.hint == "set the size of the output's last axis to 2"
    assert mistakes(speech(labels=["b", "z"]), schema(SPEECH), ("a", "b", "c")) == [
        "'labels' must be one of a, b, c; row 1 is not"
    ]


def test_read_arrays_hashes_the_content(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.array(["a", "b", "c"]))
    np.savez_compressed(tmp_path / "b.npz", y=np.array(["a", "b", "c"]), x=np.arange(3))
    np.savez(tmp_path / "c.npz", x=np.arange(3), y=np.array(["a", "b", "d"]))
    first, second, third = (read_arrays(tmp_path / f"{name}.npz") for name in "abc")
    assert first.sha256 == second.sha256 != third.sha256
    assert first.arrays.keys() == {"x", "y"}


def test_read_arrays_refuses_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"no zip")
    np.savez(tmp_path / "b.npz", x=np.array([object()]))
    np.savez(tmp_path / "c.npz", x=np.arange(1000))
    (tmp_path / "c.npz").write_bytes((tmp_path / "c.npz").read_bytes()[:500])
    mistake = {name: r"not an \.npz file of plain arrays" for name in "ac"} | {
        "b": "the array 'x' holds Python objects"
    }
    for name, message in mistake.items():
        with pytest.raises(UserError, match=message) as caught:
            read_arrays(tmp_path / f"{name}.npz")
        assert caught.value.place == str(tmp_path / f"{name}.npz")
