"""The option `--json-input`: lines of JSON, each a text with options of its own."""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from typer import Option

from xformc.errors import UserError, refuse_together, suggest
from xformc.format.search_options import SHAPES
from xformc.runtime.each import Asked
from xformc.runtime.generation.sampling import SampleArguments
from xformc.runtime.options import SearchArguments

JSON_HELP = """Lines are JSON: a text, or an object of a `text` and options of its own, such as {"text": "...",
"min_length": 5}; several inputs have the text of each by name. Texts may have line breaks. Needs --json."""
JsonInput = Annotated[bool, Option("--json-input", help=JSON_HELP)]

TEXT_KEYS = ("text", "prompt")
HINT = 'write "a text" or {"text": "a text"}'


def require_json_output(json_input: bool, as_json: bool, **others: object) -> None:
    """Raises: UserError for lines of JSON without `--json`, and beside the other options, if any is given."""
    if not json_input:
        return
    if not as_json:
        raise UserError("--json-input needs --json", hint="a line of text cannot show a text with line breaks")
    for name, value in others.items():
        refuse_together({"--json-input": json_input, f"--{name}": value})


def require_lines(json_input: bool, files: Sequence[Path] | None, examples: Path | None) -> None:
    """Raises: UserError for lines of JSON where the examples are files, or the arrays of an .npz file."""
    if json_input and (files is not None or (examples is not None and examples.suffix == ".npz")):
        raise UserError("--json-input is for lines of text", hint="leave it out, or give the lines to --input")


def json_texts(
    lines: Iterator[str], kind: type[SearchArguments] | type[SampleArguments], inputs: Sequence[str] = ()
) -> Iterator[Asked[Any]]:
    """Yield the text of each line of JSON with its options, which are those of `kind`; of several `inputs`, a mapping
    from them to their texts.

    Raises: UserError at a line that has no text, or what is no option of a single text.
    """
    known = [name for base in (*kind.__mro__, kind) for name in getattr(base, "__annotations__", {})]
    names = {name for name in known if name not in SHAPES}
    return (_read(line, f"line {number}", names, inputs) for number, line in enumerate(lines, start=1))


def json_alone(lines: Iterator[str], inputs: Sequence[str] = ()) -> Iterator[Any]:
    """Yield the text of each line of JSON, without options; see `json_texts`."""
    return (_read(line, f"line {number}", (), inputs).item for number, line in enumerate(lines, start=1))


def _read(line: str, place: str, names: Collection[str], inputs: Sequence[str]) -> Asked[Any]:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply, or a number is too long"
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at column {error.colno}"
        raise UserError(f"not JSON: {reason}", place=place, hint=HINT) from error
    options: dict[str, Any] = dict(cast(dict[str, Any], found)) if isinstance(found, dict) else {TEXT_KEYS[0]: found}
    text = _texts(options, inputs, place) if len(inputs) > 1 else _text(options, place)
    unknown = [name for name in options if name not in names]
    if unknown:
        hint = suggest(unknown[0], names) or (f"there are {', '.join(sorted(names))}" if names else HINT)
        raise UserError(f"{unknown[0]} is no option of a text", place=place, hint=hint)
    return Asked(text, options)


def _text(options: dict[str, Any], place: str) -> str:
    """Take the text of a line from its options."""
    texts = [options.pop(name) for name in TEXT_KEYS if name in options]
    if len(texts) > 1:
        raise UserError("the line has a text and a prompt", place=place, hint="both are the text: leave one out")
    if not texts or not isinstance(texts[0], str):
        raise UserError("the line has no text", place=place, hint=HINT)
    return texts[0]


def _texts(options: dict[str, Any], inputs: Sequence[str], place: str) -> dict[str, str]:
    """Take the text of each input from the options of a line."""
    lacking = [name for name in inputs if not isinstance(options.get(name), str)]
    if lacking:
        example = ", ".join(f'"{name}": "a text"' for name in inputs)
        raise UserError(f"the line has no text of {' and '.join(lacking)}", place=place, hint=f"write {{{example}}}")
    return {name: options.pop(name) for name in inputs}
