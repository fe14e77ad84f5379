"""The fused loss equals torch's cross entropy, in value and in every gradient."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch import chunked_loss
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Initial
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.ops.linear import Linear
from xformc.compiler.ops.loss import CrossEntropy, LaterTokenLoss, LinearCrossEntropy
from xformc.compiler.passes.with_loss import with_loss
from xformc.compiler.pipeline import compile_training
from xformc.compiler.results.kind import Declared
from xformc.compiler.spec import Spec, load_spec

LABELS = Declared("labels", "labels", settings={"several": False})


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("ignore", [0, -100])
def test_linear_cross_entropy_is_torchs(
    smoothing: float, with_bias: bool, ignore: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_loss, "CHUNK_ROWS", 7)
    torch.manual_seed(0)
    x = torch.randn(31, 8, requires_grad=True)
    weight = torch.randn(19, 8, requires_grad=True)
    bias = torch.randn(19, requires_grad=True) if with_bias else None
    labels = torch.randint(0, 19, (31,))
    labels[::5] = ignore
    loss, nll, count = chunked_loss.linear_cross_entropy(x, weight, bias, labels, smoothing, ignore)
    parameters = [x, weight, *([bias] if bias is not None else [])]
    gradients = torch.autograd.grad(3.0 * loss, parameters)

    logits = x @ weight.T + (0 if bias is None else bias)
    wanted = torch.nn.functional.cross_entropy(logits, labels, ignore_index=ignore, label_smoothing=smoothing)
    plain = torch.nn.functional.cross_entropy(logits, labels, ignore_index=ignore, reduction="sum")
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(nll, plain)
    assert count == (labels != ignore).sum()
    for found, expected in zip(gradients, torch.autograd.grad(3.0 * wanted, parameters), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("with_bias", [False, True])
def test_agreement_is_half_of_the_loss_of_r_drop(with_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equation 4 of Liang et al. 2021, by autograd; the op without the projection has the same loss."""
    monkeypatch.setattr(chunked_loss, "CHUNK_ROWS", 7)
    torch.manual_seed(0)
    x = torch.randn(2 * 13, 8, requires_grad=True)
    weight = torch.randn(19, 8, requires_grad=True)
    bias = torch.randn(19, requires_grad=True) if with_bias else None
    labels = torch.randint(1, 19, (13,)).repeat(2)
    labels[4] = labels[4 + 13] = 0
    loss, nll, count = chunked_loss.linear_cross_entropy(x, weight, bias, labels, 0.1, 0, agreement=5.0)
    parameters = [x, weight, *([bias] if bias is not None else [])]
    gradients = torch.autograd.grad(loss, parameters)

    logits = x @ weight.T + (0 if bias is None else bias)
    functional = torch.nn.functional
    one, two = (
        functional.cross_entropy(half, labels[:13], ignore_index=0, label_smoothing=0.1) for half in logits.chunk(2)
    )
    p, q = torch.log_softmax(logits, -1).chunk(2)
    first, second = (functional.kl_div(*pair, reduction="none", log_target=True) for pair in ((q, p), (p, q)))
    divergence = (first + second).sum(-1)[labels[:13] != 0].mean()
    wanted = (one + two + 5.0 * divergence / 2) / 2
    torch.testing.assert_close(loss, wanted)
    for found, expected in zip(gradients, torch.autograd.grad(wanted, parameters, retain_graph=True), strict=True):
        torch.testing.assert_close(found, expected)
    assert count == 12
    plain = functional.cross_entropy(logits, labels, ignore_index=0, reduction="sum")
    torch.testing.assert_close(nll, plain / 2)

    classes = Axis("classes", 19)
    builder = GraphBuilder("loss")
    given = builder.input("logits", Type("float32", (Axis("batch"), classes)))
    target = builder.input("labels", Type("int64", (Axis("batch"),)))
    module = TorchModule(builder.finish(builder.emit_all(CrossEntropy(0.1, 0, 5.0), (given, target), "loss", None)))
    for found, expected in zip(module(logits, labels), (loss, nll, count), strict=True):
        torch.testing.assert_close(found, expected)
    assert module.eval()(logits, labels)[2] == 24


def test_linear_cross_entropy_of_nothing_but_padding_is_zero() -> None:
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    loss, _, count = chunked_loss.linear_cross_entropy(x, weight, None, torch.zeros(3, dtype=torch.int64), 0.1, 0)
    loss.backward()
    assert loss.item() == 0 and count == 0 and x.grad is not None and not x.grad.any()


def test_with_loss_fuses_the_projection(tiny_spec: Spec) -> None:
    graph = with_loss(compile_spec(tiny_spec), tiny_spec.results, 0.1)
    assert isinstance(graph.nodes[-1].op, LinearCrossEntropy)
    assert not any(isinstance(node.op, CrossEntropy) for node in graph.nodes)


