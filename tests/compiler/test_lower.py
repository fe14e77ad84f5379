"""The passes of target native: which nodes become kernels, which stay, and what a step updates in place."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.small_specs import small
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.elementwise import Scale
from xformc.compiler.ops.native import AttendCached, Embed, Project, quantized_attentions
from xformc.compiler.passes import lower as kernels
from xformc.compiler.passes.lower import lower_decoder, lower_graph, screened_weights, split_vocabulary
from xformc.compiler.passes.step import Decoder, with_beam
from xformc.compiler.passes.tabulate import tabulate
from xformc.compiler.pipeline import compile_engine
from xformc.format.precision import Caches, Precision

LAYERS = 2


def derived(name: str, time: str = "target") -> Decoder:
    decoder = compile_engine(small(name), "native").decoder
    return with_beam(decoder) if time == "target" else decoder


def lowered(
    name: str,
    time: str = "target",
    precision: Precision = "float32",
    *,
    exact: str = "nothing",
    caches: Caches = "auto",
) -> Decoder:
    """The decoder for weights in this precision, those with `exact` in their paths in float32."""
    decoder = tabulate(derived(name, time))

    def precision_of(path: str) -> Precision:
        return "float32" if exact in path else precision

    screened = screened_weights(decoder, precision_of) if time == "target" else frozenset[str]()
    found = lower_decoder(decoder, precision_of, screened, caches)
    verify(found.prepare)
    verify(found.step)
    return found


def embeds(graph: Graph) -> list[Embed]:
    return [node.op for node in graph.nodes if isinstance(node.op, Embed)]


def kinds(graph: Graph) -> Counter[str]:
    return Counter(node.op.kind for node in graph.nodes)


def test_a_step_of_the_transformer_is_kernels() -> None:
    decoder = lowered("transformer_base")
    assert kinds(decoder.step) == {
        "embed": 1,
        "row_at": 1,
        "pairwise": 1,
        "project": 6 * LAYERS + 1,
        "attend_cached": LAYERS,
        "attend": LAYERS,
    }
    assert decoder.states == ()
    assert decoder.resident is not None and len(decoder.resident.caches) == 2 * LAYERS


def test_learned_positions_are_read_from_their_weight() -> None:
    decoder = lowered("gpt", "text")
    assert decoder.positions is None, "a table of all positions would be a copy of the weight"
    assert kinds(decoder.step)["embedding"] == 1


def test_projections_of_one_value_are_one_node() -> None:
    decoder = lowered("transformer_base")
    parts = [node.op.parts for node in decoder.step.nodes if isinstance(node.op, Project)]
    assert parts.count(3) == LAYERS, "query, key and value of each layer"
    prepared = [node.op.parts for node in decoder.prepare.nodes if isinstance(node.op, Project)]
    assert prepared[-1] == 2 * LAYERS, "the keys and values that all layers take from the encoder"


def test_a_projection_takes_what_comes_after_it() -> None:
    decoder = lowered("transformer_base")
    ops = [node.op for node in decoder.step.nodes if isinstance(node.op, Project)]
    assert sum(op.activation == "relu" for op in ops) == LAYERS
    assert sum(op.residual and op.norm == "layer" for op in ops) == 3 * LAYERS


def test_before_a_norm_of_its_own_a_sum_stays_without_one() -> None:
    decoder = lowered("transformer_pre_norm")
    ops = [node.op for node in decoder.step.nodes if isinstance(node.op, Project)]
    assert sum(op.residual for op in ops) == 3 * LAYERS
    assert sum(op.norm != "none" for op in ops) == 1, "the last sum alone is only normalized"
    assert kinds(decoder.step)["normalize"] == 3 * LAYERS


@pytest.mark.parametrize(
    ("name", "shared", "rank"),
    [("grouped_query", ("groups",), 3), ("multi_query", (), 3), ("transformer_base", ("heads",), 3)],
)
def test_heads_may_share_keys(name: str, shared: tuple[str, ...], rank: int) -> None:
    ops = [node.op for node in lowered(name).step.nodes if isinstance(node.op, AttendCached)]
    assert ops and all((op.shared, op.rank) == (shared, rank) for op in ops)


def test_a_window_stays_in_its_cache() -> None:
    ops = [node.op for node in lowered("local_attention").step.nodes if isinstance(node.op, AttendCached)]
    assert ops and all(op.window == 3 for op in ops)


@pytest.mark.parametrize("name", ["t5", "positions/alibi", "positions/relative"])
def test_a_bias_of_heads_and_distances_is_added_by_the_kernels(name: str) -> None:
    decoder = lowered(name)
    assert not {"attention", "append"} & set(kinds(decoder.prepare) + kinds(decoder.step))
    ops = [node.op for node in decoder.step.nodes if isinstance(node.op, AttendCached)]
    assert ops and all(op.biased for op in ops)


def test_a_language_model_has_no_ancestors() -> None:
    resident = lowered("llama", "text").resident
    assert resident is not None and resident.ancestors is None and len(resident.caches) == 2 * LAYERS


def test_a_sum_of_two_projections_belongs_to_one_of_them() -> None:
    graph = lower_graph(compile_engine(small("seq2seq_attention"), "native").graph, lambda _: "int8")
    verify(graph)
    results = [value.name for node in graph.nodes for value in node.outputs]
    assert len(results) == len(set(results))


def test_products_of_two_precisions_are_not_made_at_once() -> None:
    step = lowered("transformer_base", precision="int4").step
    mixed = lowered("transformer_base", precision="int4", exact="0/causal_self_attention/key").step
    assert "linear" not in kinds(step) and kinds(mixed)["project"] == kinds(step)["project"] + 1


def dtypes(decoder: Decoder) -> list[str]:
    """Of the caches."""
    assert decoder.resident is not None
    return [value.type.dtype for value in decoder.resident.caches]


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
def test_what_rounded_products_make_is_kept_in_float16(precision: Precision) -> None:
    decoder = lowered("transformer_base", precision=precision)
    assert kinds(decoder.prepare)["narrow"] == 2 * LAYERS
    assert sum(value.type.dtype == "float16" for value in decoder.constants) == 2 * LAYERS
    assert dtypes(decoder) == ["float16"] * 2 * LAYERS


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_what_products_in_float32_make_stays_in_float32(precision: Precision) -> None:
    decoder = lowered("transformer_base", precision=precision)
    assert "narrow" not in kinds(decoder.prepare)
    assert "float16" not in dtypes(decoder)


def test_keys_and_values_are_kept_in_the_same_numbers() -> None:
    decoder = lowered("transformer_base", precision="int8", exact="0/cross_attention/value")
    assert kinds(decoder.prepare)["narrow"] == 2 * (LAYERS - 1)
    assert dtypes(decoder) == ["float16"] * 2 * LAYERS
    decoder = lowered("transformer_base", precision="int8", exact="0/causal_self_attention/key")
    assert dtypes(decoder) == ["float32"] * 2 + ["float16"] * 2 * (LAYERS - 1)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_all_keys_and_values_may_be_kept_in_int8(precision: Precision) -> None:
    """Whatever made them; each head has the four bytes of its scale."""
    decoder = lowered("transformer_base", precision=precision, exact="0/causal_self_attention/key", caches="int8")
    assert "narrow" not in kinds(decoder.prepare) and kinds(decoder.prepare)["quantize_rows"] == 2 * LAYERS
    assert dtypes(decoder) == ["int8"] * 2 * LAYERS and decoder.resident is not None
    head = derived("transformer_base").states[0].past.type.axes[-2:]
    heads, depth = (axis.size or 0 for axis in head)
    assert decoder.resident.caches[0].type.axes[-1].size == heads * (depth + 4)
    assert quantized_attentions(decoder.step.nodes) == {
        node.outputs[0].name for node in decoder.step.nodes if node.op.kind in ("attend", "attend_cached")
    }
    for graph in (decoder.prepare, decoder.step):
        assert text.format(text.parse(text.format(graph))) == text.format(graph)


@pytest.mark.parametrize(
    ("name", "time"),
    [("transformer_base", "target"), ("t5", "target"), ("llama", "text"), ("gemma", "text"), ("gpt", "text")],
)
def test_a_lowered_step_has_a_text_form(name: str, time: str) -> None:
    step = lowered(name, time).step
    assert text.parse(text.format(step)) == step


def test_caps_of_scores_and_sums_are_kernels() -> None:
    step = lowered("gemma", "text").step
    caps = [node.op.cap for node in step.nodes if isinstance(node.op, AttendCached)]
    assert caps and all(caps) and "softmax" not in kinds(step)
    assert kinds(step)["add"] == kinds(step)["multiply"] == 0 < kinds(step)["pairwise"]


def test_a_language_model_has_its_caches_in_int8_for_several_tokens_too() -> None:
    decoder = lowered("gpt", "text", caches="int8")
    assert decoder.extend is not None and dtypes(decoder) == ["int8"] * 2 * LAYERS
    assert quantized_attentions(decoder.extend.nodes) == quantized_attentions(decoder.step.nodes)


def test_turned_keys_come_from_products_too() -> None:
    assert set(dtypes(lowered("llama", "text", precision="int8"))) == {"float16"}


@pytest.mark.parametrize(("precision", "layout"), [("float32", "screened"), ("int8", "panels"), ("int4", "panels")])
def test_the_projection_onto_the_vocabulary_can_be_split_off(
    precision: Precision, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32 it is screened, if the vocabulary is large, and all read the weights in that layout."""
    monkeypatch.setattr(kernels, "LARGE_VOCABULARY", 1)
    decoder = lowered("transformer_base", precision=precision)
    split = split_vocabulary(decoder)
    projection = split.projection
    assert projection is not None and projection.outputs == (decoder.logits,)
    assert isinstance(projection.op, Project) and projection.op.layout == layout
    assert split.step.outputs[0] == projection.inputs[0] and split.logits == decoder.logits
    assert kinds(split.step)["project"] == kinds(decoder.step)["project"] - 1
    graphs = decoder.prepare, decoder.step
    assert [op.layout for graph in graphs for op in embeds(graph)] == [layout] * 2
    assert split.constants == decoder.constants and split.states == decoder.states


