"""Parallel scans: the results and gradients of the loop, on any linear cell; other cells stay loops."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import language_graph, tagging_graph
from torch import Tensor

from xformc.compiler.backends.torch import linear_scan as module
from xformc.compiler.backends.torch.linear_scan import linear_scan
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.passes.scan import scan


def cell(state: str, *steps: str) -> str:
    return f"[recurrence: {{state: {{{state}}}, cell: {{do: {{{', '.join(steps)}}}}}}}]"


SUM = "total: {plus: {from: half, by: x}}"
HALF = "half: {scale: {from: total, factor: 0.5}}"
RESULT = "result: {linear: {over: [heads, d_k], to: d_model}}"
GATED = cell(
    "hidden: d_model",
    "new: {linear: d_model}, gate: {linear: {from: x, to: d_model}}, open: sigmoid",
    "change: {minus: {from: new, by: hidden}}",
    "part: {times: {from: open, by: change}}, hidden: {plus: {from: hidden, by: part}}",
)
LINEAR = {
    "a running sum": cell("total: d_model", "total: {plus: {from: total, by: x}}"),
    "a number as factor": cell("total: d_model", HALF, SUM),
    "a difference": cell("total: d_model", HALF, "total: {minus: {from: half, by: x}}"),
    "a condition": cell(
        "total: d_model",
        "open: {greater: 0}, sum: {plus: {from: total, by: x}}, total: {where: {condition: open, otherwise: total}}",
    ),
    "a shift": cell("total: d_model", "more: {shift: {from: total, by: 1}}, half: {scale: 0.5}", SUM),
    "a learned decay, and the state before": cell(
        "total: d_model",
        "rate: {weight: d_model}, fading: sigmoid, half: {times: {from: total, by: fading}}",
        "old: {scale: {from: total, factor: 2}}",
        SUM,
        "seen: {times: {from: old, by: total}}",
    ),
    "a gate, as in a minimal GRU": GATED,
    "outer products": cell(
        "memory: [heads, d_k, width]",
        "key: {linear: [heads, width]}, value: {linear: {from: x, to: [d_k, heads]}}",
        "gate: {linear: {from: x, to: heads}}, fading: sigmoid, kept: {times: {from: fading, by: memory}}",
        "new: {times: {from: value, by: key}}, memory: {plus: {from: new, by: kept}}",
        "seen: {contract: {from: memory, by: key, over: width}}",
        RESULT,
    ),
    "states that others need": cell(
        "count: heads, memory: [heads, d_k], last: d_model",
        "size: {linear: {from: last, to: heads}}, last: {plus: {from: x, by: x}}",
        "new: {linear: {from: x, to: [heads, d_k]}}, memory: {plus: {from: new, by: memory}}",
        "all: {contract: {by: new, over: d_k}}, small: tanh, more: {plus: {by: size}}",
        "count: {plus: {from: count, by: more}}, weighted: {times: {from: memory, by: count}}",
        RESULT,
    ),
}
OTHERS = {
    "rnn": "[rnn]",
    "lstm": "[lstm]",
    "gru": "[gru]",
    "a product with itself": cell("total: d_model", "half: {times: {from: total, by: total}}", SUM),
    "a matrix": cell("total: d_model", "half: {linear: {from: total, to: d_model}}", SUM),
    "two that need each other": cell(
        "a: d_model, b: d_model",
        "new: {plus: {from: b, by: x}}, b: {plus: {from: a, by: x}}, a: {scale: {from: new, factor: 1}}",
    ),
}


def kinds(graph: Graph) -> list[str]:
    return [node.op.kind for node in graph.nodes if node.op.kind in ("recurrence", "linear_scan")]


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_recurrence_is_scanned(tmp_path: Path, name: str) -> None:
    assert_same(language_graph(tmp_path, LINEAR[name], _sizes(LINEAR[name])))


@pytest.mark.parametrize("name", ["a running sum", "a gate, as in a minimal GRU"])
def test_backwards_padding_changes_nothing(tmp_path: Path, name: str) -> None:
    assert_same(tagging_graph(tmp_path, LINEAR[name].replace("cell:", "reverse: true, cell:")))


def test_a_start_is_respected(tmp_path: Path) -> None:
    begun = f"do: {GATED.replace('cell:', 'start: begin, cell:')}"
    assert_same(tagging_graph(tmp_path, f"{{begin: first, states: {{from: x, {begun}}}}}"))


@pytest.mark.parametrize("name", OTHERS)
def test_other_recurrences_stay(tmp_path: Path, name: str) -> None:
    graph = language_graph(tmp_path, OTHERS[name])
    assert scan(graph) == graph


def test_dropout_and_a_weight_of_the_state_follow_the_scan(tmp_path: Path) -> None:
    steps = LINEAR["a running sum"].replace("by: x}}}", "by: x}}, seen: {linear: d_model}, some: {dropout: 0.5}}")
    scanned = scan(language_graph(tmp_path, steps))
    assert kinds(scanned) == ["linear_scan"]
    assert [node.op.kind for node in scanned.nodes][-4:] == ["linear_scan", "linear", "dropout", "linear"]


def _sizes(steps: str) -> str:
    return ", ".join(f"{name}: 2" for name in ("heads", "d_k", "width") if name in steps)


def assert_same(graph: Graph) -> None:
    """The graph has one scan or more and no loop, and the results and gradients of the loop."""
    scanned = verify(scan(graph))
    assert set(kinds(graph)) == {"recurrence"} and set(kinds(scanned)) == {"linear_scan"}
    assert text.parse(text.format(scanned)) == scanned
    tokens = torch.randint(4, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    tokens[1, 5:] = 0
    looped, parallel = (TorchModule(item, seed=3).double() for item in (graph, scanned))
    results = [item(tokens) for item in (looped, parallel)]
    real = tokens != 0 if "labels" in str(graph.outputs[0].type) else torch.ones_like(tokens, dtype=torch.bool)
    torch.testing.assert_close(results[1][real], results[0][real], rtol=1e-6, atol=1e-6)
    for result in results:
        result[real].square().sum().backward()
    wanted = {name: parameter.grad for name, parameter in looped.named_parameters()}
    for name, parameter in parallel.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], rtol=1e-6, atol=1e-6)


def run_loop(inputs: Tensor, factors: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """The states, position by position along the second axis."""
    count, state, states = inputs.shape[1], start, dict[int, Tensor]()
    for at in range(count - 1, -1, -1) if reverse else range(count):
        state = factors.expand_as(inputs).narrow(1, at, 1) * state + inputs.narrow(1, at, 1)
        states[at] = state
    return torch.cat([states[at] for at in range(count)], 1)


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(
    count=st.integers(1, 40),
    elements=st.sampled_from([1, 20, 60, 10_000]),
    shape=st.sampled_from([(2, None, 3, 2), (2, None, 1, 2), (1, 1, 3, 1), (3, 1), ()]),
    reverse=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_scan_is_the_loop(
    count: int, elements: int, shape: tuple[int | None, ...], reverse: bool, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(count)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=random, dtype=dtype).requires_grad_()

    given = normal(2, count, 3, 2), normal(*(count if size is None else size for size in shape)), normal(2, 1, 3, 2)
    weights = normal(2, count, 3, 2).detach()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_ELEMENTS", elements)
        found = linear_scan(*given, axis=1, reverse=reverse)
        changes = torch.autograd.grad(found, given, weights)
    expected = run_loop(*given, reverse=reverse)
    wanted = torch.autograd.grad(expected, given, weights)
    for one, other in zip((found, *changes), (expected, *wanted), strict=True):
        bound = (1e-5 if dtype == torch.float32 else 1e-13) * max(1.0, other.abs().max().item())
        torch.testing.assert_close(one, other, rtol=0, atol=bound)


def test_the_error_is_bounded_at_512_positions() -> None:
    """By 2e-6 of the largest state, for factors between 0 and 1."""
    random = torch.Generator().manual_seed(0)
    inputs, factors = (torch.randn(4, 512, 64, generator=random) for _ in range(2))
    start = torch.zeros(4, 1, 64)
    found = linear_scan(inputs, factors.sigmoid(), start, 1, reverse=False)
    exact = run_loop(inputs.double(), factors.sigmoid().double(), start.double(), reverse=False)
    assert (found - exact).abs().max() < 2e-6 * exact.abs().max()


def test_products_of_factors_do_not_overflow() -> None:
    factors = torch.tensor([1e20, 1e20, 1e20, 0.0, 1.0, 1e20]).reshape(1, 6, 1)
    inputs = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 0.0]).reshape(1, 6, 1)
    start = torch.zeros(1, 1, 1)
    found = linear_scan(inputs, factors, start, 1, reverse=False)
    torch.testing.assert_close(found, run_loop(inputs, factors, start, reverse=False))


def test_a_scan_computes_in_float32_at_least() -> None:
    given = [torch.ones(1, 300, 2, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16), torch.zeros(1, 1, 2)]
    with torch.autocast("cpu", torch.bfloat16):
        found = linear_scan(*given, axis=1, reverse=False)
    assert found.dtype == torch.float32 and found[0, -1, 0] == 300


def test_a_compiled_scan_is_the_scan() -> None:
    given = torch.randn(2, 7, 3), torch.rand(2, 7, 3).requires_grad_(), torch.zeros(2, 1, 3)
    compiled = torch.compile(linear_scan, backend="eager")
    torch.testing.assert_close(compiled(*given, 1, False), linear_scan(*given, 1, reverse=False))
