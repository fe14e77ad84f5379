"""The cost rules agree with execution: operations with PyTorch's counter, states with their arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from xformc.compiler import compile_spec
from xformc.compiler import ops as _ops
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.explain.cost.run_sizes import step_sizes
from xformc.compiler.explain.cost.spec_cost import BACKWARD
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.cost import ONE, ZERO, count, size_in_bytes, total
from xformc.compiler.graph.graph import Graph, Op
from xformc.compiler.graph.rules import cost, cost_of
from xformc.compiler.ops import native
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import Decoder, derive_step
from xformc.compiler.spec import Spec, load_spec

assert _ops, "importing the ops fills the rule tables"

SMALL = "d_model: 12, d_ff: 20, heads: 3, d_k: 4, d_v: 4, vocabulary: 30, layers: 2"
SPECS = {
    "transformer": f"extends: transformer_base\nsizes: {{{SMALL}}}\n",
    "window": f"extends: local_attention\nsizes: {{{SMALL}, window: 3}}\n",
    "relu": f"extends: relu_attention\nsizes: {{{SMALL}}}\n",
    "additive": f"extends: additive_attention\nsizes: {{{SMALL}}}\n",
    "shared_keys": f"extends: multi_query\nsizes: {{{SMALL}}}\n",
    "convolutions": "extends: convs2s\nsizes: {layers: 2, d_model: 10, width: 5, vocabulary: 30}\n",
    "dilated": "extends: bytenet\nsizes: {sets: 1, d_model: 8, vocabulary: 30}\n",
    "depthwise": "extends: separable_convolution\nsizes: {layers: 1, d_model: 6, vocabulary: 30}\n",
    "recurrent": "extends: seq2seq\nsizes: {d_model: 10, vocabulary: 30}\n",
    "recurrent_attention": "extends: seq2seq_attention\nsizes: {d_model: 10, vocabulary: 30}\n",
    "both_ways": "extends: bilstm_tagger\nsizes: {d_model: 10, vocabulary: 30}\n",
    "memory": "extends: memory_network\nsizes: {d_model: 10, vocabulary: 30}\n",
    "linear_attention": f"extends: linear_attention\nsizes: {{{SMALL}}}\n",
    "state_space": "extends: state_space\nsizes: {layers: 1, d_model: 6, d_state: 3, d_ff: 8, vocabulary: 30}\n",
    "image": "extends: vit\nsizes: {layers: 1, d_model: 12, heads: 3, height: 32, width: 48, labels: 7}\n",
}
DECODED = ["transformer", "window", "convolutions", "dilated", "recurrent", "recurrent_attention", "linear_attention"]


@pytest.fixture
def small(tmp_path: Path) -> Callable[[str], Spec]:
    def load(name: str) -> Spec:
        path = tmp_path / f"small_{name}.yaml"
        path.write_text(SPECS[name])
        return load_spec(path)

    return load


def random_value(type: Type, sizes: dict[str, int], random: np.random.Generator) -> torch.Tensor:
    shape = [sizes[axis.name] if axis.size is None else axis.size for axis in type.axes]
    if type.dtype == "int64":
        return torch.from_numpy(random.integers(1, 30, shape))
    return torch.from_numpy(random.standard_normal(shape).astype(np.float32)).to(getattr(torch, type.dtype))


def executed(graph: Graph, sizes: dict[str, int], random: np.random.Generator) -> int:
    """The operations of products that PyTorch counts while it runs the graph; of attention it counts this kernel's."""
    module = TorchModule(graph).eval()
    inputs = [random_value(value.type, sizes, random) for value in graph.inputs]
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return counter.get_total_flops()


def run_sizes(graph: Graph, lengths: dict[str, int]) -> dict[str, int]:
    """The sizes of axes that only the run knows; keys are as many as the positions that they are made of."""
    sizes = dict(lengths)
    for node in graph.nodes:
        if node.op.kind == "as_keys":
            op: Any = node.op
            sizes[op.keys] = sizes.get(op.positions, 0)
    return sizes


@pytest.mark.parametrize("name", SPECS)
def test_products_are_those_that_pytorch_executes(name: str, small: Callable[[str], Spec]) -> None:
    graph, random = inference(compile_spec(small(name))), np.random.default_rng(len(name))
    for _ in range(2):
        names = {axis.name for value in graph.inputs for axis in value.type.axes if axis.size is None}
        lengths = {name: int(random.integers(1, 9)) for name in sorted(names)}
        sizes = run_sizes(graph, lengths)
        assert total(map(cost_of, graph.nodes)).products.at(sizes) == executed(graph, sizes, random), sizes


@pytest.mark.parametrize("name", ["transformer", "convolutions", "linear_attention"])
def test_products_of_the_backward_pass_are_twice_those_of_the_forward_pass(
    name: str, small: Callable[[str], Spec]
) -> None:
    graph, random = inference(compile_spec(small(name))), np.random.default_rng(3)
    sizes = run_sizes(graph, {value.name: 5 for value in graph.inputs} | {"batch": 2})
    module = TorchModule(graph)
    inputs = [random_value(value.type, sizes, random) for value in graph.inputs]
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(*inputs).sum().backward()
    forward = total(map(cost_of, graph.nodes)).products.at(sizes)
    assert counter.get_total_flops() == (1 + BACKWARD) * forward


@pytest.mark.parametrize("name", DECODED)
def test_products_of_a_step_are_those_that_pytorch_executes(name: str, small: Callable[[str], Spec]) -> None:
    decoder, random = decoder_of(small(name)), np.random.default_rng(len(name))
    for length in (1, 5):
        sizes = step_sizes(decoder, length)
        assert total(map(cost_of, decoder.step.nodes)).products.at(sizes) == executed(decoder.step, sizes, random)


def decoder_of(spec: Spec) -> Decoder:
    return derive_step(inference(compile_spec(spec)), "target" if spec.task == "translation" else "text")


@pytest.mark.parametrize("name", DECODED)
def test_bytes_of_states_are_those_of_their_arrays(name: str, small: Callable[[str], Spec]) -> None:
    decoder, random = decoder_of(small(name)), np.random.default_rng(1)
    sizes = step_sizes(decoder, 6)
    module = TorchModule(decoder.step).eval()
    with torch.inference_mode():
        results = module(*(random_value(value.type, sizes, random) for value in decoder.step.inputs))
    after = step_sizes(decoder, 7)
    assert len(results) == 1 + len(decoder.states)
    for state, array in zip(decoder.states, results[1:], strict=True):
        assert size_in_bytes(state.past.type).at(after) == array.nbytes


def test_every_op_has_a_cost() -> None:
    # a report counts the graph before its last pass
    kernels = {kind for kind, op in Op.registry.items() if op.__module__ == native.__name__}
    assert set(Op.registry) - cost.kinds() == kernels


def test_polynomials_add_multiply_and_evaluate() -> None:
    n, d = Axis("n"), Axis("d", 5)
    area = count((n, d)) * count((n,)) + count((d, n, n)) * 2 + ONE
    assert area.terms == (((d, n, n), 3), ((), 1))
    assert area.at({"n": 4}) == 3 * 5 * 16 + 1
    assert (area * 0, area * ZERO) == (ZERO, ZERO)


def test_a_size_that_is_missing_is_an_error() -> None:
    with pytest.raises(KeyError, match="n"):
        count((Axis("n"),)).at({})
