"""Cross entropy of a projection, computed in chunks, so that the logits of all tokens never exist at once.

The gradient needs only softmax(logits), so it is computed in the forward pass, while a chunk is still in the cache. The
label and label smoothing are added to the gradient as vectors (their matrices have one entry per row, or rank one), and
the loss of a label is computed from its probability. This saves all further passes over the logits.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK_ROWS = 512
"""Tokens per chunk; its logits should fit in the CPU cache."""

CHUNK_BYTES = 2**28
"""The most that the logits of a chunk take on a GPU, unless that is fewer tokens than on a CPU. There, each chunk costs
launches, and a pass over the gradient of the weights."""

DIVERGENCE_SIZE = 8
"""About how many times the memory of its logits a chunk takes that compares rows with their copies."""

LEAST_PROBABILITY = 1e-37
"""The lower bound of a label's probability in training, so that the loss is never infinite."""


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    ignore: int,
    *,
    agreement: float = 0.0,
    chunks_of: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of `x @ weight.T + bias` against the labels.

    x: float [n, d]; weight [classes, d]; bias [classes] or None; labels: int64 [n]; positions with the label `ignore`
    do not count. Returns the mean smoothed loss (differentiable), the sum of unsmoothed losses in nats, and the count.
    With `agreement`, the second half of the rows are copies of the first (see `CrossEntropy`). `chunks_of` is the type
    of the device that the chunks are for, by default that of `x`.
    """
    copies = 2 if agreement else 1
    if agreement:
        x, labels = _side_by_side(x), _side_by_side(labels)
    device = x.device.type
    function: Any = _LinearCrossEntropy
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
    chunk = chunk_rows(chunks_of or device, weight.shape[0], dtype.itemsize, copies=copies)
    with torch.autocast(device, enabled=False):
        loss, nll = function.apply(
            x, weight, bias, labels, smoothing, ignore, agreement, dtype, chunk, torch.is_grad_enabled()
        )
    return loss, nll / copies, (labels != ignore).sum() // copies


def chunk_rows(device: str, classes: int, size: int, *, copies: int = 1) -> int:
    """The rows of a chunk on a type of device, for logits of so many bytes each; a row and its copies are in one."""
    rows = CHUNK_ROWS
    if device != "cpu":
        row_bytes = max(1, classes * size * (DIVERGENCE_SIZE if copies > 1 else 1))
        rows = max(rows, CHUNK_BYTES // row_bytes)
    return -(-rows // copies) * copies


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        x, weight, bias, labels, smoothing, ignore, agreement, dtype, chunk, enabled = arguments
        counted = labels != ignore
        labels = torch.where(counted, labels, 0)  # ignored positions still need a valid class
        scale = 1.0 / counted.sum().clamp(min=1)
        needs_gradient = enabled and any(ctx.needs_input_grad[:3])
        low, low_weight = x.to(dtype), weight.to(dtype)
        losses = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        x_gradient = torch.empty_like(low) if needs_gradient else None
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if needs_gradient else None
        bias_gradient = torch.zeros_like(bias) if needs_gradient and bias is not None else None
        masked = low * counted.unsqueeze(-1)
        divergences = torch.zeros_like(losses)
        space = low.new_empty(min(chunk, x.shape[0]), weight.shape[0])
        for start in range(0, x.shape[0], chunk):
            rows, pull = slice(start, start + chunk), None
            label = labels[rows].unsqueeze(-1)
            logits = torch.matmul(low[rows], low_weight.T, out=space[: label.shape[0]])
            if bias is not None:
                logits += bias.to(dtype)
            if agreement:
                divergences[rows], pull = _divergence(logits)
            if x_gradient is None or weight_gradient is None:
                logits = logits.float()
                losses[rows] = -torch.log_softmax(logits, -1, out=logits).gather(1, label).squeeze(-1)
                continue
            probabilities = torch.softmax(logits, -1, out=logits)
            likelihood = probabilities.gather(1, label).float().clamp_(min=LEAST_PROBABILITY)
            losses[rows] = -likelihood.log().squeeze(-1)
            if pull is not None:
                probabilities += agreement * pull.to(dtype)
            torch.mm(probabilities, low_weight, out=x_gradient[rows])
            if dtype == weight_gradient.dtype:
                weight_gradient.addmm_(probabilities.T, masked[rows])
            else:
                weight_gradient += probabilities.T @ masked[rows]
            if bias_gradient is not None:
                bias_gradient += (counted[None, rows].to(dtype) @ probabilities).squeeze(0)
        nll = (losses * counted).sum()
        label_logits = _label_logits(x, weight, bias, labels)
        mean_logit = x.float() @ weight.mean(0) + (0.0 if bias is None else bias.mean())
        smooth = (losses + smoothing * (label_logits - mean_logit) + agreement * divergences) * counted
        if x_gradient is not None and weight_gradient is not None:
            _take_labels_off(x_gradient, weight_gradient, masked, weight, labels, smoothing)
            if bias_gradient is not None:
                bias_gradient.index_add_(0, labels, counted.float(), alpha=smoothing - 1.0)
                bias_gradient -= counted.sum() * (smoothing / weight.shape[0])
            x_gradient *= counted.unsqueeze(-1)
            ctx.save_for_backward(x_gradient.to(x.dtype).mul_(scale), weight_gradient.mul_(scale))
            ctx.bias_gradient = None if bias_gradient is None else bias_gradient.mul_(scale)
        ctx.mark_non_differentiable(nll)
        return smooth.sum() * scale, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x_gradient, weight_gradient = ctx.saved_tensors
        factor = gradients[0]
        bias_gradient = None if ctx.bias_gradient is None else ctx.bias_gradient * factor
        given = (x_gradient * factor.to(x_gradient.dtype), weight_gradient * factor, bias_gradient)
        return (*given, None, None, None, None, None, None, None)


def _side_by_side(rows: Tensor) -> Tensor:
    """The rows of both halves in turn."""
    first, second = rows.chunk(2)
    return torch.stack((first, second), 1).flatten(0, 1)


def _divergence(logits: Tensor) -> tuple[Tensor, Tensor]:
    """How much each row of logits and its copy after it disagree, and the gradient of the sum over the rows.

    That is (KL(p || q) + KL(q || p)) / 4, float32 [rows]; the gradient is float32 [rows, classes].
    """
    logs = torch.log_softmax(logits.float(), -1)
    log_p, log_q = logs[0::2], logs[1::2]
    p, q, difference = log_p.exp(), log_q.exp(), log_p - log_q
    of_p, of_q = (p * difference).sum(-1, keepdim=True), (q * difference).sum(-1, keepdim=True)
    p_gradient, q_gradient = p * (difference - of_p + 1.0) - q, q * (of_q - difference + 1.0) - p
    divergence = ((of_p - of_q) / 4.0).expand(-1, 2).flatten()
    return divergence, torch.stack((p_gradient, q_gradient), 1).flatten(0, 1) / 2.0


def _label_logits(x: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    logits = (x.float() * weight[labels]).sum(-1)
    return logits if bias is None else logits + bias[labels]


def _take_labels_off(
    x_gradient: Tensor, weight_gradient: Tensor, masked: Tensor, weight: Tensor, labels: Tensor, smoothing: float
) -> None:
    """Subtract the parts of the label and the smoothing from gradients that have only the part of the softmax."""
    kept = 1.0 - smoothing
    x_gradient -= (kept * weight[labels] + smoothing * weight.mean(0)).to(x_gradient.dtype)
    weight_gradient.index_add_(0, labels, masked.float(), alpha=-kept)
    weight_gradient -= masked.float().sum(0) * (smoothing / weight.shape[0])
