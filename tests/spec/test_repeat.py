"""Repetition: the index of a turn, weights that turns share, values that they carry, and choices by arithmetic."""

from pathlib import Path

import pytest
import torch
from steps import assert_steps_are_the_training_form, language_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.ops.elementwise import Dropout

from .conftest import Build, Problems

SPEC = """\
task: language_model
sizes: {layers: 4, d_model: 8, vocabulary: 20}
inputs: {text: {tokens: vocabulary}}
model:
  states: {from: text, do: {start: {embedding: d_model}, layers: REPEAT}}
  logits: {from: states, do: [linear: vocabulary]}
"""
DECODED = {
    "the index": """{repeat: 3, index: turn, do: [convolution: {to: d_model, width: 2, dilation: 2^turn, causal: true},
  scale: 1 / (turn + 1)]}""",
    "the index as a value": """{repeat: 2, index: turn, shared: true, do: {timed: {add: {sinusoid: {at: turn}}},
  learned: {add: {learned_positions: {limit: d_model, at: turn}}}, new: {linear: d_model}}}""",
    "shared weights": "{repeat: 3, shared: true, do: [rnn, residual: {linear: {to: d_model}}]}",
    "sizes that grow": """{do: {down: {repeat: 2, index: turn, do: {skip: tanh,
  next: {linear: {to: {d_model: d_model * 2^(turn + 1)}}}}},
  up: {repeat: 2, index: turn, do: {narrow: {linear: {to: {d_model: d_model * 2^(1 - turn)}}},
  both: {plus: down/(1 - turn)/skip}}}}}""",
    "a carried value": """{repeat: 3, carry: {old: x}, do: {new: {linear: d_model}, sum: {plus: old},
  old: {tanh: {from: new}}, end: {plus: {from: sum, by: old}}}}""",
    "a choice": """{repeat: 3, index: turn, do: {mixed: {choose: turn % 2, 0: [rnn], otherwise: [tanh]},
  last: {choose: 2 - turn, 0: [relu], 1: [], 2: []}}}""",
}


def _repeated(build: Build, repeat: str) -> Graph:
    return build(SPEC.replace("REPEAT", " ".join(repeat.split())))


def _paths(graph: Graph) -> list[str]:
    return [parameter.name for parameter in graph.parameters if "layers" in parameter.name]


@pytest.mark.parametrize("name", DECODED)
def test_a_step_is_the_training_form(tmp_path: Path, name: str) -> None:
    assert_steps_are_the_training_form(language_graph(tmp_path, f"[{' '.join(DECODED[name].split())}]"), tmp_path)


CARRIED = SPEC.replace(
    "REPEAT",
    "{repeat: layers, carry: {old: start}, do: {new: {linear: d_model}, end: {plus: {from: new, by: BY}},"
    " old: {linear: {from: new, to: d_model}}, result: {tanh: {from: end}}}}",
)


@pytest.mark.parametrize("turns", [1, 3])
def test_the_last_turn_carries_nothing(build: Build, turns: int) -> None:
    paths = _paths(build(CARRIED.replace("layers: 4", f"layers: {turns}").replace("BY", "old")))
    steps = [f"layers/{turn}/{step}" for turn in range(turns) for step in ("new", "old")[: 2 - (turn == turns - 1)]]
    assert [path for path in paths if path.endswith("weight")] == [f"states/{step}/weight" for step in steps]


def test_only_the_last_turn_has_what_leads_to_the_result_alone(build: Build, problems: Problems) -> None:
    read = (
        "{repeat: layers, carry: {old: start}, do: {old: {linear: {from: old, to: d_model}}, read: {linear: d_model}}}"
    )
    paths = [path for path in _paths(build(SPEC.replace("REPEAT", read))) if path.endswith("weight")]
    assert paths == [f"states/layers/{step}/weight" for step in ("0/old", "1/old", "2/old", "3/old", "3/read")]
    without = read.replace("carry: {old: start}, ", "").replace("from: old", "from: start")
    assert "never used" in problems(SPEC.replace("REPEAT", without))[0].message


