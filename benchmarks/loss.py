"""The loss of the last projection, ours beside torch's linear_cross_entropy: times, errors and peak memory.

python -m benchmarks.loss [--models base] [--tokens 512 2048] [--rounds 5] [--bias] [--no-grad] [--device cuda]

Every form returns the mean smoothed loss, the sum of the unsmoothed losses, and the count. Torch's chunked form takes
no label smoothing: here it returns the sum of the unsmoothed losses, and smoothing adds `smoothing * (logit of the
label - mean logit)`, which needs no further logits. Autocast does not reach it: for bfloat16 its inputs are cast.

The forms take turns; the first turn does not count. Times are median, lowest and highest of a forward and backward
pass, or of a forward pass with --no-grad. MiB is how much one pass raises the peak memory of a new process. Errors are
those of the loss and of the gradients of x and weight, relative to float64, as norms. Ratios are to the first form.
"""

import argparse
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from xformc.compiler.backends.torch.chunked_loss import linear_cross_entropy

MODELS = {"numbers": (128, 300), "multi30k": (128, 10_000), "base": (512, 37_000)}
"""d_model and vocabulary."""

PAD = 0
PADDING = 0.1
"""The part of the labels that are padding."""

Results = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Cell:
    """What is measured."""

    model: str
    tokens: int
    dtype: str
    smoothing: float
    bias: bool
    gradients: bool
    device: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tokens", nargs="+", type=int, default=[512, 2048, 8192])
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"])
    parser.add_argument("--smoothing", nargs="+", type=float, default=[0.1, 0.0])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="at least this long for each cell")
    parser.add_argument("--bias", action="store_true", help="the projection has a bias")
    parser.add_argument("--no-grad", action="store_true", help="evaluation: no gradients")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {given.device}", flush=True)
    print(f"{'':50}{'ms':>9}{'lowest':>9}{'highest':>9}{'ratio':>7}{'MiB':>7}{'loss':>9}{'x':>9}{'weight':>9}")
    for model in given.models:
        for tokens in given.tokens:
            for dtype in given.dtypes:
                for smoothing in given.smoothing:
                    cell = Cell(model, tokens, dtype, smoothing, given.bias, not given.no_grad, given.device)
                    report(cell, given.forms, given.rounds, given.seconds)


def report(cell: Cell, forms: Sequence[str], rounds: int, seconds: float) -> None:
    times = measure_times(cell, forms, rounds, seconds)
    exact = exact_results(cell)
    first = statistics.median(times[forms[0]])
    for name, values in times.items():
        middle = statistics.median(values)
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            peak = pool.apply(peak_memory, (cell, name))
        found = evaluate(cell, name, make_inputs(cell))
        errors = [_distance(*pair) for pair in zip(found, exact, strict=True)]
        title = f"{cell.model:9}{cell.tokens:5} {cell.dtype:9}{cell.smoothing:4} {name}"
        figures = f"{middle:9.1f}{min(values):9.1f}{max(values):9.1f}{middle / first:7.2f}{peak:7.0f}"
        print(f"{title:50}{figures}" + "".join(f"{error:9.0e}" for error in errors), flush=True)


