"""From a spec to an engine on disk: the passes in their order, the model, the certificate, the manifest."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError

from xformc import __version__
from xformc.compiler import compile_spec
from xformc.compiler.backends.initializers import MODEL, Initializers, save_model
from xformc.compiler.backends.models import engine_model
from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.certify import Certificate, certify
from xformc.compiler.certify.stages import Side, make_probes
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.positions import Positions
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import Decoder, derive_step, with_beam
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.runtime.manifest import FORMAT, MANIFEST_NAME, manifest_checksum
from xformc.runtime.options import SearchOptions

CERTIFICATE, SPEC = "certificate.json", "spec.yaml"
SIDES = ("source", "target")


def build_engine(
    spec: Spec,
    weights: Mapping[str, Any] | None,
    tokenizers: Mapping[str, Path] | None,
    target: str,
    out: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Compile a spec with these weights (None: fresh ones) into the engine folder `out`, all of it or nothing.

    `tokenizers` holds the SentencePiece models of "source" and "target"; `target` is portable or cpu. `progress` is
    told what is being done. Raises: UserError if the spec cannot be decoded step by step, or a stage of the
    certificate misses its bound.
    """
    progress("compile")
    graph = inference(compile_spec(spec))
    decoder = derive_step(graph)
    module = TorchModule(graph, seed=spec.train.seed).eval()
    if weights is not None:
        module.load_arrays(weights)
    options = search_options(spec)
    with atomic_directory(out) as folder:
        progress("emit")
        source, target_side = (Side(spec.inputs[name].vocabulary, _limit(graph, name)) for name in SIDES)
        fused, longest = target == "cpu", target_side.longest
        _write_model(decoder, module, options, longest, folder, fused=fused)
        (folder / SPEC).write_text(spec.resolved_yaml(), encoding="utf-8")
        names = _copy_tokenizers(tokenizers, folder)
        subject = Subject(graph, decoder, module, folder, fused, options, longest)
        certificate = certify(subject, make_probes(source, target_side), progress)
        _require(certificate)
        progress("hash and write")
        certificate.write(folder / CERTIFICATE)
        manifest = _manifest(spec, graph, options, target, names, weights is not None)
        manifest["files"] = {path.name: _record(path) for path in sorted(folder.iterdir())}
        manifest["checksum"] = manifest_checksum(manifest)
        (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return certificate


def search_options(spec: Spec) -> SearchOptions:
    """The spec's decoding defaults."""
    decode = spec.decode
    return SearchOptions(
        decode.beam_width, decode.n_best, decode.length_penalty, decode.max_length.factor, decode.max_length.offset
    )


STAGES: dict[str, Callable[[Graph], tuple[Graph, ...]]] = {
    "elaborate": lambda graph: (graph,),
    "inference": lambda graph: (inference(graph),),
    "step": lambda graph: _graphs(derive_step(inference(graph))),
    "beam": lambda graph: _graphs(with_beam(derive_step(inference(graph)))),
}
"""What `xformc build --stop-after` can print, in the order of the build."""


def print_stage(spec: Spec, stage: str) -> str:
    """The text of the graph, or of the two graphs of the decoder, after this pass. Raises: UserError if unknown."""
    if stage not in STAGES:
        raise UserError(f"no pass is called '{stage}'", hint=f"the passes are {', '.join(STAGES)}")
    return "\n".join(text.format(verify(graph)) for graph in STAGES[stage](compile_spec(spec)))


def _graphs(decoder: Decoder) -> tuple[Graph, Graph]:
    return decoder.prepare, decoder.step


def _write_model(
    decoder: Decoder, module: TorchModule, options: SearchOptions, longest: int | None, folder: Path, *, fused: bool
) -> None:
    initializers = Initializers({name: value.numpy() for name, value in module.state_dict().items()})
    model = engine_model(with_beam(decoder), initializers, options, longest, fused=fused)
    try:
        save_model(model, initializers, folder)
    except (EncodeError, ValueError) as error:
        raise UserError(f"the model is too large for ONNX: {error}") from error
    checker: Any = onnx.checker
    checker.check_model(str(folder / MODEL), full_check=True)


def _copy_tokenizers(tokenizers: Mapping[str, Path] | None, folder: Path) -> dict[str, str] | None:
    if tokenizers is None:
        return None
    for path in set(tokenizers.values()):
        shutil.copyfile(path, folder / path.name)
    return {side: path.name for side, path in tokenizers.items()}


def _require(certificate: Certificate) -> None:
    if certificate.passed:
        return
    failed = certificate.stages[-1]
    raise UserError(
        f"the engine is not the spec's function, so it was not written\n  {failed.line()}",
        hint="this is a fault of a rule of xformc, or of weights that are not finite; please report it",
    )


def _manifest(
    spec: Spec, graph: Graph, options: SearchOptions, target: str, names: dict[str, str] | None, trained: bool
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "xformc": __version__,
        "name": spec.name,
        "task": spec.task,
        "target": target,
        "precision": "float32",
        "tokens": {"pad": 0, "unknown": 1, "begin": 2, "end": 3},
        "vocabulary": {side: spec.inputs[side].vocabulary for side in SIDES},
        "tokenizer": names,
        "defaults": {
            "beam_width": options.beam_width,
            "n_best": options.n_best,
            "length_penalty": options.length_penalty,
            "max_length_factor": options.max_length_factor,
            "max_length_offset": options.max_length_offset,
        },
        "max_source_length": _limit(graph, "source"),
        "max_target_length": _limit(graph, "target"),
        "parameters": graph.parameter_count(),
        "weights": "trained" if trained else "fresh",
    }


def _limit(graph: Graph, axis: str) -> int | None:
    """The most positions that the graph has encodings for, or None where there is no bound."""
    limits = [
        node.op.limit
        for node in graph.nodes
        if isinstance(node.op, Positions) and node.op.axis == axis and node.op.limit is not None
    ]
    return min(limits, default=None)


def _record(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
