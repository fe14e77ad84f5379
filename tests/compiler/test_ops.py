"""Every op gives the same in PyTorch and ONNX Runtime, on random shapes, for both targets."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere, one_op, run_onnx

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Graph, Initial, Op
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.graph.rules import RuleError, mixes, to_onnx, to_step, to_torch, types
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops import native
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.ctc import BlankPadding
from xformc.compiler.ops.elementwise import Add, Dropout, Multiply, Scale
from xformc.compiler.ops.embedding import Embedding
from xformc.compiler.ops.functions import FUNCTIONS, Unary
from xformc.compiler.ops.fused_attention import Attention
from xformc.compiler.ops.keys import Append, AsKeys
from xformc.compiler.ops.layout import Align, Expand
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.masks import Fill, LocalMask, PaddingMask
from xformc.compiler.ops.mixture import Mixture
from xformc.compiler.ops.normalization import LayerNorm
from xformc.compiler.ops.positions import Positions, Sinusoid
from xformc.compiler.ops.softmax import Softmax

LOSSES = {
    "cross_entropy",
    "linear_cross_entropy",
    "binary_cross_entropy",
    "ctc_loss",
    "deviation",
    "contrastive",
    "later_labels",
    "mean_loss",
}
TRAINING_ONLY = {
    "dropout",
    "auxiliary_loss",
    "later_token_loss",
    "linear_attention",
    "linear_scan",
    "previous",
    *LOSSES,
}


CASES = {
    **{name: Case(Unary(name), (("a", "b"),)) for name in FUNCTIONS},
    "scale": Case(Scale(2.5), (("a", "b"),)),
    "blank_padding": Case(BlankPadding(), (("a", "b", "k"), ("b", "a")), dtypes=("float32", "bool")),
    "add": Case(Add(), (("a", "b", "c"), ("b", "c"))),
    "add needs a place": Case(Add(), (("a", "b", "c"), ("a", "c"))),
    "add in another order": Case(Add(), (("a", "b", "c"), ("c", "a"))),
    "multiply": Case(Multiply(), (("a", "b"), ("a", "b"))),
    "align": Case(Align(("a", "c")), (("a", "b", "c", "d"),)),
    "expand": Case(Expand("e"), (("a", "b"),)),
    "linear": Case(Linear(("d",)), (("a", "b", "d"),), (("o", "d"), ("o",))),
    "linear without bias": Case(Linear(("d",)), (("a", "b", "d"),), (("o", "d"),)),
    "linear to heads": Case(Linear(("d",)), (("a", "d"),), (("h", "k", "d"), ("h", "k"))),
    "linear from heads": Case(Linear(("h", "k")), (("h", "a", "k"),), (("d", "h", "k"), ("d",))),
    "layer_norm": Case(LayerNorm(1e-6), (("a", "b", "d"),), (("d",), ("d",))),
    "append": Case(Append("t", "p", "s"), (("a", "h", "p", "k"), ("a", "h", "t", "k"))),
    "append in a window": Case(Append("t", "p", "s", 3), (("a", "h", "p", "k"), ("a", "h", "t", "k"))),
    "as_keys": Case(AsKeys("t", "s"), (("a", "t", "k"),)),
    "contract": Case(Contract("k"), (("a", "q", "h", "k"), ("a", "s", "h", "k"))),
    "contract to what weights gather": Case(Contract("s"), (("a", "q", "h", "s"), ("a", "s", "h", "v"))),
    "contract of vectors": Case(Contract("k"), (("a", "k"), ("a", "k"))),
    "contract with rows alone": Case(Contract("k"), (("b", "a", "k"), ("k",))),
    "contract with columns alone": Case(Contract("k"), (("k",), ("b", "a", "k"))),
    "contract to one number": Case(Contract("k"), (("k",), ("k",))),
    "softmax": Case(Softmax("b"), (("a", "b", "c"),)),
    "mixture": Case(Mixture("b"), (("a", "b", "c"),) * 3),
    "local_mask of a window": Case(LocalMask("t", "u", causal=False, window=2), (("a", "t", "h", "u"),)),
    "local_mask of what came before": Case(LocalMask("t", "u", causal=True), (("a", "u", "t"),)),
    "local_mask of a window before": Case(LocalMask("t", "u", causal=True, window=2), (("t", "u"),)),
    "attention": Case(Attention("q", "s", 0.5), (("a", "h", "q", "k"), ("a", "h", "s", "k"), ("a", "h", "s", "v"))),
    "causal attention": Case(
        Attention("t", "u", 0.5, causal=True), (("a", "h", "t", "k"), ("a", "h", "u", "k"), ("a", "h", "u", "v"))
    ),
    "causal attention of several queries": Case(
        Attention("t", "u", 0.5, causal=True), (("a", "h", "t", "k"), ("a", "u", "k"), ("a", "u", "v"))
    ),
    "causal attention of groups in a window": Case(
        Attention("t", "u", 0.5, causal=True, window=2),
        (("a", "g", "h", "t", "k"), ("a", "g", "u", "k"), ("a", "g", "u", "v"), ("h", "t", "u")),
    ),
    "attention with a bias": Case(
        Attention("q", "s", 0.5), (("a", "h", "q", "k"), ("a", "h", "s", "k"), ("a", "h", "s", "v"), ("q", "s", "h"))
    ),
    "attention of a group with a bias for every row": Case(
        Attention("q", "s", 0.5), (("a", "g", "q", "k"), ("a", "s", "k"), ("a", "s", "v"), ("a", "s"))
    ),
    "attention with a beam on both sides": Case(
        Attention("q", "s", 0.5), (("a", "w", "h", "q", "k"), ("a", "w", "h", "s", "k"), ("a", "w", "h", "s", "v"))
    ),
    "attention with a beam on the query": Case(
        Attention("q", "s", 0.5), (("a", "w", "h", "q", "k"), ("a", "h", "s", "k"), ("a", "h", "s", "v"))
    ),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"))


def ids_graph(op: Op, table: tuple[int, int] | None = None) -> Graph:
    builder = GraphBuilder("ids")
    tokens = builder.input("tokens", Type("int64", (Axis("batch"), Axis("time"))))
    values = [tokens]
    if table is not None:
        kind = Type("float32", (Axis("vocabulary", table[0]), Axis("d", table[1])))
        values.append(builder.parameter("table", kind, Initial("normal", 1.0)))
    result = builder.emit(op, values, "y")
    if isinstance(op, Positions):
        result = builder.emit(Sinusoid("d", 6), [result], "sinusoid")
    return verify(builder.finish([result]))


@pytest.mark.parametrize(
    "graph", [ids_graph(Embedding(), (9, 4)), ids_graph(PaddingMask(0)), ids_graph(Positions("time"))]
)
def test_op_on_tokens_is_the_same_in_torch_and_onnx(graph: Graph, tmp_path) -> None:
    tokens = np.array([[1, 5, 0], [8, 0, 0]])
    module = TorchModule(graph)
    expected = module(torch.from_numpy(tokens)).detach().numpy()
    (found,) = run_onnx(graph, module, [tokens], tmp_path, target="portable")
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_attention_does_not_see_what_is_masked(tmp_path) -> None:
    builder = GraphBuilder("masked")
    axes = {name: Axis(name) for name in ("batch", "q", "s")}
    depth, heads = Axis("k", 4), Axis("h", 2)
    query = builder.input("query", Type("float32", (axes["batch"], heads, axes["q"], depth)))
    key = builder.input("key", Type("float32", (axes["batch"], heads, axes["s"], depth)))
    mask = builder.input("mask", Type("bool", (axes["batch"], axes["s"])))
    graph = builder.finish([builder.emit(Attention("q", "s", 0.5, masks=1), [query, key, key, mask], "y")])
    random = np.random.default_rng(0)
    q, k = (random.standard_normal((2, 2, n, 4)).astype(np.float32) for n in (3, 5))
    seen = np.arange(5) < np.array([[5], [2]])
    changed = np.where(seen[:, None, :, None], k, 99.0).astype(np.float32)
    module = TorchModule(graph)
    expected = module(*map(torch.from_numpy, (q, k, seen))).numpy()
    np.testing.assert_allclose(module(*map(torch.from_numpy, (q, changed, seen))).numpy(), expected, atol=1e-6)
    for keys in (k, changed):
        (found,) = run_onnx(graph, module, [q, keys, seen], tmp_path, target="portable")
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_fill_keeps_what_the_mask_shows(tmp_path) -> None:
    builder = GraphBuilder("fill")
    x = builder.input("x", Type("float32", (Axis("b"), Axis("h", 2), Axis("s"))))
    mask = builder.input("mask", Type("bool", (Axis("b"), Axis("s"))))
    graph = builder.finish([builder.emit(Fill(7.0), [x, mask], "y")])
    values = np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)
    seen = np.array([[True, False, True], [False, True, True]])
    expected = np.where(seen[:, None], values, 7.0)
    module = TorchModule(graph)
    np.testing.assert_array_equal(module(torch.from_numpy(values), torch.from_numpy(seen)).numpy(), expected)
    (found,) = run_onnx(graph, module, [values, seen], tmp_path, target="portable")
    np.testing.assert_array_equal(found, expected)


def test_sinusoid_is_the_papers() -> None:
    op = Sinusoid("d", 8)
    graph = ids_graph(Positions("time"))
    encoding = TorchModule(graph)(torch.zeros(1, 20, dtype=torch.int64)).numpy()
    position, pair = 7, 2
    angle = position / 10000 ** (2 * pair / 6)
    assert encoding[position, 2 * pair] == pytest.approx(np.sin(angle), abs=1e-6)
    assert encoding[position, 2 * pair + 1] == pytest.approx(np.cos(angle), abs=1e-6)
    assert len(op.frequencies()) == 4


def test_scores_are_the_textbooks() -> None:
    """Q = K = V = [[1,2],[3,4],[5,6],[7,8],[9,10]]: the first output row is [8.9708, 9.9708]."""
    case = Case(Attention("q", "s", 2**-0.5), (("a", "q", "k"), ("a", "s", "k"), ("a", "s", "v")))
    module = TorchModule(one_op(case, {"a": 1, "q": 5, "s": 5, "k": 2, "v": 2}))
    x = torch.arange(1.0, 11.0).view(1, 5, 2)
    torch.testing.assert_close(module(x, x, x)[0, 0], torch.tensor([8.9708, 9.9708]), atol=5e-5, rtol=0)


def test_dropout_acts_in_training_only() -> None:
    module = TorchModule(one_op(Case(Dropout(0.5), (("a", "b"),)), {"a": 1, "b": 1}))
    x = torch.ones(50, 50)
    assert set(module.train()(x).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(module.eval()(x), x)


KERNELS = {kind for kind, op in Op.registry.items() if op.__module__ == native.__name__}
"""What the last pass writes for the target native, which goes to ONNX and nowhere else."""


def test_every_op_has_its_rules() -> None:
    kinds = set(Op.registry)
    assert types.kinds() >= kinds, f"types lacks {kinds - types.kinds()}"
    for table in (mixes, to_torch):
        assert table.kinds() == kinds - KERNELS, f"{table.name} lacks {kinds - KERNELS - table.kinds()}"
    assert to_onnx.kinds() == kinds - TRAINING_ONLY
    assert to_step.kinds() == {
        *(
            "as_keys",
            "attention",
            "convolution",
            "cumulative_sum",
            "distance",
            "local_mask",
            "positions",
            "recurrence",
            "reduce",
            "slice",
            *("concatenate", "pool", "reorder", "shift_positions"),
            *("fit", "stretch", "transposed_convolution"),
        )
    }


def test_missing_rule_names_op_and_table() -> None:
    with pytest.raises(RuleError, match=r"op 'dropout' has no rule in table 'to_onnx'"):
        to_onnx.of(Dropout(0.1))


WRONG: list[tuple[Callable[[], Graph], str]] = [
    (lambda: one_op(Case(Linear(("z",)), (("a", "d"),), (("o", "d"),)), dict.fromkeys("ado", 2)), "has no axis z"),
    (lambda: one_op(Case(Contract("k"), (("a", "k"), ("a", "h"))), dict.fromkeys("ahk", 2)), "has no axis k"),
    (lambda: one_op(Case(Softmax("k"), (("a",),)), {"a": 2}), "has no axis k"),
    (
        lambda: one_op(Case(Linear(("d",)), (("a", "d"),), (("o", "k"),)), {"a": 1, "d": 2, "o": 3, "k": 4}),
        "does not fit d=2",
    ),
    (lambda: one_op(Case(Linear(("d",)), (("o", "d"),), (("o", "d"),)), dict.fromkeys("do", 2)), "axis o twice"),
    (
        lambda: one_op(
            Case(Attention("q", "s", 1.0), (("q", "k"), ("s", "k"), ("s", "v"), ("s", "o"))), dict.fromkeys("qskvo", 2)
        ),
        "does not fit scores of float32\\[q, s\\]",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_wrong_inputs_are_refused(make: Callable[[], Graph], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        make()
