"""The section `tie`: paths, beginnings of paths, and patterns."""

import pytest

from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.text import format
from xformc.compiler.spec import load_spec
from xformc.specs import shipped_specs

from .conftest import Build, Problems

SMALL = "extends: transformer_base\nsizes: {layers: 3}\n"
LAYERS = """\
task: language_model
sizes: {layers: 3, d_model: 8, vocabulary: 20}
inputs: {text: {tokens: vocabulary}}
model:
  states:
    from: text
    do: [embedding: d_model, {repeat: layers, name: hops, do: {in: {linear: d_model}, out: {linear: d_model}}}]
  logits: {from: states, do: [linear: vocabulary]}
"""


def _names(graph: Graph, part: str) -> list[str]:
    return [parameter.name for parameter in graph.parameters if part in parameter.name]


def test_a_pattern_alone_ties_all_that_fit(build: Build) -> None:
    graph = build(SMALL + "tie: [[encoder/*/feed_forward]]\n")
    assert _names(graph, "feed_forward/inner/weight") == [
        "encoder/0/feed_forward/inner/weight",
        *(f"decoder/{layer}/feed_forward/inner/weight" for layer in range(3)),
    ]
    assert len(_names(graph, "encoder/0/feed_forward")) == 6


def test_patterns_are_matched_pairwise(build: Build) -> None:
    graph = build(SMALL + "tie: [[encoder/*/self_attention, decoder/*/causal_self_attention]]\n")
    assert not _names(graph, "causal_self_attention")
    assert len(_names(graph, "self_attention/query/weight")) == 3


def test_the_beginning_of_paths_ties_all_below(build: Build) -> None:
    graph = build(SMALL + "tie: [[encoder/0/feed_forward, encoder/1/feed_forward, decoder/*/feed_forward]]\n")
    assert _names(graph, "inner/bias") == [f"encoder/{layer}/feed_forward/inner/bias" for layer in (0, 2)]


def test_the_next_layer_is_star_plus_one(build: Build) -> None:
    graph = build(LAYERS + "tie: [[states/hops/*/out, states/hops/*+1/in]]\n")
    outs = [f"states/hops/{layer}/out/weight" for layer in range(3)]
    assert _names(graph, "hops") == [
        name for path in ["states/hops/0/in/weight", *outs] for name in (path, path.replace("weight", "bias"))
    ]


def test_a_long_list_is_a_pattern(build: Build) -> None:
    paths = ", ".join(f"encoder/{layer}/feed_forward/inner/weight" for layer in range(3))
    assert format(build(f"{SMALL}tie: [[{paths}]]\n")) == format(
        build(SMALL + "tie: [[encoder/*/feed_forward/inner/weight]]\n")
    )


def test_tied_weights_are_quantized_by_all_their_paths() -> None:
    path = shipped_specs()["t5"]
    spec = load_spec(path, ["precision={default: int8, decoder/embed: bfloat16}"])
    assert spec.precisions()["encoder/embed/embedding/weight"] == "bfloat16"


ERRORS = [
    ("[[logits/weight]]", "'logits/weight' is tied to nothing", "write another path, or * for its layers"),
    ("[[encoder/*+1/feed_forward]]", "'encoder/*+1/feed_forward' is tied to nothing", None),
    (
        "[[encoder/*/feed_forward, decoder/0/feed_forward]]",
        "'decoder/0/feed_forward' needs as many * as 'encoder/*/feed_forward'",
        "only the first path of a group may be one without *",
    ),
    (
        "[[encoder/*+1/feed_forward, decoder/*/feed_forward]]",
        "the first path of a group has * alone",
        "write the number at the other paths",
    ),
    ("[[encoder/*/feed_forwrd]]", "no parameter 'encoder/*/feed_forwrd'", "did you mean 'encoder/2/feed_forward'?"),
    ("[[encoder/*/feed_forward/inner, encoder/0/feed_forward]]", None, None),
    (
        "[[encoder/*/feed_forward/inner, decoder/*/cross_attention]]",
        "'encoder/0/feed_forward/inner/weight' has no counterpart 'decoder/0/cross_attention/weight' to be tied to",
        "tie paths below which there are the same parameters",
    ),
    (
        "[[encoder/*/feed_forward, decoder/*/feed_forward], [encoder/0/feed_forward/inner, logits]]",
        "'encoder/0/feed_forward/inner/weight' is tied twice",
        "merge the two groups",
    ),
    (
        "[[encoder/*/self_attention/query/weight, decoder/*/feed_forward/inner/weight]]",
        "decoder/0/feed_forward/inner/weight [d_ff=2048, d_model=512] cannot be tied to "
        "encoder/0/self_attention/query/weight [heads=8, d_k=64, d_model=512]: their axes differ",
        None,
    ),
]


@pytest.mark.parametrize(("tie", "message", "hint"), ERRORS, ids=[tie for tie, *_ in ERRORS])
def test_mistake_has_a_message(problems: Problems, tie: str, message: str | None, hint: str | None) -> None:
    found = problems(f"{SMALL}tie: {tie}\n")
    assert all(problem.span.place.startswith("model.yaml:3:") for problem in found)
    if message is not None:
        assert message in [problem.message for problem in found]
        assert hint is None or hint in [problem.hint for problem in found]


def test_too_many_patterns_are_refused(problems: Problems) -> None:
    patterns = ", ".join(f"[a{index}/*]" for index in range(1001))
    assert "more than 1,000 patterns with *" in [item.message for item in problems(f"{SMALL}tie: [{patterns}]\n")]
