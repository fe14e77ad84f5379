"""Making a certificate, for an engine that is being built or for one that somebody sent."""

import platform
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from google.protobuf.message import DecodeError

from xformc import __version__
from xformc.compiler.backends.initializers import MODEL, read_initializers
from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.certify.certificate import Certificate, Stage
from xformc.compiler.certify.stages import make_probes, run_stages
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.graph import Graph
from xformc.compiler.pipeline import Compiled, compile_decoder
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime.manifest import Manifest, check_files, read_manifest

SPEC, CERTIFICATE = "spec.yaml", "certificate.json"


def certify(subject: Subject, progress: Callable[[str], None]) -> Certificate:
    """Run every stage until one misses its bound; the stages after it would only repeat its fault."""
    probes, stages = make_probes(subject.compiled.source, subject.compiled.target), list[Stage]()
    for stage in run_stages(subject, probes, progress):
        stages.append(stage)
        if not stage.passed:
            break
    versions = {
        "xformc": __version__,
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": str(onnxruntime.__version__),
    }
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Certificate(tuple(stages), date, versions, f"{platform.system()} {platform.machine()}")


def verify_engine(folder: Path, progress: Callable[[str], None] = lambda _: None) -> Certificate:
    """Repeat the certificate of an engine: its spec compiled anew, with the weights that its model holds.

    Raises: UserError if the folder is no whole engine, or its model does not hold the parameters of its spec.
    """
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    for name in (SPEC, CERTIFICATE):
        if name not in manifest.files:
            raise UserError(f"{name} is not among the engine's files", place=str(folder), hint=_REBUILD)
    compiled = compile_decoder(load_spec(folder / SPEC))
    _check_claims(folder, manifest, compiled)
    module = TorchModule(compiled.graph).eval()
    module.load_arrays(_parameters(compiled.graph, folder / MODEL))
    return certify(Subject(compiled, module, folder, manifest.target == "cpu"), progress)


def _check_claims(folder: Path, manifest: Manifest, compiled: Compiled) -> None:
    """Raises: UserError where the manifest says other than the engine's spec."""
    claims = {
        "vocabulary": (manifest.source_vocabulary, manifest.target_vocabulary),
        "defaults": asdict(manifest.defaults),
        "longest": (manifest.max_source_length, manifest.max_target_length),
    }
    facts = {
        "vocabulary": (compiled.source.vocabulary, compiled.target.vocabulary),
        "defaults": asdict(compiled.options),
        "longest": (compiled.source.longest, compiled.target.longest),
    }
    wrong = [
        f"{key} is {claims[key]} in engine.json, {facts[key]} by the spec" for key in facts if claims[key] != facts[key]
    ]
    if wrong:
        raise UserError("; ".join(wrong), place=str(folder), hint=_REBUILD)


def _parameters(graph: Graph, model: Path) -> dict[str, Any]:
    try:
        arrays = read_initializers(model)
    except (OSError, ValueError, KeyError, DecodeError) as error:
        raise UserError(f"not a whole ONNX model: {error}", place=str(model)) from error
    wanted = {parameter.name: parameter.type.sizes() for parameter in graph.parameters}
    wrong = [name for name, sizes in wanted.items() if name not in arrays or arrays[name].size != np.prod(sizes)]
    if wrong:
        raise UserError(
            f"the model lacks parameters of its spec: {', '.join(wrong[:8])}", place=str(model), hint=_REBUILD
        )
    return {name: arrays[name].reshape(sizes) for name, sizes in wanted.items()}


_REBUILD = "rebuild the engine with `xformc build`"
