"""`xformc inspect`: what an engine is, without loading its model."""

import json
from typing import Annotated

from typer import Option

from xformc.commands.engine_text import engine_lines
from xformc.commands.options import EngineFolder, Json
from xformc.format.certificate import CERTIFICATE_BYTES, read_certificate
from xformc.format.document import read_document
from xformc.format.manifest import check_files
from xformc.format.names import CERTIFICATE, MANIFEST
from xformc.format.reader import read_manifest


def inspect_engine(
    engine: EngineFolder,
    *,
    certificate_only: Annotated[bool, Option("--certificate", help="Print only the certificate.")] = False,
    as_json: Json = False,
) -> None:
    """Describe an engine and show its certificate.

    \b
    xformc inspect demo/engine
    xformc inspect demo/engine --json

    The files are checked against their hashes first. `xformc verify ENGINE` repeats the checks of the certificate.
    """
    manifest = read_manifest(engine)
    check_files(engine, manifest)
    document = read_document(engine / CERTIFICATE, limit=CERTIFICATE_BYTES)
    certificate = read_certificate(document)
    if as_json:
        fields = read_document(engine / MANIFEST, limit=CERTIFICATE_BYTES).fields
        print(json.dumps({"engine": fields, "certificate": document.fields}))
        return
    for line in certificate.lines() if certificate_only else engine_lines(manifest, certificate):
        print(line)
