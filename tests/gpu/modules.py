"""The PyTorch module of every spec on the device: its results, a training step in bfloat16, and torch.compile."""

import copy
from typing import Any

import torch

from benchmarks.gpu.report import Report
from tests.small_specs import small
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.pipeline import compile_engine, compile_training
from xformc.compiler.results.kind import Declared
from xformc.compiler.spec import Spec
from xformc.trainer.data.batches import Batch
from xformc.trainer.loop import mean_losses, take_step
from xformc.trainer.optimizers import make_optimizer
from xformc.trainer.run import Identity
from xformc.trainer.train import make_recipe

BOUND = 1e-4
"""Of the difference between the devices, relative to the largest result where that is above 1."""

SECONDS, COMPILING = 20.0, 90.0


def measure(report: Report, specs: list[str]) -> None:
    """Add the rows of results and of training for each spec."""
    for name in specs:
        report.row({"module": name}, lambda: _compared(name, report.device, compile=False), SECONDS)  # noqa: B023
        report.row({"bfloat16 training": name}, lambda: _trained(name, report.device), SECONDS)  # noqa: B023


def measure_compiled(report: Report, specs: list[str]) -> None:
    """Add the rows of torch.compile for those that have a recurrence."""
    for name in specs:
        graph = compile_spec(small(name))
        if any(isinstance(node.op, Recurrence) for node in graph.nodes):
            report.row({"compiled": name}, lambda: _compared(name, report.device, compile=True), COMPILING)  # noqa: B023
            torch.compiler.reset()


def _compared(name: str, device: torch.device, *, compile: bool) -> dict[str, Any]:
    """The largest difference between the module on the device, compiled or not, and on the processor."""
    spec, feeds, _ = _example(name)
    module = TorchModule(compile_spec(spec), seed=1).eval()
    other = copy.deepcopy(module).to(device)
    if compile:
        other.compile()
    with torch.inference_mode():
        pairs = zip(_tuple(module(*feeds)), _tuple(other(*(value.to(device) for value in feeds))), strict=True)
        difference = max(_difference(expected, found.cpu()) for expected, found in pairs)
    return {"difference": difference} | ({} if difference <= BOUND else {"failed": f"above {BOUND:g}"})


def _difference(expected: torch.Tensor, found: torch.Tensor) -> float:
    real = torch.isfinite(expected)
    scale = max(1.0, float(expected[real].abs().max()))
    return float((found[real] - expected[real]).abs().max()) / scale


def _tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def _trained(name: str, device: torch.device) -> dict[str, Any]:
    """The losses of two steps in bfloat16, which must be numbers and change the parameters to numbers."""
    spec, feeds, targets = _example(name)
    graph = compile_training(spec).graph
    model = TorchModule(graph, seed=1).to(device).train()
    recipe = make_recipe(spec, Identity("", "", "", 1, "bfloat16", compile=False), None)
    optimizer = make_optimizer(spec.train.optimizer, model)
    names = [value.name for value in graph.inputs]
    inputs = dict(zip(names[: len(feeds)], feeds, strict=True))
    wanted = dict(zip(names[len(feeds) :], targets, strict=True))
    batch = Batch(inputs, wanted, tuple(target.numel() for target in targets))
    losses = [sum(mean_losses([take_step(model, optimizer, (batch,), recipe, step)])) for step in (1, 2)]
    finite = all(bool(torch.isfinite(value).all()) for value in (torch.tensor(losses), *model.parameters()))
    return {"first": losses[0], "second": losses[1]} | ({} if finite else {"failed": "not finite"})


def _example(name: str) -> tuple[Spec, list[torch.Tensor], list[torch.Tensor]]:
    """The small spec, random inputs of its training graph, and a random target for each result."""
    spec = small(name)
    compiled = compile_engine(spec)
    feeds = make_probes(compiled).feeds
    graph = compile_spec(spec)
    inputs = [torch.tensor(feeds[value.name]) for value in graph.inputs]
    with torch.inference_mode():
        results = _tuple(TorchModule(graph, seed=1).eval()(*inputs))
    generator = torch.Generator().manual_seed(0)
    pairs = zip(spec.results, results, strict=True)
    return spec, inputs, [_target(declared, result, generator) for declared, result in pairs]


def _target(declared: Declared, result: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if declared.kind == "vectors":
        return torch.arange(len(result)) // 2
    if declared.kind == "numbers" or declared.settings.get("several"):
        return torch.rand(result.shape, generator=generator).round()
    return torch.randint(1, result.shape[-1], result.shape[:-1], generator=generator)