def measure_times(cell: Cell, forms: Sequence[str], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each form; they take turns."""
    inputs = make_inputs(cell)
    times = {name: list[float]() for name in forms}
    end = time.perf_counter() + seconds
    for turn in itertools.count():
        if turn > rounds and time.perf_counter() > end:
            break
        for name, values in times.items():
            began = time.perf_counter()
            evaluate(cell, name, inputs)
            _wait(cell)
            if turn > 0:
                values.append(1000 * (time.perf_counter() - began))
    return times


def peak_memory(cell: Cell, name: str) -> float:
    """By how many MiB one pass raises the peak memory of this process, or of the GPU."""
    evaluate(small := replace(cell, tokens=8), name, make_inputs(small))
    inputs = make_inputs(cell)
    if cell.device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        evaluate(cell, name, inputs)
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to what is in use now
    before = _peak()
    evaluate(cell, name, inputs)
    return _peak() - before


def make_inputs(cell: Cell) -> dict[str, Any]:
    """Random inputs, weights and labels; the logits have variance 1, as in an untrained model."""
    torch.manual_seed(0)
    d_model, classes = MODELS[cell.model]
    labels = torch.randint(1, classes, (cell.tokens,))
    labels[torch.rand(cell.tokens) < PADDING] = PAD
    tensors = {"x": torch.randn(cell.tokens, d_model), "weight": torch.randn(classes, d_model) * d_model**-0.5}
    if cell.bias:
        tensors["bias"] = torch.randn(classes)
    placed = {key: tensor.to(cell.device).requires_grad_(cell.gradients) for key, tensor in tensors.items()}
    return {"bias": None, **placed, "labels": labels.to(cell.device)}


def evaluate(cell: Cell, name: str, inputs: dict[str, Any]) -> list[Tensor]:
    """The loss, and the gradients of x and weight if there are any."""
    bfloat16 = cell.dtype == "bfloat16"
    with torch.set_grad_enabled(cell.gradients), torch.autocast(cell.device, torch.bfloat16, enabled=bfloat16):
        loss, _, _ = FORMS[name](**inputs, smoothing=cell.smoothing)
    if not cell.gradients:
        return [loss]
    for tensor in inputs.values():
        if tensor is not None:
            tensor.grad = None
    loss.backward()
    return [loss.detach(), inputs["x"].grad, inputs["weight"].grad]


def exact_results(cell: Cell) -> list[Tensor]:
    """The same in float64, 512 tokens at a time."""
    inputs = make_inputs(cell)
    x, weight = (inputs[key].detach().double().requires_grad_(cell.gradients) for key in ("x", "weight"))
    bias, labels = inputs["bias"], inputs["labels"]
    count, total = (labels != PAD).sum(), torch.zeros((), dtype=torch.float64, device=cell.device)
    for rows in torch.arange(cell.tokens).split(512):
        logits = functional.linear(x[rows], weight, None if bias is None else bias.detach().double())
        part = functional.cross_entropy(
            logits, labels[rows], ignore_index=PAD, reduction="sum", label_smoothing=cell.smoothing
        )
        total += (part / count).detach()
        if cell.gradients:
            (part / count).backward()
    return [total, *(tensor.grad for tensor in (x, weight) if tensor.grad is not None)]


def ours(x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float) -> Results:
    return linear_cross_entropy(x, weight, bias, labels, smoothing, PAD)


def torchs(options: Any, x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float) -> Results:
    """Torch's, with smoothing added; with `options` None it makes all logits at once."""
    counted = labels != PAD
    count, device = counted.sum(), x.device.type
    cast = options is not None and torch.is_autocast_enabled(device)
    low = {name: item.to(torch.bfloat16) if cast else item for name, item in (("x", x), ("weight", weight))}
    low_bias = bias.to(torch.bfloat16) if cast and bias is not None else bias
    with torch.autocast(device, enabled=False) if cast else nullcontext():
        nll = functional.linear_cross_entropy(
            low["x"], low["weight"], labels, linear_bias=low_bias, reduction="sum", ignore_index=PAD, options=options
        )
    loss = nll.float()
    if smoothing > 0:
        with torch.autocast(device, enabled=False):
            rows = x * counted.unsqueeze(-1)
            extra = (rows * weight[labels]).sum() - rows.sum(0) @ weight.mean(0)
            if bias is not None:
                extra = extra + (bias[labels] * counted).sum() - count * bias.mean()
        loss = loss + smoothing * extra
    return loss / count.clamp(min=1), nll.detach(), count


def make_forms() -> Iterator[tuple[str, Callable[..., Results]]]:
    yield "ours", ours
    if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        return
    for name, options in {
        "torch, whole": None,
        "torch, chunked": torch.nn.LinearCrossEntropyOptions(),
        "torch, 512 rows": torch.nn.LinearCrossEntropyOptions(batch_chunk_size=512),
    }.items():
        yield name, lambda options=options, **given: torchs(options, **given)


FORMS = dict(make_forms())


def _distance(found: Tensor, wanted: Tensor) -> float:
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def _peak() -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10


def _wait(cell: Cell) -> None:
    if cell.device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
