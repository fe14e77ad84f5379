"""The constraints of translations, as calls give them: regular expressions, JSON schemas and automata."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from xformc.errors import UserError, refuse_together
from xformc.format.abilities import TAKES_AUTOMATA
from xformc.format.manifest import Manifest
from xformc.runtime.constraints.automaton import Automaton, Matching, matching_of
from xformc.runtime.constraints.grammar import automaton_of
from xformc.runtime.generation.constrain import Spelled
from xformc.runtime.text.tokenizer import Tokenizer

T = TypeVar("T")
ForTexts = T | Sequence[T | None] | None
"""What all texts match, or a list with what each matches, None for any text."""

Schema = Mapping[str, Any] | str


def spelled_text(manifest: Manifest, tokenizer: Tokenizer) -> Spelled:
    """Return the bytes of the tokens of the written text. Raises: UserError for pieces that have none."""
    text, vocabulary = manifest.inputs[manifest.written], tokenizer.vocabularies[manifest.written]
    pieces = vocabulary.spelling()
    return Spelled([*pieces, *[b""] * (text.pieces - len(pieces))], text.special, vocabulary.strips)


def resolve_constraint(
    manifest: Manifest, tokenizer: Tokenizer | None, given: Mapping[str, object], idle: Mapping[str, object]
) -> Matching | None:
    """Return what the translations of a call match; None if nothing is given, or a function.

    given: the arguments `regex`, `json_schema`, `constraint` and `allowed`. idle: those without effect beside them.

    Raises: UserError for several of them, for one that is wrong, and for an engine without constraints.
    """
    there = [name for name, value in given.items() if value is not None]
    if not there:
        return None
    refuse_together({**given, **idle})
    (name,) = there
    manifest.require(TAKES_AUTOMATA)
    value, written = given[name], manifest.inputs[manifest.written]
    if name == "allowed":
        if not callable(value):
            raise UserError("allowed must be a function of the tokens so far")
        return None
    if name == "constraint":
        _require(name, value, Automaton)
        return matching_of(cast(Any, value), written)
    _require(name, value, str if name == "regex" else (str, Mapping))
    if tokenizer is None or manifest.written not in tokenizer.vocabularies:
        raise UserError("the engine has no tokenizer for its text", hint="give an automaton: constraint=Automaton(..)")
    spelled, made = spelled_text(manifest, tokenizer), dict[str, Automaton]()

    def automaton(one: Any) -> Automaton | None:
        if one is None:
            return None
        if repr(one) not in made:
            made[repr(one)] = automaton_of(spelled, **{name: one})
        return made[repr(one)]

    several = isinstance(value, list | tuple)
    return matching_of(
        cast(Any, [automaton(one) for one in cast(Any, value)] if several else automaton(value)), written
    )


def _require(name: str, value: object, kind: Any) -> None:
    several = cast(Sequence[object], value) if isinstance(value, list | tuple) else [value]
    if not all(one is None or isinstance(one, kind) for one in several):
        wanted = {"regex": "a regular expression", "json_schema": "a JSON schema", "constraint": "an Automaton"}[name]
        raise UserError(f"{name} must be {wanted}, or a list with one for each text")
