"""Makes the certificate of an engine, when it is built or when it is verified later."""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import torch
from google.protobuf.message import DecodeError

from xformc import __version__
from xformc.compiler.backends.onnx.initializers import (
    read_input_scales,
    read_operators,
    read_parameters,
    read_precisions,
    read_tables,
)
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.cache_stages import cache_stages
from xformc.compiler.certify.models_stage import models_stage
from xformc.compiler.certify.product_stages import agreement, product_stages
from xformc.compiler.certify.result_stages import result_stages
from xformc.compiler.certify.stages import STAGES
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.roundable import linear_weights
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.program import Program
from xformc.compiler.quantize.calibration import calibrated_weights
from xformc.compiler.shortlist import TENSORS, Shortlist, in_model, shortlist_of
from xformc.compiler.spec import load_spec
from xformc.compiler.spec.alignment import SOURCE
from xformc.errors import UserError
from xformc.format.certificate import Certificate, Stage
from xformc.format.inputs import Input
from xformc.format.manifest import Manifest, check_files, recorded
from xformc.format.names import CERTIFICATE, MANIFEST, MODEL, SPEC
from xformc.format.precision import Caches, Precision
from xformc.format.reader import read_manifest
from xformc.format.results import Result
from xformc.runtime.library import check_operators
from xformc.runtime.onnx_runtime import onnx_runtime


def certify(subject: Subject, progress: Callable[[str], None], original: TorchModule | None = None) -> Certificate:
    """Run the stages until one misses its bound; later stages would only repeat its failure.

    `original` has the weights before quantization, if they are quantized.
    """
    stages: list[Stage] = []
    with subject.runnable() as runnable:
        for stage in _stages(subject, runnable, progress):
            stages.append(stage)
            if not stage.passed:
                break
        measured = () if original is None or not stages[-1].passed else (agreement(runnable, original),)
    versions = {
        "xformc": __version__,
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": str(onnx_runtime().__version__),
    }
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Certificate(tuple(stages), date, versions, f"{platform.system()} {platform.machine()}", measured)


def _stages(subject: Subject, runnable: Subject, progress: Callable[[str], None]) -> Iterator[Stage]:
    """The stages of the task. With quantized inputs or caches, an engine with the same weights in float32 is first."""
    stages = STAGES[subject.program.decoding]
    if not subject.approximate and not subject.memories:
        yield from stages(subject, progress)
        return
    parts = ["matrix products"] * bool(subject.approximate) + ["caches"] * bool(subject.memories)
    with subject.exact() as exact:
        for stage in stages(exact, progress):
            yield replace(stage, what=f"{stage.what}; float32 {' and '.join(parts)}")
    progress("certify: products")
    yield from product_stages(runnable)
    if subject.memories:
        progress("certify: caches")
        yield from cache_stages(runnable)
    yield from result_stages(runnable, progress)


def verify_engine(folder: Path, progress: Callable[[str], None] = lambda _: None) -> Certificate:
    """Repeat the certificate of an engine: compile its spec again, with the weights of its model.

    Raises: UserError if the folder is not a complete engine, or its model lacks parameters of its spec.
    """
    manifest = read_manifest(folder)
    check_operators(folder, manifest)
    check_files(folder, manifest)
    for name in (SPEC, CERTIFICATE):
        if name not in manifest.files:
            raise UserError(f"{name} is not among the engine's files", place=str(folder), hint=_REBUILD)
    spec = load_spec(folder / SPEC)
    precision = spec.precisions(manifest.precision)
    program = replace(compile_engine(spec, manifest.target, precision), caches=manifest.caches)
    program = replace(program, shortlist=engine_shortlist(folder / MODEL, program.inputs, program.written))
    _check_claims(folder, manifest, program)
    module = TorchModule(program.graph).eval()
    module.load_arrays(engine_parameters(program.graph, folder / MODEL))
    _check_precisions(folder / MODEL, precision)
    _check_caches(folder / MODEL, manifest.caches)
    scales = _input_scales(folder / MODEL, precision, program.graph, calibrated=manifest.calibration is not None)
    subject = Subject(program, module, folder, scales)
    certificate = certify(subject, progress)
    if not certificate.passed:
        return certificate
    progress("compare models")
    return certificate.with_stage(models_stage(subject, manifest.files))


