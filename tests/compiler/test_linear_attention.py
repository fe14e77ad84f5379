"""Linear attention by matrix products: the results and gradients of the written form; other forms stay as they are."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import language_graph
from torch import Tensor

from xformc.compiler.backends.torch.linear_attention import linear_attention
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.passes.hoist import hoist
from xformc.compiler.passes.linear_attention import fuse_linear_attention
from xformc.compiler.passes.scan import scan

QUERIES = "query: {linear: [heads, d_k]}, key: {linear: {from: x, to: [heads, d_k]}}"
VALUES = "value: {linear: {from: x, to: [heads, d_v]}}, new: {times: key}"
OUT = "seen: {contract: {by: query, over: d_k}}, output: {linear: {over: [heads, d_v], to: d_model}}"


def recurrence(*fading: str, out: str = OUT) -> str:
    state = "state: {memory: [heads, d_k, d_v]}"
    cell = ", ".join([QUERIES, VALUES, *fading, "memory: {plus: {from: kept, by: new}}", out])
    return f"[recurrence: {{{state}, cell: {{do: {{{cell}}}}}}}]"


KEPT = "kept: {times: {from: memory, by: open}}"
FUSED = {
    "a running sum": f"{{{QUERIES}, {VALUES}, sums: cumulative_sum, {OUT}}}",
    "without heads": "{key: {linear: d_k}, value: {linear: {from: x, to: d_v}}, new: {times: key}, "
    "sums: cumulative_sum, seen: {contract: {from: key, by: sums, over: d_k}}, output: {linear: d_model}}",
    "one head of keys": f"{{query: {{linear: [heads, d_k]}}, key: {{linear: {{from: x, to: d_k}}}}, {VALUES}, "
    f"sums: cumulative_sum, {OUT}}}",
    "values of several axes": "{key: {linear: d_k}, value: {linear: {from: x, to: [heads, d_v]}}, new: {times: key}, "
    "sums: cumulative_sum, seen: {contract: {by: key, over: d_k}}, "
    "output: {linear: {over: [heads, d_v], to: d_model}}}",
    "a number as factor": recurrence("kept: {scale: {from: memory, factor: 0.9}}"),
    "a learned decay": recurrence("rate: {weight: heads}, open: sigmoid", KEPT),
    "a gate": recurrence("gate: {linear: {from: x, to: heads}}, open: sigmoid", KEPT),
    "a decay of each key, learned": recurrence("rate: {weight: [d_k, heads]}, open: sigmoid", KEPT),
    "a decay of each key": recurrence("gate: {linear: {from: x, to: [heads, d_k]}}, open: sigmoid", KEPT),
    "a decay of each key of either sign": recurrence("gate: {linear: {from: x, to: d_k}}, open: tanh", KEPT),
    "a gate of either sign": recurrence("gate: {linear: {from: x, to: heads}}, open: tanh", KEPT),
}
WRITTEN = {
    "a decay of each value": recurrence("gate: {linear: {from: x, to: d_v}}, open: sigmoid", KEPT),
    "sums of keys alone": "{key: {linear: d_k}, sums: cumulative_sum, seen: {contract: {by: key, over: d_k}}, "
    "output: {times: x}}",
    "sums with another user": f"{{{QUERIES}, {VALUES}, sums: cumulative_sum, "
    "seen: {contract: {by: query, over: d_k}}, last: {contract: {from: sums, by: key, over: d_k}}, "
    "both: {plus: seen}, output: {linear: {over: [heads, d_v], to: d_model}}}",
}


def graphs(folder: Path, steps: str) -> tuple[Graph, Graph]:
    """The graph with scans, and the same with linear attention."""
    sizes = [name for name in ("heads", "d_k", "d_v") if name in steps]
    sized = ", ".join(f"{name}: {2 + index}" for index, name in enumerate(sizes))
    written = scan(hoist(language_graph(folder, steps, sized)))
    return written, verify(fuse_linear_attention(written))


@pytest.mark.parametrize("name", FUSED)
def test_results_and_gradients_are_those_of_the_sums(tmp_path: Path, name: str) -> None:
    written, fused = graphs(tmp_path, FUSED[name])
    kinds = [node.op.kind for node in fused.nodes]
    assert "linear_attention" in kinds and not {"cumulative_sum", "linear_scan"} & {*kinds}
    assert text.parse(text.format(fused)) == fused
    tokens = torch.randint(4, 20, (3, 150), generator=torch.Generator().manual_seed(0))
    first, second = (TorchModule(graph, seed=3).double() for graph in (written, fused))
    results = [module(tokens) for module in (first, second)]
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-9)
    for result in results:
        result.square().mean().backward()
    for (key, parameter), (_, other) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        torch.testing.assert_close(other.grad, parameter.grad, rtol=1e-9, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", WRITTEN)
def test_other_sums_stay(tmp_path: Path, name: str) -> None:
    written, fused = graphs(tmp_path, WRITTEN[name])
    assert fused == written


def loop(query: Tensor, key: Tensor, value: Tensor, factors: Tensor | None) -> Tensor:
    """The definition, position by position."""
    state, found = torch.zeros(()).to(query), list[Tensor]()
    every = None if factors is None else factors.expand(*factors.shape[:-2], key.shape[-2], factors.shape[-1])
    for at in range(key.shape[-2]):
        kept = state if every is None else state * every[..., at, :, None]
        state = kept + key[..., at, :, None] * value[..., at, None, :]
        found.append((query[..., at, None, :] @ state).squeeze(-2))
    return torch.stack(found, -2)


@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@given(
    count=st.integers(1, 40),
    chunk=st.sampled_from([1, 4, 16, 64]),
    factors=st.sampled_from(["none", "one", "each", "signs", "large", "keys", "a rate of keys", "zeros of keys"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_it_is_the_loop(count: int, chunk: int, factors: str, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(count)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=random, dtype=dtype)

    given = [normal(2, 1, count, 3), normal(2, 3, count, 3), normal(3, count, 2)]
    fading = {
        "none": None,
        "one": normal(3, 1, 1).sigmoid(),
        "each": normal(2, 1, count, 1).sigmoid(),
        "signs": normal(2, 3, count, 1).clamp(-1, 1) * (normal(2, 3, count, 1) > -1),
        "large": 1 + normal(2, 1, count, 1).abs() / 10,
        "keys": normal(2, 3, count, 3).clamp(-1, 1),
        "a rate of keys": normal(3, 1, 3).sigmoid(),
        "zeros of keys": torch.zeros(1, count, 3, dtype=dtype),
    }[factors]
    given = [each.requires_grad_() for each in (*given, *(() if fading is None else (fading,)))]
    query, key, value, *others = given
    found, expected = (
        linear_attention(query, key, value, others[0] if others else None, chunk),
        loop(query, key, value, others[0] if others else None),
    )
    weights = normal(*expected.shape)
    changes, wanted = (torch.autograd.grad(result, given, weights) for result in (found, expected))
    for one, other in zip((found, *changes), (expected, *wanted), strict=True):
        exact = dtype == torch.float64 and factors != "zeros of keys"
        bound = (1e-12 if exact else 1e-5) * max(1.0, other.abs().max().item())
        torch.testing.assert_close(one, other, rtol=0, atol=bound)


def test_products_of_factors_do_not_overflow() -> None:
    factors = torch.tensor([1e20, 1e20, 1e20, 0.0, 1.0, 1e20]).reshape(1, 6, 1)
    key = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 0.0]).reshape(1, 6, 1)
    ones = torch.ones(1, 6, 1)
    found = linear_attention(ones, key, ones, factors, 64)
    torch.testing.assert_close(found, loop(ones, key, ones, factors))


@pytest.mark.parametrize("width", [1, 16])
def test_the_error_is_bounded_at_512_positions(width: int) -> None:
    random = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 512, 16, generator=random) for _ in range(3))
    factors = torch.rand(2, 512, width, generator=random)
    exact = loop(query.double(), key.double(), value.double(), factors.double())
    found = linear_attention(query, key, value, factors, 64)
    assert (found - exact).abs().max() < 2e-6 * exact.abs().max()


def test_it_computes_in_float32_at_least() -> None:
    ones = torch.ones(1, 300, 1, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = linear_attention(ones, ones, ones, None, 64)
    assert found.dtype == torch.float32 and found[0, -1, 0] == 300


def test_compiled_it_is_the_same() -> None:
    query, key, value = torch.randn(3, 2, 70, 3)
    compiled = torch.compile(linear_attention, backend="eager")
    found = compiled(query, key, value, None, 64)
    torch.testing.assert_close(found, linear_attention(query, key, value, None, 64))
