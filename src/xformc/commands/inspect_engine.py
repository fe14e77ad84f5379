"""`xformc inspect`: what an engine is, without loading its model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.certificate_text import certificate_lines
from xformc.commands.translate import ENGINE_HELP
from xformc.runtime.document import Document, read_document
from xformc.runtime.manifest import MANIFEST_NAME, Manifest, check_files, read_manifest

CERTIFICATE_NAME = "certificate.json"
CERTIFICATE_BYTES = 1 << 24


def inspect(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    *,
    certificate_only: Annotated[bool, Option("--certificate", help="Print the certificate alone.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what an engine is, and its certificate.

    \b
    xformc inspect demo/engine
    xformc inspect demo/engine --json

    The files are checked against their hashes first. `xformc verify ENGINE` repeats the certificate's proof.
    """
    manifest = read_manifest(engine)
    check_files(engine, manifest)
    certificate = read_certificate(engine)
    if as_json:
        document = read_document(engine / MANIFEST_NAME, limit=CERTIFICATE_BYTES)
        print(json.dumps({"engine": document.fields, "certificate": certificate.fields}))
        return
    for line in certificate_lines(certificate) if certificate_only else _summary(manifest, certificate):
        print(line)


def read_certificate(engine: Path) -> Document:
    """The engine's certificate.json. Raises: UserError if it is missing or broken."""
    return read_document(engine / CERTIFICATE_NAME, limit=CERTIFICATE_BYTES)


def _summary(manifest: Manifest, certificate: Document) -> list[str]:
    defaults = manifest.defaults
    size = sum(record.bytes for record in manifest.files.values())
    return [
        f"{manifest.name}: {manifest.task}, {manifest.parameters:,} {manifest.weights} parameters",
        f"target       {manifest.target}, {manifest.precision}, {size / 1e6:,.1f} MB on disk",
        f"vocabulary   {_vocabulary(manifest)}",
        f"longest      source {_bound(manifest.max_source_length)}, target {_bound(manifest.max_target_length)}",
        "inputs       source [batch, source] int64, ended by 3, padded with 0; and with these defaults:",
        f"             beam_width {defaults.beam_width}, n_best {defaults.n_best}, "
        f"length_penalty {defaults.length_penalty:g}, max_length_factor {defaults.max_length_factor:g}, "
        f"max_length_offset {defaults.max_length_offset}",
        "outputs      tokens [batch, n_best, length] int64, lengths [batch, n_best] int64, "
        "scores [batch, n_best] float32",
        f"built by     xformc {manifest.xformc}, {certificate.text('date')}, with {_versions(certificate)}",
        f"certificate  {'passed' if certificate.boolean('passed') else 'FAILED'}",
        *(f"  {line}" for line in certificate_lines(certificate)),
    ]


def _vocabulary(manifest: Manifest) -> str:
    sizes = f"source {manifest.source_vocabulary:,}, target {manifest.target_vocabulary:,}"
    if manifest.source_tokenizer is None:
        return f"{sizes}; no tokenizer, so it takes token ids only"
    return f"{sizes}{' (one for both)' * (manifest.source_tokenizer == manifest.target_tokenizer)}"


def _bound(length: int | None) -> str:
    return "unbounded" if length is None else f"{length:,} tokens"


def _versions(certificate: Document) -> str:
    versions: Mapping[str, object] = certificate.section("versions").fields
    return ", ".join(f"{name} {version}" for name, version in versions.items())