def test_a_name_may_stand_for_steps(build: Build, problems: Problems) -> None:
    steps = "[{name: wide, linear: d_model}, tanh, {linear: d_model}]"
    plain = SPEC.replace("layers: 4, ", "")
    listed, mapped = (build(plain.replace("REPEAT", written)) for written in (steps, f"{{do: {steps}}}"))
    assert [(node.op, node.outputs) for node in listed.nodes] == [(node.op, node.outputs) for node in mapped.nodes]
    assert [path for path in _paths(listed) if path.endswith("weight")] == [
        "states/layers/wide/weight",
        "states/layers/linear/weight",
    ]
    assert build(plain.replace("layers: REPEAT", "gate: [tanh, relu]")), "a block without arguments has no list"
    (found,) = problems(plain.replace("layers: REPEAT", "residual: [tanh]"))
    assert found.hint == "a mapping under 'do' names its steps; write a list for unnamed steps"


def test_what_no_turn_uses_is_refused(problems: Problems) -> None:
    found = problems(CARRIED.replace("BY", "start"))
    assert [problem.message for problem in found] == ["the result of this step is never used"]


def test_numbers_differ_by_turn(build: Build) -> None:
    graph = _repeated(
        build,
        """{repeat: layers, index: layer, do: [residual: [
        convolution: {to: d_model, width: 2, dilation: 2^layer, causal: true},
        dropout: {probability: 0.2 * layer / layers, each: batch}]]}""",
    )
    assert [node.op.dilation for node in graph.nodes if isinstance(node.op, Convolution)] == [(1,), (2,), (4,), (8,)]
    dropped = [node.op for node in graph.nodes if isinstance(node.op, Dropout)]
    assert [(op.probability, op.each) for op in dropped] == [
        (0.05, "batch"),
        (0.1, "batch"),
        (pytest.approx(0.15), "batch"),
    ]


def test_a_block_takes_the_index_as_a_number(build: Build) -> None:
    text = SPEC.replace("REPEAT", "{repeat: layers, index: layer, do: [mixed: layer]}")
    text += """\
blocks:
  mixed:
    takes: {depth: number}
    choose: depth
    0: [linear: d_model]
    3: [relu]
    otherwise: []
"""
    assert _paths(build(text)) == ["states/layers/0/weight", "states/layers/0/bias"]


def test_shared_turns_have_one_set_of_weights(build: Build) -> None:
    graph = _repeated(build, "{repeat: layers, shared: true, do: {new: {linear: d_model}, active: tanh}}")
    assert _paths(graph) == ["states/layers/new/weight", "states/layers/new/bias"]
    module = TorchModule(graph, seed=1)
    module(torch.tensor([[4, 5]])).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert sum(node.op.kind == "linear" for node in graph.nodes) == 5


def test_turns_inside_shared_turns_have_their_own(build: Build) -> None:
    graph = _repeated(build, "{repeat: 2, shared: true, do: [{repeat: layers, do: [linear: d_model]}]}")
    assert _paths(graph) == [f"states/layers/{index}/{name}" for index in range(4) for name in ("weight", "bias")]


def test_stages_may_use_the_values_of_a_repeated_stage(build: Build) -> None:
    build(
        """\
task: language_model
sizes: {layers: 4, d_model: 8, vocabulary: 20}
inputs: {text: {tokens: vocabulary}}
model:
  states: {from: text, do: [embedding: d_model]}
  deep: {from: states, repeat: layers, index: layer, do: {new: {linear: d_model}, active: tanh}}
  logits: {from: deep, do: [plus: deep/0/new, plus: deep/(layers - 2)/active, linear: vocabulary]}
"""
    )