def test_logits_that_are_no_projection_of_this_target_stay() -> None:
    decoder = derived("transformer_base")
    assert split_vocabulary(decoder) == decoder


def test_a_small_vocabulary_is_not_screened() -> None:
    projection = split_vocabulary(lowered("transformer_base")).projection
    assert projection is not None and isinstance(projection.op, Project) and projection.op.layout == "panels"


def test_a_vocabulary_that_something_else_reads_is_not_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models of an engine store it in one layout, which only projections and embeddings read."""
    monkeypatch.setattr(kernels, "LARGE_VOCABULARY", 1)
    decoder = tabulate(derived("transformer_base"))
    (name,) = screened_weights(decoder, lambda _: "float32")
    table = next(item.value for item in decoder.step.parameters if item.name == name)
    other = replace(decoder.step.nodes[0], op=Scale(2.0), inputs=(table,), outputs=(Value("other", table.type),))
    step = replace(decoder.step, nodes=(*decoder.step.nodes, other))
    assert screened_weights(replace(decoder, step=step), lambda _: "float32") == frozenset()


def test_logits_of_a_language_model_are_not_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling takes all of them."""
    monkeypatch.setattr(kernels, "LARGE_VOCABULARY", 1)
    assert kinds(lowered("gpt", "text").step)["linear"] == 0


def test_positions_are_looked_up_in_a_table() -> None:
    decoder = lowered("transformer_base")
    assert decoder.positions is not None
    assert [value.name for value in decoder.given] == ["source"]
    (table,) = (value for value in decoder.constants if value.name.endswith("/table"))
    assert table.type.names == ("target", "d_model")
