"""Making a certificate, for an engine that is being built or for one that somebody sent."""

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from google.protobuf.message import DecodeError

from xformc import __version__
from xformc.compiler import compile_spec
from xformc.compiler.backends.initializers import MODEL, read_initializers
from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.certify.certificate import Certificate, Stage
from xformc.compiler.certify.stages import Probes, Side, make_probes, run_stages
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.graph import Graph
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import derive_step
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime.manifest import check_files, read_manifest
from xformc.runtime.options import SearchOptions


def certify(subject: Subject, probes: Probes, progress: Callable[[str], None]) -> Certificate:
    """Run every stage until one misses its bound; the stages after it would only repeat its fault."""
    stages: list[Stage] = []
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
    spec = load_spec(folder / "spec.yaml")
    graph = inference(compile_spec(spec))
    module = TorchModule(graph).eval()
    module.load_arrays(_parameters(graph, folder / MODEL))
    defaults = manifest.defaults
    options = SearchOptions(
        defaults.beam_width,
        defaults.n_best,
        defaults.length_penalty,
        defaults.max_length_factor,
        defaults.max_length_offset,
    )
    fused, longest = manifest.target == "cpu", manifest.max_target_length
    subject = Subject(graph, derive_step(graph), module, folder, fused, options, longest)
    source = Side(manifest.source_vocabulary, manifest.max_source_length)
    probes = make_probes(source, Side(manifest.target_vocabulary, longest))
    return certify(subject, probes, progress)


def _parameters(graph: Graph, model: Path) -> dict[str, Any]:
    try:
        arrays = read_initializers(model)
    except (OSError, ValueError, KeyError, DecodeError) as error:
        raise UserError(f"not a whole ONNX model: {error}", place=str(model)) from error
    wanted = {parameter.name: parameter.type.sizes() for parameter in graph.parameters}
    wrong = [name for name, sizes in wanted.items() if name not in arrays or arrays[name].size != np.prod(sizes)]
    if wrong:
        raise UserError(
            f"the model lacks parameters of its spec: {', '.join(wrong[:8])}",
            place=str(model),
            hint="rebuild the engine with `xformc build`",
        )
    return {name: arrays[name].reshape(sizes) for name, sizes in wanted.items()}