def _check_claims(folder: Path, manifest: Manifest, program: Program) -> None:
    """Compare the manifest with the engine's spec. Raises: UserError if they differ."""
    claims = {
        "task": manifest.task,
        "inputs": {name: replace(item, tokenizer=None) for name, item in manifest.inputs.items()},
        **_claims(manifest.results),
        "defaults": None if manifest.defaults is None else recorded(manifest.defaults),
        "prefix": manifest.prefix,
        "suppress_first": manifest.suppress_first,
        "speech": manifest.speech,
        "shortlist": manifest.shortlist,
    }
    facts = {
        "task": program.task,
        "inputs": dict(program.inputs),
        **_claims(program.results),
        "defaults": program.defaults,
        "prefix": program.prefix,
        "suppress_first": program.suppress_first,
        "speech": program.speech,
        "shortlist": program.shortlist is not None,
    }
    if manifest.beams is not None and program.beams is not None:  # engines of before have none
        claims["beams"], facts["beams"] = recorded(manifest.beams), recorded(program.beams)
    wrong = [key for key in facts if claims.get(key) != facts[key]]
    if wrong:
        listed = "; ".join(f"{key} is {claims.get(key)} in engine.json, {facts[key]} by the spec" for key in wrong)
        raise UserError(listed, place=str(folder), hint=_REBUILD)


def _claims(results: Mapping[str, Result]) -> dict[str, object]:
    """What an engine says of its results, except for the names of axes and labels: the size of each, and the rest."""
    rest = {
        name: (item.kind, item.positions, dict(item.settings), item.outputs, item.of) for name, item in results.items()
    }
    return {**{name: item.width for name, item in results.items()}, "results": rest}


def _check_precisions(model: Path, precision: Mapping[str, Precision]) -> None:
    """Check the number format of each weight in the model. Raises: UserError if one differs."""
    found = read_precisions(model, precision)
    wrong = [name for name in precision if found.get(name) != precision[name]]
    if wrong:
        name, more = wrong[0], f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""
        message = f"{name} is {found.get(name)} in the model, but {precision[name]} by {MANIFEST} and {SPEC}"
        raise UserError(message + more, place=str(model), hint=_REBUILD)


def _check_caches(model: Path, caches: Caches) -> None:
    """Check that the model keeps keys and values in int8 if engine.json says so, and only then. Raises: UserError."""
    keeps = not _KEEPING.isdisjoint(read_operators(model))
    if keeps != (caches == "int8"):
        found = "some" if keeps else "no"
        message = f"the model keeps {found} keys and values in int8, but caches are {caches} by {MANIFEST}"
        raise UserError(message, place=str(model), hint=_REBUILD)


_KEEPING = frozenset({"CacheInt8", "QuantizeRows"})
"""The operators of engines that keep keys and values in int8."""


def _input_scales(
    model: Path, precision: Mapping[str, Precision], graph: Graph, *, calibrated: bool
) -> dict[str, float]:
    """The input scales of the engine's calibration. Raises: UserError if one is missing or unexpected."""
    try:
        scales = read_input_scales(model, precision)
    except (OSError, ValueError, DecodeError) as error:
        raise UserError(f"not a complete ONNX model: {error}", place=str(model)) from error
    wanted = calibrated_weights(precision, linear_weights(graph), examples=calibrated)
    wrong = sorted(wanted.keys() ^ scales.keys())
    if wrong:
        message = f"the calibrated weights differ from {MANIFEST} and {SPEC}: {', '.join(wrong[:8])}"
        raise UserError(message, place=str(model), hint=_REBUILD)
    return scales


def engine_shortlist(model: Path, inputs: Mapping[str, Input], written: str | None) -> Shortlist | None:
    """The shortlist of an engine's search, which fits its inputs. Raises: UserError if it does not."""
    try:
        found = read_tables(model, map(in_model, TENSORS))
    except (OSError, ValueError, DecodeError) as error:
        raise UserError(f"not a complete ONNX model: {error}", place=str(model)) from error
    if not found:
        return None
    if written is None or SOURCE not in inputs:
        raise UserError("the model has a shortlist, but translates no text", place=str(model), hint=_REBUILD)
    shortlist = shortlist_of({name: found.get(in_model(name)) for name in TENSORS}, str(model))
    if not shortlist.equals(shortlist.fitted(inputs[SOURCE], inputs[written], str(model))):
        message = "the shortlist lacks an end token, or has padding"
        raise UserError(message, place=str(model), hint=_REBUILD)
    return shortlist


def engine_parameters(graph: Graph, model: Path) -> dict[str, Any]:
    """The parameters of `graph` from an engine's model, in float32. Raises: UserError if one is missing."""
    wanted = {parameter.name: parameter.type.sizes() for parameter in graph.parameters}
    try:
        arrays = read_parameters(model, wanted)
    except (OSError, ValueError, DecodeError) as error:
        raise UserError(f"not a complete ONNX model: {error}", place=str(model)) from error
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise UserError(
            f"the model lacks parameters of its spec: {', '.join(missing[:8])}", place=str(model), hint=_REBUILD
        )
    return arrays


_REBUILD = "rebuild the engine with `xformc build`"
