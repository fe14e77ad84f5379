"""Model cards: a README.md that says what a model reads and returns, and with what it was compared."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from xformc import __version__
from xformc.errors import UserError

CARD = "README.md"
LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")
PIPELINES = {
    "translation": "translation",
    "language_model": "text-generation",
    "tagging": "token-classification",
    "classification": "text-classification",
}
"""The names that Hugging Face's hub has for tasks."""


@dataclass(frozen=True)
class Card:
    """What a card says.

    library: what loads the model. facts: what it is, by name. checks: the lines of its comparisons.
    """

    name: str
    library: str
    licence: str | None
    task: str
    facts: Mapping[str, str]
    checks: Sequence[str] = ()
    tags: Sequence[str] = ()

    def text(self) -> str:
        """The card in Markdown, after the fields that the hub reads."""
        head = ["---", f"library_name: {self.library}", f"license: {_text(self.licence)}" if self.licence else ""]
        head += [f"pipeline_tag: {PIPELINES[self.task]}" if self.task in PIPELINES else "", "tags:"]
        head += [f"- {tag}" for tag in ("xformc", *self.tags)]
        lines = [*filter(None, head), "---", "", f"# {_plain(self.name)}", ""]
        lines += [f"Written by xformc {__version__}.", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {_plain(value)} |" for name, value in self.facts.items()]
        lines += ["", f"Licence: {self.licence or 'not stated'}", "", "## Checks", ""]
        checks = ["```", *self.checks, "```"] if self.checks else ["None is recorded."]
        return "\n".join([*lines, *checks]) + "\n"


def checked_licence(licence: str | None) -> str | None:
    """The identifier of a licence. Raises: UserError for a text that is none, such as a name with spaces."""
    if licence is None or LICENCE.fullmatch(licence):
        return licence
    hint = "write the hub's identifier, such as apache-2.0, mit, cc-by-4.0 or other"
    raise UserError(f"--licence must be an identifier in lower case, found {licence[:60]!r}", hint=hint)


def _text(word: str) -> str:
    """A word as YAML has it: in quotes where it would be another value, such as `no`."""
    return word if yaml.safe_load(word) == word else f'"{word}"'


def _plain(text: str) -> str:
    """Text that is no markup: one line, in which a bar ends no cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
