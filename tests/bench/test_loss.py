"""The losses that `benchmarks.loss` times are the same loss."""

import pytest
import torch

from benchmarks.loss import FORMS, PAD, Cell, evaluate, exact_results, make_inputs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_every_form_gives_the_loss_and_its_gradients(form: str, smoothing: float, bias: bool, gradients: bool) -> None:
    cell = Cell("numbers", 40, "float32", smoothing, bias, gradients, "cpu")
    for found, wanted in zip(evaluate(cell, form, make_inputs(cell)), exact_results(cell), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_sum_of_unsmoothed_losses_and_the_count(form: str) -> None:
    inputs = make_inputs(Cell("numbers", 40, "float32", 0.1, False, True, "cpu"))
    _, nll, count = FORMS[form](**inputs, smoothing=0.1)
    logits = inputs["x"] @ inputs["weight"].T
    wanted = torch.nn.functional.cross_entropy(logits, inputs["labels"], ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(nll, wanted.detach())
    assert count == (inputs["labels"] != PAD).sum() < 40
