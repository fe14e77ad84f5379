"""Ensembles: one spec of several models of the same inputs, whose distributions of the next token are averaged."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated

from pydantic import Field

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.graph.graph_builder import GraphBuilder
from xformc.compiler.ops.mixture import Mixture
from xformc.compiler.spec.alignment import chosen_attentions
from xformc.compiler.spec.frames import Frame
from xformc.compiler.spec.problems import Problem, Source, raise_problems
from xformc.compiler.spec.schema import Word, validate
from xformc.compiler.spec.sections import Decode, Section
from xformc.compiler.spec.settings import apply_settings, parse_settings
from xformc.compiler.spec.spec import Spec, read_spec
from xformc.compiler.spec.tree import Plain, Tree, parse_yaml, write_yaml
from xformc.errors import UserError
from xformc.format.precision import Caches, Precision

MEMBERS = "members"
MOST = 16
"""Members of an ensemble."""

AVERAGED = ("text", "labels")
"""The kinds of results that are distributions over tokens or labels."""


class EnsembleDocument(Section):
    """A spec of an ensemble: the whole specs of its members, and how the search decodes."""

    name: Word | None = None
    members: Annotated[list[dict[str, object]], Field(min_length=2, max_length=MOST)]
    decode: Decode = Decode()


@dataclass(frozen=True)
class Ensemble(Spec):
    """A spec whose graph holds those of its `members`: their names begin with 1/, 2/, ..; each result is their mean."""

    members: tuple[Spec, ...] = field(default=(), repr=False)

    def graph(self) -> Graph:
        """The training graph. Raises: SpecError."""
        return self._mixed

    @cached_property
    def _mixed(self) -> Graph:
        graph = mixed(self.name, [member.graph() for member in self.members])
        raise_problems(chosen_attentions(self.tree, self.decode, graph))
        return graph

    def frames(self) -> tuple[Frame, ...]:
        """The frames of the members' stages, in order."""
        found = [(str(number), frame) for number, one in enumerate(self.members, 1) for frame in one.frames()]
        inputs = frozenset(self.inputs)
        return tuple(_within(prefix, frame, inputs) for prefix, frame in found)

    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """All paths of each parameter, by its name."""
        return {
            f"{number}/{name}": tuple(f"{number}/{path}" for path in paths)
            for number, member in enumerate(self.members, 1)
            for name, paths in member.paths().items()
        }

    @property
    def default_precision(self) -> Precision:
        """The precision of weights that no pattern matches, if it is that of all members; float32 otherwise."""
        found: list[Precision] = [member.default_precision for member in self.members]
        return found[0] if found.count(found[0]) == len(found) else "float32"

    @property
    def caches(self) -> Caches:
        """How an engine stores the keys and values that it keeps, if all members say the same."""
        return "int8" if all(member.caches == "int8" for member in self.members) else "auto"

    def precisions(self, default: Precision | None = None) -> dict[str, Precision]:
        """The precision of every weight that can be quantized, by name; `default` overrides the members' own."""
        return {
            f"{number}/{name}": precision
            for number, member in enumerate(self.members, 1)
            for name, precision in member.precisions(default).items()
        }

    def low_rank_weights(self) -> frozenset[str]:
        """None: an ensemble is not trained."""
        return frozenset()

    def resolved_yaml(self) -> str:
        """The ensemble as one self-contained file, with the resolved specs of its members."""
        decode = _given(self.decode.model_dump())
        return write_yaml({"name": self.name, MEMBERS: [_plain(one) for one in self.members], "decode": decode})


def require_one(spec: Spec) -> None:
    """Raises: UserError for an ensemble, which is not trained."""
    if isinstance(spec, Ensemble):
        raise UserError(f"{spec.name} is an ensemble, which is not trained", hint="train its members, then build them")


def join(specs: Sequence[Spec], name: str, settings: Sequence[str] = ()) -> Ensemble:
    """The ensemble of several specs, which decodes as the first one, unless settings `PATH=VALUE` say otherwise.

    Raises: SpecError as `read_ensemble`, UserError for a setting without a path.
    """
    decode, members = specs[0].decode.model_dump(), [_plain(one) for one in specs]
    for key in ("alignment", "coverage"):
        if decode[key] is not None:
            decode[key] = f"1/{decode[key]}"
    text = write_yaml({"name": name, MEMBERS: members, "decode": _given(decode)})
    tree = apply_settings(parse_yaml(Source(name, text)), parse_settings(settings))
    return read_ensemble(tree, name)


