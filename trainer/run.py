"""The folder of a run: created atomically, and checked to be the same run on `--resume`."""

import errno
import fcntl
import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.format.names import SPEC
from xformc.trainer.checkpoint import remove_leavings
from xformc.trainer.data.label_names import save_labels
from xformc.trainer.data.own_vocabulary import file_hash
from xformc.trainer.data.vocabulary import Tokenizer, save_tokenizer

IDENTITY, METRICS, SCORES = "run.json", "metrics.jsonl", "scores.json"
VOCABULARIES = "vocabularies"
"""In the identity of a run, the hash of each file of its tokenizer."""


@dataclass(frozen=True)
class Identity:
    """What must not change when a run is resumed, or it would not continue bit for bit."""

    spec_sha256: str
    train_sha256: str
    valid_sha256: str
    seed: int
    precision: str
    compile: bool
    start_sha256: str | None = None
    tokenizer_sha256: str | None = None


def hash_text(text: str) -> str:
    """Return the SHA-256 of `text` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_free(out: Path) -> None:
    """Raises: UserError if `out` exists and is not an empty folder."""
    if is_run(out):
        raise UserError(
            "already exists", place=str(out), hint="continue that run with --resume, or choose a new folder with -o"
        )


def create_run(
    out: Path, spec_yaml: str, identity: Identity, tokenizer: Tokenizer | None, labels: Mapping[str, Sequence[str]]
) -> None:
    """Create the folder of a new run, with its tokenizer and label names if it has any.

    Raises: UserError if it cannot be written; then nothing is left behind.
    """
    with _made_once(out), atomic_directory(out, replace=False) as part:
        (part / SPEC).write_text(spec_yaml, encoding="utf-8")
        hashes = dict[str, str]()
        if tokenizer is not None:
            save_tokenizer(tokenizer, part)
            hashes = {file: file_hash(part / file) for file in tokenizer.files().values()}
        record = {**asdict(identity), VOCABULARIES: hashes}
        (part / IDENTITY).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        save_labels(labels, part)
        (part / METRICS).touch()


@contextmanager
def locked(out: Path) -> Generator[None]:
    """Hold the lock of a run, which ends with the process. Raises: UserError if another process holds it."""
    try:
        file = (out / IDENTITY).open("r+b")
    except OSError:  # no run, as reading its identity will say
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(out) from error
        yield


def reopen_run(out: Path, spec_yaml: str, identity: Identity, *, first: bool = True) -> None:
    """Check that `out` is the run that `identity` describes; the `first` process removes a killed one's partial files.

    Raises: UserError if it is not a run, or a different one; the message lists the differences.
    """
    found = _read_identity(out)
    wanted = asdict(identity)
    changed = [name for name, value in wanted.items() if found.get(name) != value]
    if changed:
        raise UserError(
            f"cannot continue this run: {'; '.join(_describe(name, found, wanted) for name in changed)}"
            + (_first_difference(out / SPEC, spec_yaml) if "spec_sha256" in changed else ""),
            place=str(out),
            hint="undo the change, or train into a new folder without --resume",
        )
    hashes = found.get(VOCABULARIES)
    for file, known in cast(dict[str, object], hashes).items() if isinstance(hashes, dict) else ():
        if (out / file).is_file() and file_hash(out / file) != known:
            hint = "put back the one that the run began with, or train into a new folder"
            raise UserError("the run's tokenizer has changed", place=str(out / file), hint=hint)
    if first:
        remove_leavings(out)


def is_run(out: Path) -> bool:
    """Whether `out` exists and is not an empty folder."""
    return out.exists() and (not out.is_dir() or any(out.iterdir()))


def recorded_precision(out: Path) -> str | None:
    """Return the precision that the run at `out` was started in, or None if there is no run."""
    return str(_read_identity(out)["precision"]) if is_run(out) else None


@contextmanager
def _made_once(out: Path) -> Generator[None]:
    try:
        yield
    except UserError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENOTEMPTY:
            raise _in_use(out) from error
        raise


def _in_use(out: Path) -> UserError:
    hint = "wait until it has ended, or train into another folder with -o"
    return UserError("another process is training this run", place=str(out), hint=hint)


def _read_identity(out: Path) -> Mapping[str, object]:
    try:
        content: dict[str, object] = json.loads((out / IDENTITY).read_text(encoding="utf-8"))
        _ = content["precision"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"not a run: {IDENTITY} is missing or damaged", place=str(out), hint="leave out --resume to start one"
        ) from error
    return content


_WORDS = {
    "spec_sha256": "the spec has changed",
    "train_sha256": "the training data has changed",
    "valid_sha256": "the validation data has changed",
    "start_sha256": "the weights that it began with have changed",
    "tokenizer_sha256": "the tokenizer has changed",
}


_OPTIONS = {"start_sha256": "--start", "tokenizer_sha256": "--tokenizer"}
"""The options without which these are None."""


def _describe(name: str, found: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    if name in _OPTIONS and None in (found.get(name), wanted[name]):
        began, now = ("without", "with") if found.get(name) is None else ("with", "without")
        return f"it began {began} {_OPTIONS[name]}, and is now {now} it"
    return _WORDS.get(name, f"{name} was {found.get(name)} and is now {wanted[name]}")


def _first_difference(path: Path, spec_yaml: str) -> str:
    old, new = path.read_text(encoding="utf-8").splitlines(), spec_yaml.splitlines()
    for before, now in zip([*old, ""], [*new, ""], strict=False):
        if before != now:
            return f"\n  was: {before.strip()}\n  now: {now.strip()}"
    return ""