ERRORS = [
    (
        "{repeat: 2, shared: true, index: turn, do: [linear: {to: {d_model: d_model + turn}}]}",
        "states/layers/weight [d_model=8, d_model=8] cannot be shared with the next turn: "
        "its axes are [d_model=9, d_model=8]",
        None,
    ),
    ("{repeat: 2, index: layers, do: [tanh]}", "the index 'layers' is already a size", "rename it"),
    ("{repeat: 2, index: 3, do: [tanh]}", "the index needs a name of its own, found 3", None),
    ("{repeat: 2, shared: 3, do: [tanh]}", "must be true or false, found 3", None),
    ("{index: turn, do: [tanh]}", "'index' needs 'repeat' beside it", None),
    (
        "{repeat: 2, carry: x, do: [tanh]}",
        "must name values and what each is at first, found 'x'",
        "such as {memory: x}",
    ),
    (
        "{repeat: 2, carry: {old: x}, do: {odl: tanh}}",
        "no step of the body is named 'old', so there is nothing to carry to the next turn",
        "did you mean 'odl'?",
    ),
    (
        "{repeat: 2, index: turn, do: [{choose: turn, 0: [tanh]}]}",
        "'turn' is 1, and no body is for 1",
        "write a body for 1, or one for otherwise",
    ),
    ("{choose: layers % 2, one: [tanh]}", "'layers % 2' is a number, so 'one' must be one", None),
    ("{choose: [a], 1: [tanh]}", "'choose' must name a choice or a word argument, or be arithmetic on numbers", None),
    ("{choose: layers % 2}", "needs a body for each word of the choice", "write the words beside 'choose'"),
    ("{do: {down: {repeat: 2, do: {a: tanh}}, up: {plus: down/2/a}}}", "'down' has no turn 2: it has 2 here", None),
    (
        "{do: {down: {repeat: 2, do: {a: tanh}}, up: {plus: down/(layers - 1)/a}}}",
        "'down' has no turn (layers - 1) = 3: it has 2 here",
        None,
    ),
    (
        "{do: {down: {repeat: 2, do: {skip: tanh}}, up: {plus: down/0/skp}}}",
        "no step of 'down' is named 'skp'",
        "did you mean 'skip'?",
    ),
    (
        "{do: {down: {repeat: 2, do: {a: tanh}}, up: {linear: {from: dwn/0/a, to: d_model}}}}",
        "no repetition is named 'dwn' here",
        "did you mean 'down'?",
    ),
    ("{linear: {to: {width: 3}}}", "unknown size 'width'", "add 'width' to sizes"),
    (
        "{repeat: 2, index: turn, do: [linear: {to: {d_model: d_model - 8 * turn}}]}",
        "the axis d_model needs a positive whole number, found d_model - 8 * turn = 0",
        "d_model is 8, turn is 1",
    ),
    ("{dropout: {probability: 0.5, each: bath}}", None, "did you mean 'batch'?"),
    ("{add: {sinusoid: {at: 0.5}}}", "a position must be a whole number from 0 to 16777215, found 0.5", None),
    (
        "{add: {learned_positions: {limit: layers, at: 4}}}",
        "a position must be a whole number from 0 to 3, found 4",
        None,
    ),
]


@pytest.mark.parametrize(("repeat", "message", "hint"), ERRORS, ids=[repeat for repeat, *_ in ERRORS])
def test_mistake_has_a_message(problems: Problems, repeat: str, message: str | None, hint: str | None) -> None:
    (problem,) = problems(SPEC.replace("REPEAT", repeat))
    assert problem.span.place.startswith("model.yaml:5:")
    assert (message or problem.message, hint) == (problem.message, problem.hint)


def test_stochastic_depth_drops_whole_examples() -> None:
    from one_op import Case, one_op

    module = TorchModule(one_op(Case(Dropout(0.5, "b"), (("b", "t", "d"),)), {"b": 1, "t": 1, "d": 4}))
    x = torch.ones(64, 3, 4)
    kept = module.train()(x)
    assert {row.unique().tolist()[0] for row in kept} == {0.0, 2.0}
    assert all(len(row.unique()) == 1 for row in kept)
    assert torch.equal(module.eval()(x), x)
