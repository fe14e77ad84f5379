"""Parses bodies, steps and blocks; checks their form and names, and collects all mistakes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from xformc.compiler.spec.problems import Problem, Span
from xformc.compiler.spec.signature import NOT_A_CHOICE, STEP_KEYS, Kind, Parameter, Signature, is_name
from xformc.compiler.spec.tree import Entry, Tree
from xformc.errors import suggest

OTHERWISE = "otherwise"
"""The branch of a choice for words without a branch of their own, and for a choice that is not set."""

_NAMES_STEPS = "a mapping under 'do' names its steps; write a list for unnamed steps"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True)
class Step:
    """A step applied to the running value, or to `source`. `level` is what it adds to paths."""

    span: Span
    level: str | None
    source: Tree | None


@dataclass(frozen=True)
class Call(Step):
    """A block, a primitive or a block argument, applied."""

    name: str
    arguments: "Mapping[str, Tree | Body]"


@dataclass(frozen=True)
class Repeat:
    """How often a body is applied.

    `index`: the name of the turn's number, from 0. `shared`: the turns have the same weights. `carry`: values that a
    turn passes to the next one, each with the name of its first value.
    """

    times: Tree
    index: str | None = None
    shared: bool = False
    carry: Mapping[str, Tree] = field(default_factory=dict[str, Tree])


@dataclass(frozen=True)
class Inline(Step):
    """`do: body`, perhaps repeated."""

    body: "Body"
    repeat: Repeat | None

    @property
    def plain(self) -> bool:
        """Whether it only wraps its body."""
        return self.repeat is None and self.source is None


@dataclass(frozen=True)
class Choose(Step):
    """One of several bodies, as `choice` says: the name of a choice or argument, or arithmetic."""

    choice: Tree
    bodies: "Mapping[str, Body]"


@dataclass(frozen=True)
class Body:
    """Steps in order, with their names if any. `label` names a step that takes this body as an argument."""

    steps: tuple[tuple[str | None, Step], ...]
    span: Span
    label: str | None = None


@dataclass(frozen=True)
class Block:
    """A named body, or a choice of bodies, with arguments."""

    name: str
    span: Span
    signature: Signature
    bodies: Mapping[str, Body]
    defaults: "Mapping[str, Tree | Body]"
    choice: Tree | None = None


@dataclass
class Parser:
    """Parses trees into steps and collects mistakes in `problems`.

    `signatures` has every primitive and the blocks in use; `shipped` are names to suggest. `defaults` are the arguments
    of steps that do not write them, by block or primitive.
    """

    signatures: Mapping[str, Signature]
    problems: list[Problem]
    shipped: frozenset[str] = frozenset()
    defaults: Mapping[str, Mapping[str, Tree]] = field(default_factory=dict[str, Mapping[str, Tree]])
    takes: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    words: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """The words of each choice, in all bodies that were parsed."""

    def block(self, name: str, tree: Tree, signature: Signature) -> Block:
        """The block of this definition."""
        defaults = {
            key: self._argument(item.kind, item.default)
            for key, item in signature.parameters.items()
            if item.default is not None
        }
        self.takes = signature.parameters
        choice = tree.get("choose")
        branches = {key: entry for key, entry in tree.entries.items() if key not in ("doc", "takes", "choose")}
        bodies = {key: self.body(entry.tree) for key, entry in branches.items()}
        if choice is not None:
            self._check_choice(choice, branches)
        self.takes = {}
        return Block(name, tree.span, signature, bodies, defaults, choice)

    def body(self, tree: Tree) -> Body:
        """The body under `do`, or under a word of a choice."""
        if isinstance(tree.value, dict):
            return Body(
                tuple(self._named(key, entry.key, entry.tree) for key, entry in tree.entries.items()), tree.span
            )
        if isinstance(tree.value, tuple):
            return self._list(tree)
        return self._single(tree)

    def stage(self, tree: Tree) -> Inline:
        """A stage of the model; the schema has checked its keys."""
        return self._repeated(tree, None)

    def _named(self, name: str, key: Span, tree: Tree) -> tuple[str | None, Step]:
        if not is_name(name):
            hint = "a name has letters, digits and _, and begins with a letter"
            self._problem(key, f"'{name[:40]}' is not a name", hint)
        if name == "x" or name in self.takes:
            self._problem(key, f"the name '{name}' is already in use here", "choose another name")
        return name, self._step(tree, name)

    def _list(self, tree: Tree) -> Body:
        steps = [self._item(item) for item in tree.items]
        if len(steps) == 1 and steps[0][0] is None:
            steps = [(None, replace(steps[0][1], level=None))]
        return Body(tuple(steps), tree.span)

    def _item(self, tree: Tree) -> tuple[str | None, Step]:
        """A step of a list, with the name that its key `name` gives it."""
        name = tree.entries.get("name")
        if name is None or len(tree.entries) == 1:
            return None, self._step(tree)
        rest = {key: entry for key, entry in tree.entries.items() if key != "name"}
        if not name.tree.word:
            self._problem(name.tree.span, f"a name must be a word, found {name.tree.described()}", None)
            return None, self._step(Tree(rest, tree.span))
        return self._named(name.tree.word, name.tree.span, Tree(rest, tree.span))

    def _single(self, tree: Tree) -> Body:
        step = self._step(tree)
        label = step.name if isinstance(step, Call) and step.name in self.takes else step.level
        return Body(((None, replace(step, level=None)),), tree.span, label)

    def _step(self, tree: Tree, level: str | None = None) -> Step:
        if isinstance(tree.value, str):
            return self._call(tree.value, tree.span, None, level)
        if any(key in tree.entries for key in ("repeat", "do")):
            return self._inline(tree, level)
        if isinstance(tree.value, tuple) and level is not None and not self._takes_list(level):
            return Inline(tree.span, level, None, self._list(tree), None)
        if "choose" in tree.entries:
            return self._choose(tree, level)
        if len(tree.entries) != 1:
            found = f"{len(tree.entries)} keys" if tree.entries else tree.described()
            message = f"a step must be a block's name, or one key with its arguments; found {found}"
            hint = "begin each step of a list with its own '-'" if tree.entries else None
            self._problem(tree.span, message, _NAMES_STEPS if level in self.signatures else hint)
            return Inline(tree.span, level, None, Body((), tree.span), None)
        ((name, entry),) = tree.entries.items()
        return self._call(name, entry.key, entry.tree, level)

    def _inline(self, tree: Tree, level: str | None) -> Inline:
        unknown = [(key, entry) for key, entry in tree.entries.items() if key not in STEP_KEYS]
        for key, entry in unknown:
            hint = suggest(key, STEP_KEYS) or f"the keys are {', '.join(STEP_KEYS)}"
            self._problem(entry.key, f"unknown key '{key[:40]}'", hint)
        if tree.get("do") is None and not unknown:
            self._problem(tree.span, "the key 'do' is missing", "write the steps under 'do'")
        return self._repeated(tree, level)

    def _repeated(self, tree: Tree, level: str | None) -> Inline:
        """The body under `do`, with what `repeat` and the keys beside it say."""
        repeat, do, takes = self._repeat(tree), tree.get("do"), self.takes
        if repeat is not None and repeat.index is not None:
            self.takes = {**takes, repeat.index: Parameter("number")}
        body = Body((), tree.span) if do is None else self.body(do)
        self.takes = takes
        if repeat is not None:
            self._check_carried(tree, repeat, body)
        return Inline(tree.span, level, tree.get("from"), body, repeat)

    def _repeat(self, tree: Tree) -> Repeat | None:
        times, index, shared, carry = (tree.get(key) for key in ("repeat", "index", "shared", "carry"))
        if times is None:
            for key in ("index", "shared", "carry"):
                if key in tree.entries:
                    self._problem(tree.entries[key].key, f"'{key}' needs 'repeat' beside it", None)
            return None
        if index is not None and (not is_name(index.word) or index.word == "x" or index.word in self.takes):
            self._problem(index.span, f"the index needs a name of its own, found {index.described()}", None)
            index = None
        if shared is not None and not isinstance(shared.value, bool):
            self._problem(shared.span, f"must be true or false, found {shared.described()}", None)
        if carry is not None and not isinstance(carry.value, dict):
            message = f"must name values and what each is at first, found {carry.described()}"
            self._problem(carry.span, message, "such as {memory: x}")
        carried = {} if carry is None else {key: entry.tree for key, entry in carry.entries.items()}
        return Repeat(times, index and index.word, shared is not None and shared.value is True, carried)

    def _check_carried(self, tree: Tree, repeat: Repeat, body: Body) -> None:
        named, carry = {name for name, _ in body.steps}, tree.get("carry")
        for key, entry in ({} if carry is None else carry.entries).items():
            if key not in named:
                message = f"no step of the body is named '{key[:40]}', so there is nothing to carry to the next turn"
                self._problem(entry.key, message, suggest(key, filter(None, named)))

    def _choose(self, tree: Tree, level: str | None) -> Choose:
        choice = tree.entries["choose"].tree
        branches = {key: entry for key, entry in tree.entries.items() if key not in ("choose", "from")}
        if not choice.word:
            self._problem(choice.span, NOT_A_CHOICE, None)
        if not branches:
            self._problem(tree.span, "needs a body for each word of the choice", "write the words beside 'choose'")
        self._check_choice(choice, branches)
        bodies = {key: self.body(entry.tree) for key, entry in branches.items()}
        return Choose(tree.span, level, tree.get("from"), choice, bodies)

    def _check_choice(self, choice: Tree, branches: Mapping[str, Entry]) -> None:
        """Check the branches of a choice by arithmetic; record the words of others."""
        taken = self.takes.get(choice.word)
        if is_name(choice.word) and (taken is None or taken.kind != "number"):
            self.words.setdefault(choice.word, set()).update(branches)
            return
        for key, entry in branches.items():
            if key != OTHERWISE and not _NUMBER.fullmatch(key):
                self._problem(entry.key, f"'{choice.word}' is a number, so '{key[:40]}' must be one", None)

    def _call(self, name: str, span: Span, given: Tree | None, level: str | None) -> Step:
        signature = self._signature(name, span, given)
        if signature is None:
            return Call(span, level, None, name, {})
        arguments, source = self._arguments(name, span, given, signature)
        if level is None:
            level = None if name in self.takes else _level(name, signature, arguments)
        return Call(span, level, source, name, arguments)

    def _signature(self, name: str, span: Span, given: Tree | None) -> Signature | None:
        parameter = self.takes.get(name)
        if parameter is not None and parameter.kind == "block":
            return Signature({}, transparent=True)
        if parameter is not None:
            self._problem(span, f"'{name}' is a {parameter.kind}, not a block", None)
            return None
        if name not in self.signatures:
            own = [key for key, item in self.takes.items() if item.kind == "block"]
            blocks = [*own, *self.signatures, *self.shipped.difference(self.signatures)]
            hint = suggest(name, blocks)
            if isinstance(given, Tree) and any(word in self.signatures for word in given.entries):
                hint = _NAMES_STEPS
            elif given is not None and given.word in blocks:
                hint = f"a step of a list is named so: {{name: {name[:40]}, {given.word}: {{}}}}"
            self._problem(span, f"unknown block '{name[:40]}'", hint)
        return self.signatures.get(name)

    def _arguments(
        self, name: str, span: Span, given: Tree | None, signature: Signature
    ) -> tuple[dict[str, "Tree | Body"], Tree | None]:
        taken = signature.parameters
        first = next(iter(taken), None)
        trees: dict[str, Tree] = {}
        source = None
        if given is not None and isinstance(given.value, dict) and not self._is_step(given, taken):
            for key, entry in given.entries.items():
                if key == "from":
                    source = entry.tree
                elif key in taken:
                    trees[key] = entry.tree
                else:
                    hint = suggest(key, taken) or f"its arguments: {', '.join(taken) or 'none'}"
                    self._problem(entry.key, f"{name} takes no argument '{key[:40]}'", hint)
        elif given is not None and first is None:
            hint = f"write just {name}, or {name}: {{from: VALUE}}"
            self._problem(given.span, f"{name} takes no arguments", hint)
        elif given is not None and first is not None:
            trees[first] = given
        trees = {**self.defaults.get(name, {}), **trees}
        for key, parameter in taken.items():
            if key not in trees and parameter.required:
                self._problem(span, f"{name} needs the argument '{key}'", f"write {name}: {{{key}: ...}}")
        return {key: self._argument(taken[key].kind, tree) for key, tree in trees.items()}, source

    def _is_step(self, given: Tree, taken: Mapping[str, Parameter]) -> bool:
        first = next(iter(taken.values()), None)
        named = any(key in taken or key == "from" for key in given.entries) and "do" not in given.entries
        return first is not None and first.kind == "block" and not named

    def _takes_list(self, name: str) -> bool:
        """Whether a list behind this name would be an argument of the block or primitive that is called so."""
        signature = self.signatures.get(name)
        first = None if signature is None else next(iter(signature.parameters.values()), None)
        return first is not None and first.kind in ("block", "axes", "names", "numbers")

    def _argument(self, kind: Kind, tree: Tree) -> "Tree | Body":
        if kind != "block":
            return tree
        return self._list(tree) if isinstance(tree.value, tuple) else self._single(tree)

    def _problem(self, span: Span, message: str, hint: str | None) -> None:
        self.problems.append(Problem(span, message, hint))


def _level(name: str, signature: Signature, arguments: Mapping[str, Tree | Body]) -> str | None:
    """The level that a call adds to paths: its block's name, or that of a block passed as an argument."""
    labels = [body.label for body in arguments.values() if isinstance(body, Body) and body.label]
    return labels[0] if labels else None if signature.transparent else name
