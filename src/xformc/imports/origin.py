"""What an import reads from the folder or the file of another library, before a family's table makes a run of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xformc.compiler.shortlist import Shortlist
from xformc.compiler.spec.tree import Scalar
from xformc.imports.checkpoint import Stored
from xformc.imports.family import Family
from xformc.imports.tokenizers import ForeignTokenizer

REMOVE = "remove the file to import the model without it"
"""A hint for a damaged file that a model can do without."""


@dataclass(frozen=True)
class Origin:
    """A model of another library.

    place: where messages say that mistakes are. values: its config, nested keys joined by dots. tensors: its weights by
    their names there, given the prefix that they may have. replayed: whether `--replay` can run it.
    shortlist: the tokens among which its search looks; None for all. unread: the options of its search that are not
    imported. templated: whether prompts begin as the template of its tokenizer.json says.
    """

    place: str
    values: Mapping[str, Scalar]
    family: Family
    tensors: Callable[[str], Mapping[str, Stored]]
    tokenizer: ForeignTokenizer | None
    replayed: bool = False
    shortlist: Shortlist | None = None
    unread: Sequence[str] = ()
    templated: bool = False


@dataclass(frozen=True)
class Reader:
    """How the models of one library are found and read.

    reads: whether a path looks like one. read: the model, by the table of its family or one that is given.
    """

    reads: Callable[[Path], bool]
    read: Callable[[Path, Path | None], Origin]