def test_with_loss_has_the_parameters_of_the_graph(tiny_spec: Spec) -> None:
    graph = compile_spec(tiny_spec)
    module, with_labels = TorchModule(graph, seed=5), TorchModule(with_loss(graph, tiny_spec.results, 0.1), seed=5)
    for (name, first), (other, second) in zip(
        module.state_dict().items(), with_labels.state_dict().items(), strict=True
    ):
        assert name == other
        assert torch.equal(first, second)


@pytest.mark.parametrize("over", ["d", "positions"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_with_loss_is_torchs_for_labels_of_any_axes(over: str, smoothing: float) -> None:
    """A result of a label each, made by a projection over the last axis (fused) or over another one (not)."""
    sizes = {"d": 4, "positions": 3}
    kept = next(name for name in sizes if name != over)
    builder = GraphBuilder("tagger")
    x = builder.input("x", Type("float32", (Axis("batch"), Axis("positions", 3), Axis("d", 4))))
    shape = Type("float32", (Axis("classes", 5), Axis(over, sizes[over])))
    weight = builder.parameter("weight", shape, Initial("normal", 1.0))
    graph = with_loss(builder.finish([builder.emit(Linear((over,)), (x, weight), "y")]), (LABELS,), smoothing)
    assert isinstance(graph.nodes[-1].op, LinearCrossEntropy if over == "d" else CrossEntropy)
    module = TorchModule(graph, seed=1)
    values, labels = torch.randn(2, 3, 4), torch.randint(0, 5, (2, sizes[kept]))
    labels[1, 1] = -100
    loss, nll, count = module(values, labels)
    weights = module.get_parameter("weight")
    logits = (values @ weights.T if over == "d" else values.transpose(1, 2) @ weights.T).flatten(0, 1)
    plain = torch.nn.functional.cross_entropy(logits, labels.flatten(), reduction="sum")
    torch.testing.assert_close(nll, plain)
    wanted = torch.nn.functional.cross_entropy(logits, labels.flatten(), label_smoothing=smoothing)
    torch.testing.assert_close(loss, wanted)
    assert count == 2 * sizes[kept] - 1


def test_with_loss_takes_one_label_for_a_whole() -> None:
    builder = GraphBuilder("classifier")
    x = builder.input("x", Type("float32", (Axis("batch"), Axis("d", 4))))
    weight = builder.parameter("weight", Type("float32", (Axis("classes", 5), Axis("d", 4))), Initial("normal", 1.0))
    module = TorchModule(with_loss(builder.finish([builder.emit(Linear(("d",)), (x, weight), "y")]), (LABELS,), 0.1))
    loss, _, count = module(values := torch.randn(3, 4), labels := torch.tensor([0, 4, 2]))
    logits = values @ module.get_parameter("weight").T
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.1))
    assert count == 3


def test_linear_cross_entropy_without_gradients_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "mm", None)
    x, weight = torch.randn(3, 4), torch.nn.Parameter(torch.randn(5, 4))
    with torch.no_grad():
        loss, nll, _ = chunked_loss.linear_cross_entropy(x, weight, None, torch.tensor([1, 2, 3]), 0.0, 0)
    torch.testing.assert_close(3 * loss, nll)


HEADS = """\
extends: gpt
sizes: {layers: 1, d_model: 8, d_ff: 8, heads: 2, vocabulary: 20, max_positions: 16, dropout: 0}
results: {text: {text: logits}}
model:
  second: {from: decoder, do: [linear: vocabulary, later_token_loss: {ahead: 2, weight: 0.5}]}
  third: {from: decoder, do: [linear: vocabulary, later_token_loss: {ahead: 3, weight: 0.25}]}
train: {max_length: 16, label_smoothing: 0.1}
"""


def test_heads_learn_later_tokens(tmp_path: Path) -> None:
    """Each by the labels of the text from its own on; the padding behind a text and its last tokens do not count."""
    (tmp_path / "heads.yaml").write_text(HEADS)
    spec = load_spec(tmp_path / "heads.yaml")
    graph = compile_training(spec).graph
    assert sum(isinstance(node.op, LinearCrossEntropy) for node in graph.nodes) == 3
    module = TorchModule(graph, seed=3).eval()
    tokens, labels = torch.randint(4, 20, (2, 6)), torch.randint(4, 20, (2, 6))
    labels[1, 4:] = 0
    losses = module(tokens, labels)
    heads = tuple(node.outputs[0] for node in spec.graph().nodes if isinstance(node.op, LaterTokenLoss))
    model = TorchModule(replace(spec.graph(), outputs=heads)).eval()
    model.load_state_dict(module.state_dict())
    for ahead, weight, logits, loss in zip((2, 3), (0.5, 0.25), model(tokens), losses[3::3], strict=True):
        later = torch.zeros_like(labels)
        later[:, : 1 - ahead] = labels[:, ahead - 1 :]
        wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), later.flatten(), ignore_index=0)
        torch.testing.assert_close(loss, weight * wanted)