def read_ensemble(tree: Tree, stem: str) -> Ensemble:
    """The ensemble of a tree; without a name of its own it is called `stem`.

    Raises: SpecError for every mistake in it and in its members, and for members that cannot be averaged.
    """
    document, problems = validate(tree, EnsembleDocument)
    raise_problems(problems)
    assert document is not None
    section = tree.entries[MEMBERS].tree
    members = tuple(read_spec(one, f"member{number}") for number, one in enumerate(section.items, 1))
    raise_problems(_apart(section, members))
    first = members[0]
    return Ensemble(
        name=document.name or re.sub(r"[^A-Za-z0-9_.-]", "_", stem)[:64],
        task=first.task,
        sizes=first.sizes,
        inputs=first.inputs,
        results=first.results,
        train=first.train,
        decode=document.decode,
        initial={},
        precision={},
        model=first.model,
        tree=tree,
        members=members,
    )


def mixed(name: str, graphs: Sequence[Graph]) -> Graph:
    """One graph of several with the same inputs: each result is the mixture of theirs along its last axis."""
    builder = GraphBuilder(name)
    inputs = {value.name: builder.input(value.name, value.type) for value in graphs[0].inputs}
    outputs = [_copied(builder, str(number), graph, inputs) for number, graph in enumerate(graphs, 1)]
    several = zip(*outputs, strict=True)
    return builder.finish(
        [builder.emit(Mixture(values[0].type.names[-1]), values, f"{values[0].name[2:]}/mixture") for values in several]
    )


def _copied(builder: GraphBuilder, prefix: str, graph: Graph, inputs: Mapping[str, Value]) -> list[Value]:
    """Append the nodes of a member, and return its results."""
    values = dict(inputs)
    for one in graph.parameters:
        path = f"{prefix}/{one.name}"
        values[one.name] = Value(path, one.type)
        builder.parameters[path] = replace(one, value=values[one.name])
        builder.names.add(path)
    for node in graph.nodes:
        made = builder.emit_all(
            node.op, [values[value.name] for value in node.inputs], f"{prefix}/{node.outputs[0].name}", node.place
        )
        values.update(zip((value.name for value in node.outputs), made, strict=True))
    return [values[value.name] for value in graph.outputs]


def _within(prefix: str, frame: Frame, inputs: frozenset[str]) -> Frame:
    """The frame of a member as one of the ensemble."""

    def named(value: Value) -> Value:
        return value if value.name in inputs else replace(value, name=f"{prefix}/{value.name}")

    return replace(
        frame,
        name=f"{prefix}/{frame.name}" if frame.kind == "stage" else frame.name,
        path=f"{prefix}/{frame.path}",
        x=named(frame.x),
        result=named(frame.result),
        made=tuple(f"{prefix}/{name}" for name in frame.made),
        children=tuple(_within(prefix, child, inputs) for child in frame.children),
    )


def _plain(spec: Spec) -> Plain:
    return parse_yaml(Source(spec.name, spec.resolved_yaml())).plain()


def _given(decode: dict[str, Plain]) -> Plain:
    """The settings of decoding that are set: YAML has no alignment that is None."""
    return {name: value for name, value in decode.items() if value is not None}


def _apart(section: Tree, members: Sequence[Spec]) -> list[Problem]:
    """What keeps the members from being averaged."""
    first, problems = members[0], list[Problem]()
    for result in first.results:
        if result.kind not in AVERAGED or result.settings.get("several"):
            what = "several labels at once" if result.kind in AVERAGED else result.kind
            message = f"the result '{result.name}' is {what}: only text and single labels are averaged"
            problems.append(Problem(section.items[0].span, message))
    outputs = [_kinds(one) for one in members]
    for tree, one, found in zip(section.items[1:], members[1:], outputs[1:], strict=True):
        if dict(one.inputs) != dict(first.inputs) or one.task != first.task or found != outputs[0]:
            message = (
                f"'{one.name}' has other inputs or results than '{first.name}': {_shape(one)}, not {_shape(first)}"
            )
            problems.append(Problem(tree.span, message, "members read and write with one vocabulary"))
    return problems


def _kinds(spec: Spec) -> list[tuple[str, Type]]:
    """The kind of each result, and its type."""
    return [(result.kind, value.type) for result, value in zip(spec.results, spec.graph().outputs, strict=True)]


def _shape(spec: Spec) -> str:
    """The inputs and results of a spec in words."""
    inputs = ", ".join(f"{name} ({', '.join(map(str, item.axes))})" for name, item in spec.inputs.items())
    return f"{spec.task} with the inputs {inputs}"
