"""`xformc push` and `xformc pull`: models on Hugging Face's hub."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from xformc.commands.options import OUT
from xformc.errors import UserError
from xformc.format.certificate import CERTIFICATE_BYTES, read_certificate
from xformc.format.document import read_document
from xformc.format.manifest import Manifest
from xformc.format.names import CERTIFICATE, MANIFEST
from xformc.format.reader import read_manifest
from xformc.terminal import progress_console

FOLDER_HELP = "An engine, or a folder made by `xformc export hf`."
REPOSITORY_HELP = "The repository on the hub: NAME, or USER/NAME."
LICENCE_HELP = "The identifier of the licence, for the card of an engine: apache-2.0."
PRIVATE_HELP = "A new repository is private; one that is there must be."
REVISION_HELP = "A branch, tag or commit.  [default: main]"
LIMIT_HELP = "Refuse a repository with more."

Repository = Annotated[str, Argument(help=REPOSITORY_HELP, metavar="REPO")]


def push(
    folder: Annotated[Path, Argument(help=FOLDER_HELP, metavar="ENGINE|FOLDER")],
    repository: Repository,
    *,
    licence: Annotated[str | None, Option(help=LICENCE_HELP, metavar="ID")] = None,
    private: Annotated[bool, Option("--private", help=PRIVATE_HELP)] = False,
) -> None:
    """Upload an engine or an exported model to Hugging Face's hub, in one commit.

    \b
    xformc push engines/wmt me/wmt --licence cc-by-4.0
    xformc push models/gpt2 me/gpt2

    Needs the package huggingface_hub and its login, `hf auth login`. The files of an engine are checked against their
    hashes first. A README.md in the folder is its model card. An engine without one gets a card that says what it is,
    with its certificate, unless the repository has a card already; --licence writes it anew.
    """
    from xformc.exports.card import CARD, checked_licence
    from xformc.exports.hub import files_of
    from xformc.exports.hub import push as upload

    files = files_of(folder)
    is_engine, licence = MANIFEST in files, checked_licence(licence)
    if licence is not None and not is_engine:
        raise UserError("--licence: an exported model has its card", hint="xformc export hf --licence ID")
    if licence is not None and CARD in files:
        raise UserError(f"--licence: the engine has a {CARD}", hint="write the licence into it, or remove it")
    card = _card(folder, read_manifest(folder), licence) if is_engine and CARD not in files else None
    with progress_console().status("uploading"):
        found = upload(folder, repository, files, card, licensed=licence is not None, private=private)
    print(f"{found.address}: {found.files} files")


def pull(
    repository: Repository,
    *,
    output: Annotated[Path, Option(*OUT, help="The new folder.", metavar="DIR")],
    revision: Annotated[str | None, Option(help=REVISION_HELP, metavar="NAME")] = None,
    max_gib: Annotated[int, Option(help=LIMIT_HELP, min=1, max=1 << 12, metavar="N")] = 64,
) -> None:
    """Download a model from Hugging Face's hub: an engine, or a folder for `xformc import`.

    \b
    xformc pull me/wmt -o engines/wmt
    xformc pull someone/gpt2 -o models/gpt2

    Needs the package huggingface_hub. Pickles, code and weights of other libraries are not downloaded. The files of an
    engine must have the hashes of its engine.json. The folder appears when all of it is there.
    """
    from xformc.exports.hub import pull as download

    if output.exists():
        raise UserError("already exists", place=str(output), hint="choose another folder, or remove it")
    with progress_console().status("downloading"):
        found = download(repository, output, revision=revision, limit=max_gib << 30)
    print(f"{output}: {len(found.files)} files of {repository} at {found.commit[:12]}, {found.size:,} bytes")
    if found.left:
        print(f"  not downloaded: {', '.join(found.left[:8])}{' ..' if len(found.left) > 8 else ''}")


def _card(folder: Path, manifest: Manifest, licence: str | None) -> str:
    """The model card of an engine."""
    from xformc.exports.card import Card

    certificate = read_certificate(read_document(folder / CERTIFICATE, limit=CERTIFICATE_BYTES))
    facts = {
        "task": manifest.task,
        "inputs": ", ".join(f"{name} ({item.kind})" for name, item in manifest.inputs.items()),
        "results": ", ".join(f"{name} ({item.kind})" for name, item in manifest.results.items()),
        "parameters": f"{manifest.parameters:,}",
        "weights": manifest.precision,
        **({} if manifest.caches == "auto" else {"keys and values": manifest.caches}),
        "target": manifest.target,
        "use": "`xformc pull REPOSITORY -o engine`, then `xformc inspect engine`",
    }
    return Card(manifest.name, "xformc", licence, manifest.task, facts, certificate.lines()).text()
