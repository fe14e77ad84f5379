"""Records of named values, and the loops that carry them."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import onnx
import onnxruntime
import pytest

from xformc.compiler.backends.onnx.emitter import Emitter, model
from xformc.compiler.backends.onnx.initializers import Initializers
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.compiler.search.loops import Collected, Names, Record, emit_loop, fields_of, mapped, names_of, record_of

NUMBER, ROW = Type("int64"), Type("int64", (Axis("batch"),))


@dataclass(frozen=True)
class Pair(Record):
    first: Annotated[str, ROW]
    second: Annotated[str, NUMBER]


@dataclass(frozen=True)
class Carried(Record):
    count: Annotated[str, NUMBER]
    pair: Pair
    state: Names


RECORD = Carried("a", Pair("b", "c"), {"x/cache": "d", "y": "e"})
STATES = {"x/cache": ROW, "y": NUMBER}
NAMES = {"count": "a", "pair_first": "b", "pair_second": "c", "state_x/cache": "d", "state_y": "e"}


def test_names_and_types_of_a_record_have_one_order() -> None:
    types = fields_of(Carried, state=STATES)
    assert list(names_of(RECORD).items()) == list(NAMES.items())
    assert list(types.items()) == list(zip(NAMES, (NUMBER, ROW, NUMBER, ROW, NUMBER), strict=True))


def test_a_record_is_read_back_from_its_names() -> None:
    assert record_of(Carried, NAMES) == RECORD
    assert record_of(Carried, {**NAMES, "other": "f"}) == RECORD
    assert record_of(Carried, names_of(Carried("a", Pair("b", "c"), {}))).state == {}


def test_a_record_without_a_value_is_refused() -> None:
    with pytest.raises(KeyError, match="second"):
        record_of(Pair, {"first": "b"})


def test_every_value_of_a_record_is_mapped() -> None:
    assert names_of(mapped(RECORD, str.upper)) == {name: value.upper() for name, value in NAMES.items()}


def test_a_loop_carries_a_record_and_stacks_what_is_collected() -> None:
    emitter = Emitter(Initializers({}))
    entering = Carried(emitter.operand(0), Pair("row", emitter.operand(1)), {"x": "row"})

    def body(scope: OnnxEmitter, iteration: str, now: Carried) -> tuple[str, Carried, Collected]:
        pair = Pair(now.pair.first, scope.op("Mul", now.pair.second, 2))
        state = {"x": scope.op("Add", now.state["x"], now.pair.second)}
        go_on = scope.op("Less", iteration, 3)
        return go_on, Carried(scope.op("Add", now.count, 1), pair, state), [(NUMBER, now.pair.second)]

    types = fields_of(Carried, state={"x": ROW})
    last, (steps,) = emit_loop(emitter, emitter.operand(9), types, entering, body)
    results = {**names_of(last), "steps": steps}
    for name, value in results.items():
        emitter.op("Identity", value, name=name)
    outputs = [*types.items(), ("steps", Type("int64", (Axis("turns"),)))]
    built = model(emitter, "loop", [("row", ROW)], outputs)
    onnx.checker.check_model(built, full_check=True)
    session = onnxruntime.InferenceSession(built.SerializeToString(), providers=["CPUExecutionProvider"])
    found = dict(zip(results, session.run(None, {"row": np.array([5, 6])}), strict=True))
    assert {name: np.asarray(value).tolist() for name, value in found.items()} == {
        "count": 4,
        "pair_first": [5, 6],
        "pair_second": 16,
        "state_x": [20, 21],
        "steps": [1, 2, 4, 8],
    }


def test_a_loop_needs_the_types_of_all_its_values() -> None:
    emitter = Emitter(Initializers({}))
    with pytest.raises(AssertionError, match="do not fit"):
        emit_loop(emitter, "", fields_of(Carried, state={}), RECORD, lambda scope, _, now: ("", now, []))
