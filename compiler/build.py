"""From a spec to an engine on disk: the passes in their order, the model, the certificate, the manifest."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError

from xformc import __version__
from xformc.compiler.backends.initializers import MODEL, save_model
from xformc.compiler.backends.models import engine_model
from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.certify import CERTIFICATE, SPEC, Certificate, certify
from xformc.compiler.certify.subject import Subject
from xformc.compiler.passes.step import with_beam
from xformc.compiler.pipeline import Compiled, compile_decoder
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.runtime.manifest import FORMAT, MANIFEST_NAME, manifest_checksum
from xformc.tokens import BEGIN, END, PAD, UNKNOWN


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
    compiled = compile_decoder(spec)
    module = TorchModule(compiled.graph, seed=spec.train.seed).eval()
    if weights is not None:
        module.load_arrays(weights)
    with atomic_directory(out) as folder:
        progress("emit")
        subject = Subject(compiled, module, folder, fused=target == "cpu")
        _write_model(subject)
        (folder / SPEC).write_text(spec.resolved_yaml(), encoding="utf-8")
        names = _copy_tokenizers(tokenizers, folder)
        certificate = certify(subject, progress)
        _require(certificate)
        progress("hash and write")
        certificate.write(folder / CERTIFICATE)
        manifest = _manifest(spec, compiled, target, names, weights is not None)
        manifest["files"] = {path.name: _record(path) for path in sorted(folder.iterdir())}
        manifest["checksum"] = manifest_checksum(manifest)
        (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return certificate


def _write_model(subject: Subject) -> None:
    folder, initializers, compiled = subject.engine, subject.initializers(), subject.compiled
    decoder, longest = with_beam(compiled.decoder), compiled.target.longest
    model = engine_model(decoder, initializers, compiled.options, longest, fused=subject.fused)
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
    spec: Spec, compiled: Compiled, target: str, names: dict[str, str] | None, trained: bool
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "xformc": __version__,
        "name": spec.name,
        "task": spec.task,
        "target": target,
        "precision": "float32",
        "tokens": {"pad": PAD, "unknown": UNKNOWN, "begin": BEGIN, "end": END},
        "vocabulary": {"source": compiled.source.vocabulary, "target": compiled.target.vocabulary},
        "tokenizer": names,
        "defaults": asdict(compiled.options),
        "max_source_length": compiled.source.longest,
        "max_target_length": compiled.target.longest,
        "parameters": compiled.graph.parameter_count(),
        "weights": "trained" if trained else "fresh",
    }


def _record(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
