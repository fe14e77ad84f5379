"""The linear recurrent unit is its recurrence of complex numbers, in a scan, in steps and in any batch."""

from pathlib import Path

import numpy as np
import torch
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph
from xformc.compiler.passes.hoist import hoist
from xformc.compiler.passes.scan import scan


def graph(folder: Path) -> Graph:
    return language_graph(folder, "[lru]", "d_state: 5")


def test_it_is_a_recurrence_of_complex_numbers(tmp_path: Path) -> None:
    module = TorchModule(graph(tmp_path), seed=1).eval()
    weights = {name.removeprefix("body/"): value.astype(np.float64) for name, value in module.arrays().items()}
    tokens = torch.randint(4, 20, (1, 50), generator=torch.Generator().manual_seed(0))
    values = module.all_values(tokens)
    (x,) = values["start"].double().detach().numpy()
    rate = np.exp(-np.exp(weights["logarithm/weight"] - 3))
    turn = rate * np.exp(1j * weights["direction/weight"])
    inputs = x @ (weights["real/weight"] + 1j * weights["imaginary/weight"]).T * np.sqrt(1 - rate**2)
    state, expected = np.zeros(5, np.complex128), np.zeros((50, 6))
    for position, number in enumerate(inputs):
        state = turn * state + number
        out = weights["real_output/weight"] @ state.real + weights["imaginary_output/weight"] @ state.imag
        expected[position] = out + weights["real_output/bias"] + weights["skip/weight"] * x[position]
    np.testing.assert_allclose(values["body/result"][0].detach().numpy(), expected, atol=1e-5)


def test_training_scans_it_with_the_results_of_the_loop(tmp_path: Path) -> None:
    plain = graph(tmp_path)
    scanned = scan(hoist(plain))
    assert [node.op.kind for node in scanned.nodes if node.op.kind in ("recurrence", "linear_scan")] == [
        "linear_scan"
    ] * 2
    first, second = TorchModule(plain, seed=1).eval(), TorchModule(scanned, seed=1).eval()
    tokens = torch.randint(4, 20, (2, 40), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(first(tokens), second(tokens), rtol=0, atol=1e-5)


def test_steps_are_the_training_form(tmp_path: Path) -> None:
    decoder = assert_steps_are_the_training_form(graph(tmp_path), tmp_path)
    assert [str(state.past.type) for state in decoder.states] == ["float32[batch, text=1, d_state=5]"] * 2


def test_padding_does_not_matter(tmp_path: Path) -> None:
    assert_padding_does_not_matter(tagging_graph(tmp_path, "[lru]", "d_state: 5"), tmp_path)
