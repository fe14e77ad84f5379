"""The stages of an engine that keeps keys and values in int8 (docs/precision.md).

As for matrix products, a number between two quantized values may be rounded to either, so each attention is compared
separately, and logits may differ by as much as quantization itself changes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xformc.compiler.backends.onnx.emitter import Emitter, model
from xformc.compiler.certify.difference import difference
from xformc.compiler.certify.forward import kept_logits
from xformc.compiler.certify.probes import Probes, make_probes
from xformc.compiler.certify.product_stages import BOUND, noise_bound
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.axes import Axis, Type
from xformc.compiler.graph.graph import Node
from xformc.compiler.ops.native import SCALE_BYTES, Attend, AttendCached, groups_of, restored_axis
from xformc.compiler.pipeline import SEARCH, run_passes
from xformc.compiler.quantize.rounded_rows import rounded_rows
from xformc.format.certificate import Stage
from xformc.format.operators import DOMAIN

BATCH, POSITIONS = 2, 21
"""The sizes of the random keys and values on which an attention is tested."""


def cache_stages(subject: Subject) -> Iterator[Stage]:
    """`caches`: each attention over keys and values in int8 alone, and its definition.

    `kept`: the logits of the derived step with such keys and values, and of the training form with the same.
    """
    step = run_passes(subject.program, without=SEARCH).decoder.step
    chosen = [node for node in step.nodes if node.outputs[0].name in subject.memories]
    every = sum(isinstance(node.op, Attend | AttendCached) for node in step.nodes)
    what = f"{len(chosen)} of {every} attentions over keys and values, in int8, alone and their definition"
    forms = dict.fromkeys(_form(node) for node in chosen)
    yield Stage("caches", what, max(_error(subject, form) for form in forms), BOUND)
    yield _kept(subject, make_probes(subject.program))


def _kept(subject: Subject, probes: Probes) -> Stage:
    found = kept_logits(subject, probes)[probes.real]
    rounded, exact = (form.logits(probes.feeds)[probes.real] for form in (subject.rounding, subject))
    what = "logits of the step with keys and values in int8, and of the training form with the same"
    worst = float(np.abs(found - rounded).max(initial=0)) if found.shape == rounded.shape else float("inf")
    change = f"(quantization changes them by at most {np.abs(rounded - exact).max(initial=0):.2g})"
    return Stage("kept", what, worst if np.isfinite(worst) else float("inf"), noise_bound(rounded, exact), change)


@dataclass(frozen=True)
class _Form:
    """What an attention computes, without its sizes of run time. window: None for keys that are known at once."""

    cached: bool
    scale: float
    shared: int
    repeated: int
    depth: int
    value_depth: int
    window: int | None


def _form(node: Node) -> _Form:
    op, query, value = node.op, node.inputs[0].type, node.inputs[2].type
    assert isinstance(op, Attend | AttendCached)
    cached, (shared, repeated) = isinstance(op, AttendCached), groups_of(op, query)
    last = value.axes[-1] if cached else restored_axis(value.axes[-1])
    window = op.window if isinstance(op, AttendCached) else None
    return _Form(cached, op.scale, shared, repeated, query.axes[-1].size or 1, last.size or 1, window)


def _error(subject: Subject, form: _Form) -> float:
    """The difference of an attention of random numbers in ONNX Runtime and its definition."""
    random = np.random.default_rng(3)
    heads = (BATCH, POSITIONS, form.shared)
    arrays = {
        "query": random.standard_normal((*heads, form.repeated, form.depth), np.float32),
        "key": random.standard_normal((*heads, form.depth), np.float32),
        "value": random.standard_normal((*heads, form.value_depth), np.float32),
    }
    initializers = subject.initializers()
    emitter = Emitter(initializers, target=subject.target)
    settings: dict[str, Any] = {"scale": form.scale, "shared": form.shared, "repeated": form.repeated, "domain": DOMAIN}
    if form.cached:
        caches = [
            emitter.op(
                "CacheInt8", [BATCH, POSITIONS + 1, 1, form.shared * (size + SCALE_BYTES)], label=name, domain=DOMAIN
            )
            for name, size in (("keys", form.depth), ("values", form.value_depth))
        ]
        found = emitter.op("ExtendCached", *arrays, *caches, 0, window=form.window or 0, **settings)
    else:
        memory = [emitter.op("QuantizeRows", name, domain=DOMAIN) for name in ("key", "value")]
        found = emitter.op("Attend", "query", *memory, rank=2, causal=0, **settings)
    types = {
        name: Type("float32", tuple(Axis(f"{name}_{index}", size) for index, size in enumerate(array.shape)))
        for name, array in arrays.items()
    }
    output = Type("float32", (*types["query"].axes[:-1], Axis("depth", form.value_depth)))
    built = model(emitter, "attention", [*types.items()], [(emitter.op("Identity", found, name="output"), output)])
    return difference(subject.run_model(built, initializers, arrays)[0], _expected(form, arrays))


def _expected(form: _Form, arrays: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """The definition, in float64: queries see all keys, or of those kept the newest up to their own."""
    query = torch.tensor(arrays["query"]).double()
    key, value = (rounded_rows(torch.tensor(arrays[name])).double() for name in ("key", "value"))
    scores = form.scale * torch.einsum("bqsrd,bksd->bsrqk", query, key)
    if form.cached:
        distance = torch.arange(POSITIONS)[:, None] - torch.arange(POSITIONS)
        seen = (distance >= 0) & (distance < (form.window or POSITIONS))
        scores = scores.masked_fill(~seen, -torch.inf)
    return torch.einsum("bsrqk,bksd->bqsrd", scores.softmax(-1), value).float().numpy()
