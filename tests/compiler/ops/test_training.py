"""What only training does: noise, stopped gradients, and the statistics of batch normalization."""

from pathlib import Path

import pytest
import torch
from steps import assert_padding_does_not_matter, assert_steps_are_the_training_form, language_graph, tagging_graph

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.ops.batch_norm import LEARNED, BatchNorm
from xformc.compiler.ops.training import TRAINING_ONLY
from xformc.compiler.passes.inference import inference
from xformc.compiler.spec import SpecError

TOKENS = torch.tensor([[4, 5, 6, 0, 0], [7, 8, 9, 10, 11]])


def test_inference_removes_what_only_training_does(tmp_path: Path) -> None:
    graph = inference(language_graph(tmp_path, "{loud: {noise: 0.5}, held: stop_gradient, sum: {plus: x}}"))
    assert not any(isinstance(node.op, TRAINING_ONLY) for node in graph.nodes)


def test_noise_has_its_deviation_and_each_step_its_own(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, "{a: {noise: 0.5}, b: {noise: {from: x, deviation: 0.5}}, out: {minus: a}}")
    module = TorchModule(graph)
    torch.manual_seed(0)
    values = module.all_values(torch.randint(4, 20, (16, 64)))
    assert values["body/out"].std().item() == pytest.approx(0.5 * 2**0.5, rel=0.05)
    values = module.eval().all_values(TOKENS)
    assert not values["body/out"].any()


def test_no_gradient_flows_through_a_stopped_value(tmp_path: Path) -> None:
    graph = language_graph(tmp_path, "{other: {linear: d_model}, held: stop_gradient, product: {times: x}}")
    module = TorchModule(graph)
    module(TOKENS).sum().backward()
    grads = {name: parameter.grad for name, parameter in module.named_parameters()}
    assert grads["body.other.weight"] is None
    assert grads["start.weight"] is not None


def test_batch_norm_is_that_of_pytorch_and_skips_padding(tmp_path: Path) -> None:
    module = TorchModule(tagging_graph(tmp_path, "{normal: batch_norm}"))
    expected = torch.nn.BatchNorm1d(6)
    for _ in range(3):
        values = module.all_values(TOKENS)
        wanted = expected(values["start"][TOKENS > 0])
        torch.testing.assert_close(values["body/normal"][TOKENS > 0], wanted)
    arrays = module.arrays()
    torch.testing.assert_close(torch.tensor(arrays["body/normal/mean"]), expected.running_mean)
    torch.testing.assert_close(torch.tensor(arrays["body/normal/variance"]), expected.running_var)
    module.eval()
    expected.eval()
    values = module.all_values(TOKENS)
    torch.testing.assert_close(values["body/normal"][TOKENS > 0], expected(values["start"][TOKENS > 0]))
    assert not module.get_parameter("body.normal.mean").requires_grad


def test_engines_keep_the_statistics_and_need_no_mask(tmp_path: Path) -> None:
    graph = tagging_graph(tmp_path, "{normal: batch_norm}")
    assert_padding_does_not_matter(graph, tmp_path)
    assert [len(node.inputs) for node in inference(graph).nodes if isinstance(node.op, BatchNorm)] == [LEARNED]
    assert_steps_are_the_training_form(language_graph(tmp_path, "{normal: batch_norm}"), tmp_path)


REFUSED = {
    "[noise: -1]": "the deviation must not be negative, found -1",
    "[batch_norm: {momentum: 1}]": "momentum must be greater than 0 and less than 1, found 1",
    "[batch_norm: {epsilon: 0}]": "epsilon must be greater than 0 and less than 1, found 0",
}


@pytest.mark.parametrize("steps", REFUSED)
def test_wrong_numbers_are_refused(tmp_path: Path, steps: str) -> None:
    with pytest.raises(SpecError) as error:
        language_graph(tmp_path, steps)
    assert error.value.problems[0].message == REFUSED[steps]
