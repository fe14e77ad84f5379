"""`xformc inspect`: what an engine is, without loading its model."""

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.certificate_text import certificate_lines
from xformc.commands.engine_text import engine_lines
from xformc.commands.translate import ENGINE_HELP
from xformc.format.document import Document, read_document
from xformc.format.manifest import check_files
from xformc.format.names import CERTIFICATE, MANIFEST
from xformc.format.reader import read_manifest

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
        document = read_document(engine / MANIFEST, limit=CERTIFICATE_BYTES)
        print(json.dumps({"engine": document.fields, "certificate": certificate.fields}))
        return
    for line in certificate_lines(certificate) if certificate_only else engine_lines(manifest, certificate):
        print(line)


def read_certificate(engine: Path) -> Document:
    """The engine's certificate.json. Raises: UserError if it is missing or broken."""
    return read_document(engine / CERTIFICATE, limit=CERTIFICATE_BYTES)
