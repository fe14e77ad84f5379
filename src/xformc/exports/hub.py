"""Pushes models to Hugging Face's hub and pulls them, by the package huggingface_hub."""

import importlib
import os
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from xformc.errors import UserError
from xformc.exports.card import CARD
from xformc.files import atomic_directory
from xformc.format.manifest import check_files, record_file
from xformc.format.names import CHECKPOINTS, MANIFEST
from xformc.format.reader import read_manifest

ENDPOINT = "HF_ENDPOINT"
"""The environment variable that names another server."""

MOST_FILES = 10_000
CODE = (".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".exe", ".sh", ".bat", ".ps1", ".jar", ".ipynb")
PICKLES = (".bin", ".pt", ".pt2", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".dill")
FOREIGN = (".h5", ".keras", ".msgpack", ".ot", ".tflite", ".mlmodel", ".gguf", ".mar")
UNREAD = (*CODE, *PICKLES, *FOREIGN)
"""The ends of files that are not pulled, in lower case: code, pickles, and weights of other libraries."""
CTRANSLATE2 = "model.bin"
"""The weights of CTranslate2, which are no pickle."""

REFUSED = (401, 403, 404)
"""The answers of a server to one who is not known, or has no right; a private repository is as if it were not there."""


@dataclass(frozen=True)
class Pushed:
    """What was pushed: the address of the commit, and the number of its files."""

    address: str
    files: int


@dataclass(frozen=True)
class Pulled:
    """What was pulled: the commit, the files, their bytes, and the files that were left there."""

    commit: str
    files: tuple[str, ...]
    size: int
    left: tuple[str, ...]


def files_of(folder: Path) -> list[str]:
    """The files of a model: of an engine those of engine.json and its card, of another folder all of them, hidden ones
    not.

    Raises: UserError for a folder without any, a link out of it, an engine that has changed, or a run.
    """
    if not folder.is_dir():
        raise UserError("no such folder", place=str(folder))
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        check_files(folder, manifest)
        return sorted([*manifest.files, MANIFEST, *([CARD] if (folder / CARD).is_file() else [])])
    if (folder / CHECKPOINTS).is_dir():
        hint = "build an engine of it, or export it with `xformc export hf`"
        raise UserError("is a run, with its checkpoints", place=str(folder), hint=hint)
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = [path for path in found if not any(part.startswith(".") for part in path.parts)]
    outside = [name for name in names if not (folder / name).resolve().is_relative_to(folder.resolve())]
    if outside:
        raise UserError("a link out of the folder", place=str(folder / outside[0]), hint="copy the file itself here")
    if not names or len(names) > MOST_FILES:
        raise UserError(f"must have 1 to {MOST_FILES:,} files, found {len(names):,}", place=str(folder))
    return [name.as_posix() for name in names]


def push(
    folder: Path,
    repository: str,
    files: Sequence[str],
    card: str | None,
    *,
    licensed: bool = False,
    private: bool = False,
) -> Pushed:
    """Make the repository if it is not there, and add the files in one commit. Return its address.

    card: what README.md is, unless the repository has one already and this one is not `licensed`. private: it must be
    private.

    Raises: UserError if the server refuses, or cannot be reached, or if the repository is public and shall not be.
    """
    hub = _hub()
    add = hub.CommitOperationAdd
    operations = [add(path_in_repo=name, path_or_fileobj=str(folder / name)) for name in files]
    with _explained(repository):
        api = hub.HfApi(endpoint=os.environ.get(ENDPOINT))
        api.create_repo(repository, private=private, exist_ok=True)
        if private and not api.model_info(repository).private:
            hint = "change it on the hub, or choose another name"
            raise UserError("is public; --private is for a new repository", place=repository, hint=hint)
        if card is not None and (licensed or not api.file_exists(repository, CARD)):
            operations.append(add(path_in_repo=CARD, path_or_fileobj=card.encode()))
        found = api.create_commit(repository, operations, commit_message="Add the model by xformc push")
    return Pushed(str(found.commit_url), len(operations))


def pull(repository: str, out: Path, *, revision: str | None = None, limit: int = 1 << 36) -> Pulled:
    """Download a repository into the new folder `out`, at one commit; files in UNREAD stay there.

    Raises: UserError for files of more than `limit` bytes in all, names that lead out of the folder, files that are not
    as they are listed, an engine whose files have other hashes, or if the server refuses. Nothing is written then.
    """
    hub = _hub()
    with _explained(repository):
        api = hub.HfApi(endpoint=os.environ.get(ENDPOINT))
        info = api.model_info(repository, revision=revision, files_metadata=True)
    listed = cast(list[Any], info.siblings or [])
    sizes = {str(one.rfilename): cast(int | None, one.size) for one in listed}
    hashes = {str(one.rfilename): str(one.lfs.sha256) for one in listed if one.lfs is not None}
    wanted = _wanted(sizes, repository, limit)
    if info.sha is None:
        raise UserError("does not say its commit", place=repository)
    with atomic_directory(out, replace=False) as part:
        for name in wanted:
            with _explained(repository):
                api.hf_hub_download(repository, name, revision=info.sha, local_dir=str(part))
            _check(part, name, sizes[name], hashes.get(name), repository)
        shutil.rmtree(part / ".cache", ignore_errors=True)
        if (part / MANIFEST).is_file():
            check_files(part, read_manifest(part))
    left = tuple(ascii(name)[1:-1] for name in sizes if name not in wanted)
    return Pulled(str(info.sha), tuple(wanted), sum(sizes[name] or 0 for name in wanted), left)


def _wanted(sizes: Mapping[str, int | None], repository: str, limit: int) -> list[str]:
    """The files to download. Raises: UserError for names that lead out, too many of them, or too many bytes."""
    wanted = [
        name
        for name in sizes
        if not _is_unread(name) and not any(part.startswith(".") for part in name.split("/") if part != "..")
    ]
    outside = [name for name in wanted if not _is_inside(name)]
    if outside:
        raise UserError(f"has the file {outside[0][:200]!r}, which leads out of a folder", place=repository)
    if not wanted or len(wanted) > MOST_FILES:
        raise UserError(f"must have 1 to {MOST_FILES:,} files that are read, found {len(wanted):,}", place=repository)
    unsized = [name for name in wanted if not (isinstance(size := sizes[name], int) and size >= 0)]
    if unsized:
        raise UserError(f"does not say the size of {unsized[0][:200]}", place=repository)
    total = sum(sizes[name] or 0 for name in wanted)
    if total > limit:
        raise UserError(f"has {total:,} bytes; the limit is {limit:,}", place=repository, hint="set --max-gib")
    return wanted


def _is_unread(name: str) -> bool:
    return name.lower().endswith(UNREAD) and PurePosixPath(name).name != CTRANSLATE2


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and name.isprintable()


def _check(part: Path, name: str, size: int | None, sha256: str | None, repository: str) -> None:
    """Raises: UserError if a file is missing, a link out of the folder, or not what the server has listed."""
    path = part / name
    if not path.is_file() or not path.resolve().is_relative_to(part.resolve()):
        raise UserError(f"{name[:200]} was not downloaded", place=repository)
    found = path.stat().st_size
    if found != size:
        raise UserError(f"{name[:200]} has {found:,} bytes; {size:,} are listed", place=repository)
    if sha256 is not None and record_file(path).sha256 != sha256:
        raise UserError(f"{name[:200]} has another hash than is listed", place=repository, hint="pull it again")


def _hub() -> Any:
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        hint = "pip install huggingface_hub"
        raise UserError(f"this needs the package {error.name}, which is not installed", hint=hint) from None
    return hub


@contextmanager
def _explained(repository: str) -> Generator[None]:
    """Make whatever the package raises, for a name, a login, a server or a network, one error."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # its own classes, those of its HTTP client, and ValueError
        message = " ".join(str(error).split())[:300] or type(error).__name__
        status: object = getattr(getattr(error, "response", None), "status_code", None)
        if status in REFUSED:
            hint = "`hf auth login` logs in; HF_ENDPOINT names another server"
            raise UserError(f"the hub refuses: {message}", place=repository, hint=hint) from error
        raise UserError(f"the hub has failed: {message}", place=repository) from error
