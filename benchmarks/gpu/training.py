"""Training speed in target tokens per second and as a fraction of the bfloat16 peak, against a plain PyTorch loop."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.gpu.decoding import TINY
from benchmarks.gpu.report import Report, seconds_of
from benchmarks.train import PlainTransformer, Sizes, our_step
from xformc.compiler import compile_spec
from xformc.compiler.graph.cost import total
from xformc.compiler.graph.rules import cost_of
from xformc.compiler.spec import Spec, load_spec
from xformc.format.tokens import PAD
from xformc.specs import SHIPPED
from xformc.trainer.data.batches import Batch

TOKENS = 64
"""Tokens of each sentence, on both sides; no sentence is padded."""

BACKWARD = 2
"""Matrix products of the backward pass for each product of the forward pass: one for each factor."""

Step = Callable[[Batch], None]


@dataclass(frozen=True)
class Plan:
    """The models by name, the sentences of a batch (None: from the spec's `batch_tokens`), and the time limits."""

    models: Mapping[str, str]
    sentences: int | None
    seconds: float
    warm_up: int

    def of(self, models: Sequence[str] | None) -> "Plan":
        """Return the plan of these models alone; None stands for all."""
        chosen = {name: spec for name, spec in self.models.items() if models is None or name in models}
        return replace(self, models=chosen)


FULL = Plan({name: f"transformer_{name}" for name in ("base", "big")}, None, 6.0, 3)
QUICK = Plan({"tiny": TINY % 60}, 4, 0.2, 1)


def measure(
    report: Report, plan: Plan, device: torch.device, spec_of: Callable[[str], Spec], peak: float, *, compiled: bool
) -> None:
    """Add a row for each model and training method; `peak` is the device's operations per second."""
    for model, text in plan.models.items():
        spec = spec_of(text)
        ways = {"xformc, compiled": True} if compiled else {}
        for way, compile in {**ways, "xformc": False, "torch.nn.Transformer": None}.items():
            what = {"model": model, "numbers": "bfloat16", "training": way}
            report.row(what, lambda: _measured(spec, plan, device, compile, peak), most=150.0)  # noqa: B023
            if compile:
                torch.compiler.reset()
            if device.type == "cuda":
                torch.cuda.empty_cache()


def shipped(name: str) -> Spec:
    """Return the shipped spec of this name."""
    return load_spec(SHIPPED / f"{name}.yaml")


def flops(spec: Spec, batch: Batch) -> int:
    """Return the operations of the model's matrix products for a batch, forward and backward, without recomputation
    (Chowdhery et al., 2022, appendix B: model FLOPs).
    """
    sizes = defaultdict(lambda: TOKENS, batch=len(batch.labels))  # every other axis without a size is one of positions
    forward = total(cost_of(node) for node in compile_spec(spec).nodes).products.at(sizes)
    return (1 + BACKWARD) * forward


def random_batch(spec: Spec, sentences: int | None, device: torch.device) -> Batch:
    """Return random sentences of TOKENS tokens, already on the device."""
    rows = sentences or spec.train.batch_tokens // TOKENS
    ids = torch.randint(4, int(spec.sizes["vocabulary"]), (3, rows, TOKENS), generator=torch.Generator().manual_seed(0))
    source, target, labels = ids
    return Batch({"source": source, "target": target}, {"labels": labels}, (rows * TOKENS,)).to(device)


def _measured(spec: Spec, plan: Plan, device: torch.device, compile: bool | None, peak: float) -> dict[str, Any]:
    batch = random_batch(spec, plan.sentences, device)
    step = plain_step(spec, device) if compile is None else our_step(spec, "bfloat16", device, compile=compile)
    began = time.monotonic()
    for _ in range(plan.warm_up):
        step(batch)
    ready = time.monotonic() - began
    times: list[float] = []
    end = time.monotonic() + plan.seconds
    while not times or time.monotonic() < end:
        times.append(seconds_of(lambda: step(batch), device))
    seconds = statistics.median(times)
    found = {"tokens": batch.count, "first_steps_seconds": ready, "tokens_per_second": batch.count / seconds}
    return {**found, "model_flops_utilisation": flops(spec, batch) / seconds / peak}


def plain_step(spec: Spec, device: torch.device) -> Step:
    """Return a step of torch.nn.Transformer, eager, with autocast to bfloat16."""
    numbers = {name: int(spec.sizes[name]) for name in ("d_model", "d_ff", "heads", "layers")}
    sizes = Sizes(**numbers, dropout=float(spec.sizes["dropout"]))
    model = PlainTransformer(int(spec.sizes["vocabulary"]), sizes).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    criterion = torch.nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=spec.train.label_smoothing)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(batch.inputs["source"], batch.inputs["target"])
            loss = criterion(logits.flatten(0, 1), batch.labels.flatten())
        loss.backward()
        optimizer.step()

    return step
