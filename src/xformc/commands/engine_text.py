"""An engine as lines of text: what it is, what it takes and gives, and its certificate."""

from collections.abc import Mapping

from xformc.format.certificate import Certificate
from xformc.format.inputs import Input
from xformc.format.manifest import Manifest, recorded
from xformc.format.plans import Plan
from xformc.format.results import Result
from xformc.format.search_options import EDITS, Setting
from xformc.runtime.kinds.kind import kind_of


def engine_lines(manifest: Manifest, certificate: Certificate) -> list[str]:
    """What engine.json and certificate.json say, for a reader."""
    size = sum(record.bytes for record in manifest.files.values())
    return [
        f"{manifest.name}: {manifest.task}, {manifest.parameters:,} {manifest.weights} parameters",
        f"target       {_target(manifest)}, {_precision(manifest)}, {size / 1e6:,.1f} MB on disk",
        *_titled("inputs", [f"{name}: {_described(item)}" for name, item in manifest.inputs.items()]),
        *_titled("defaults", _defaults(manifest)),
        *_titled("labels", _labels(manifest)),
        *_titled("outputs", output_lines(manifest)),
        *_titled("calibration", _calibration(manifest)),
        *_titled("plans", [f"{name}: {_sizes(plan)}" for name, plan in manifest.plans.items()] + refusals(manifest)),
        f"built by     xformc {manifest.xformc}, {certificate.date}, with {_versions(certificate)}",
        f"certificate  {'passed' if certificate.passed else 'FAILED'}",
        *(f"  {line}" for line in certificate.lines()),
    ]


def refusals(manifest: Manifest) -> list[str]:
    """A line for each plan that TensorRT refused to build."""
    return [f"{name}: left out, the runtime drives its steps; {reason}" for name, reason in manifest.refused.items()]


def _precision(manifest: Manifest) -> str:
    return manifest.precision if manifest.caches == "auto" else f"{manifest.precision}, caches {manifest.caches}"


def _target(manifest: Manifest) -> str:
    return manifest.target if manifest.operators is None else f"{manifest.target}, operators {manifest.operators}"


_WRITTEN: Mapping[str, str] = {
    "search": "tokens [batch, n_best, length] int64, lengths [batch, n_best] int64, scores [batch, n_best] float32",
    "sample": "tokens [batch, length] int64, lengths [batch] int64, scores [batch] float32",
}
"""The outputs of a model that writes text, by how it decodes."""


def output_lines(manifest: Manifest) -> list[str]:
    """The outputs of the engine's model."""
    results = manifest.results.values()
    lines = [_WRITTEN[manifest.decoding] for result in results if result.kind == "text"]
    return lines + [line for result in results if result.kind != "text" for line in _outputs(result)]


def _outputs(result: Result) -> list[str]:
    return [f"{name} {what}" for name, what in zip(result.outputs, kind_of(result).described(result), strict=True)]


SHOWN_LABELS = 20


def _titled(title: str, lines: list[str]) -> list[str]:
    return [f"{title if index == 0 else '':<13}{line}" for index, line in enumerate(lines)]


def _described(item: Input) -> str:
    axes = ", ".join(f"{name} {size:,}" for name, size in item.axes.items())
    longest = "" if item.longest is None else f", at most {item.longest:,} positions"
    tokenizer = item.tokenizer or "no tokenizer, so token ids only"
    along = f", one for each position of {item.of}" if item.of else ""
    return {
        "tokens": f"tokens of {item.vocabulary or 0:,} pieces ({tokenizer}){longest}{along}",
        "vectors": f"{_sound(item) if item.rate else f'vectors of {axes}'}{longest}{along}",
        "values": f"values, {axes}",
        "edges": f"edges between the positions of {item.of}",
    }[item.kind]


def _sound(item: Input) -> str:
    return f"a sound of {item.rate:,} Hz, {item.hop:,} samples at each position"


def _defaults(manifest: Manifest) -> list[str]:
    if manifest.defaults is None:
        return []
    unused = {option.name: option.absent for option in EDITS}
    found = {name: value for name, value in recorded(manifest.defaults).items() if value != unused.get(name)}
    kinds = {} if "length_penalty_kind" in found else {"length_penalty": " (GNMT)"}
    shown = {name: _setting(value) for name, value in found.items()}
    beside = {"prefix": manifest.prefix, "suppress_first": manifest.suppress_first}
    shown |= {name: _setting(tokens) for name, tokens in beside.items() if tokens}
    listed = ", among the tokens of a shortlist" if manifest.shortlist else ""
    return [", ".join(f"{name} {value}{kinds.get(name, '')}" for name, value in shown.items()) + listed]


def _setting(value: Setting) -> str:
    if isinstance(value, tuple):
        more = f" and {len(value) - SHOWN_LABELS:,} more" if len(value) > SHOWN_LABELS else ""
        return " ".join(map(str, value[:SHOWN_LABELS])) + more
    return value if isinstance(value, str) else f"{value:g}"


def _labels(manifest: Manifest) -> list[str]:
    lines: list[str] = []
    for name, result in manifest.results.items():
        labels = result.labels or ()
        more = f" and {len(labels) - SHOWN_LABELS:,} more" if len(labels) > SHOWN_LABELS else ""
        of = f" for each position of {result.positions}" if result.positions else ""
        which = f"{name}: " if len(manifest.results) > 1 else ""
        if labels:
            lines.append(f"{which}{len(labels):,}{of}: {', '.join(labels[:SHOWN_LABELS])}{more}")
    return lines


def _calibration(manifest: Manifest) -> list[str]:
    found = manifest.calibration
    return [] if found is None else [f"of what products are given, from {found.examples:,} examples, by {found.rule}"]


def _sizes(plan: Plan) -> str:
    device = plan.device or "any GPU that it knows"
    sizes = ", ".join(f"{axis} {least}:{often}:{most}" for axis, (least, often, most) in plan.profile.items())
    return f"{plan.builder} {plan.version}, for {device}; {sizes}"


def _versions(certificate: Certificate) -> str:
    return ", ".join(f"{name} {version}" for name, version in certificate.versions.items())
