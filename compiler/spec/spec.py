"""A spec: read from a file, checked, and expanded to a graph on demand."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.initialization import Initialization
from xformc.compiler.ops.roundable import linear_axes, roundable
from xformc.compiler.results.kind import Declared
from xformc.compiler.spec.alignment import chosen_attentions
from xformc.compiler.spec.consistency import (
    learned_limits,
    named_apart,
    noise_fits,
    objective_fits,
    r_drop_fits,
    sampling_fits,
    schedule_rate,
    score_fits,
    shared_vocabulary,
    unused,
    unused_blocks,
    values_apart,
    wide_beam,
    word_pieces,
)
from xformc.compiler.spec.default_arguments import unused_defaults
from xformc.compiler.spec.dependence import needed_values
from xformc.compiler.spec.elaborate import Elaborated, elaborate
from xformc.compiler.spec.expressions import Number
from xformc.compiler.spec.frames import Frame
from xformc.compiler.spec.frozen_parameters import adapted, frozen, low_rank_weights
from xformc.compiler.spec.initial_values import initialized, read_section
from xformc.compiler.spec.learning_rates import idle_rates, rates_of, trained_in
from xformc.compiler.spec.load import own_results
from xformc.compiler.spec.model import Input, Model
from xformc.compiler.spec.problems import Problem, Span, raise_problems
from xformc.compiler.spec.resolve import reachable_blocks, read_model
from xformc.compiler.spec.results import task_of
from xformc.compiler.spec.schema import Document, validate
from xformc.compiler.spec.sections import Decode, Train
from xformc.compiler.spec.sizes import with_dependencies
from xformc.compiler.spec.tasks import idle_settings, written_in
from xformc.compiler.spec.tree import Entry, Plain, Tree, write_yaml
from xformc.compiler.spec.weight_precision import CACHES, DEFAULT, RESERVED, assign, caches_fit, idle_patterns
from xformc.format.precision import WORDS, Caches, Precision


@dataclass(frozen=True)
class Spec:
    """One architecture with its training recipe and its decoding defaults."""

    name: str
    task: str
    sizes: Mapping[str, Number]
    inputs: Mapping[str, Input]
    results: tuple[Declared, ...]
    train: Train
    decode: Decode
    initial: Mapping[str, Initialization]
    precision: Mapping[str, Precision]
    model: Model = field(repr=False)
    tree: Tree = field(repr=False)
    sizes_of_initial: frozenset[str] = field(default=frozenset(), repr=False)

    def graph(self) -> Graph:
        """The training graph. Raises: SpecError."""
        return self._elaborated.graph

    def frames(self) -> tuple[Frame, ...]:
        """The frame of each stage: how the steps that wrote the graph nest. Raises: SpecError, as `graph` does."""
        return self._elaborated.frames

    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """All paths of each parameter, by its name: several if it is tied. Raises: SpecError, as `graph` does."""
        return self._elaborated.paths

    @property
    def written(self) -> str | None:
        """The input of tokens that is written token by token, or None."""
        return written_in(self.results)

    @property
    def default_precision(self) -> Precision:
        """The precision of weights that no pattern of the spec matches."""
        return self.precision.get(DEFAULT, "float32")

    @property
    def caches(self) -> Caches:
        """How an engine stores the keys and values that it keeps, unless a build says it."""
        return "int8" if CACHES in self.precision else "auto"

    def precisions(self, default: Precision | None = None) -> dict[str, Precision]:
        """The precision of each weight of an engine that can be quantized, by name; `default` overrides the spec's own.

        Raises: SpecError, as `graph` does.
        """
        return assign(self.precision, default or self.default_precision, _stored(self.graph()), self._elaborated.paths)

    def low_rank_weights(self) -> frozenset[str]:
        """The weights that training changes by a product of low rank, by name. Raises: SpecError, as `graph` does."""
        section = self.train.low_rank
        return frozenset() if section is None else low_rank_weights(self.graph(), section, self._elaborated.paths)

    def learned_numbers(self) -> dict[str, int]:
        """How many numbers training learns for each trained parameter: all of it, or its two factors of low rank.

        Raises: SpecError, as `graph` does.
        """
        found = {item.name: item for item in self.graph().parameters if item.trained}
        numbers = {name: item.count for name, item in found.items()}
        if self.train.low_rank is not None:
            axes = linear_axes(self.graph())
            for name in self.low_rank_weights():
                inputs = prod(found[name].type.sizes()[-axes[name] :])
                numbers[name] = self.train.low_rank.rank * (inputs + numbers[name] // inputs)
        return numbers

    def learning_rates(self) -> dict[str, float]:
        """The parts of the schedule's rate that the recipe sets, by parameter. Raises: SpecError, as `graph` does."""
        patterns = self.train.rates
        return rates_of(patterns, trained_in(self.graph()), self._elaborated.paths) if patterns else {}

    def place_of_precision(self, precision: Precision, *, default: bool) -> Span | None:
        """Where the spec first sets this precision, or None. `default`: its default counts as well."""
        keys = {DEFAULT} if default else set[str]()
        said = (entry.tree for key, entry in self._section("precision") if key in keys or key not in RESERVED)
        return next((tree.span for tree in said if WORDS.get(tree.word) == precision), None)

    def place_of_caches(self) -> Span | None:
        """Where the spec sets how caches are stored, or None."""
        return next((entry.key for key, entry in self._section("precision") if key == CACHES), None)

    def resolved_yaml(self) -> str:
        """The spec as one self-contained file: with what it extends, its blocks and its defaults.

        Leaves out what the model does not use. Raises: SpecError, as `graph` does.
        """
        used, document = self._elaborated, self.tree.plain()
        assert isinstance(document, dict)
        resolved: dict[str, Plain] = {"name": self.name}
        declared = document.get("results")
        resolved |= {"results": declared} if declared else {"task": self.task}
        for section, names in (("sizes", used.sizes), ("choices", used.choices)):
            resolved[section] = {name: entry.tree.plain() for name, entry in self._section(section) if name in names}
        defaults: dict[str, Plain] = {
            step: {name: item.plain() for name, item in given.items() if (step, name) in used.defaults}
            for step, given in self.model.defaults.items()
            if any(name == step for name, _ in used.defaults)
        }
        resolved |= {"defaults": defaults} if defaults else {}
        stages = dict(self._section("model"))
        resolved["inputs"] = document["inputs"]
        resolved |= {"special_tokens": document["special_tokens"]} if document.get("special_tokens") else {}
        resolved["model"] = {name: stages[name].tree.plain() for name in self.model.stages}
        resolved["tie"] = document.get("tie", [])
        resolved |= {"train": self.train.model_dump(), "decode": self.decode.model_dump()}
        for key in ("losses", "noise", "objective", "stages", "freeze", "rates", "low_rank"):
            if not getattr(self.train, key):
                _remove(resolved, ("train", key))
        if not self.train.checkpoint.scores:
            _remove(resolved, ("train", "checkpoint", "scores"))
        for key in ("sampling", "symbols"):
            if not getattr(self.train.tokenizer, key):
                _remove(resolved, ("train", "tokenizer", key))
        for key in ("alignment", "coverage", "prefix"):
            if not getattr(self.decode, key):
                _remove(resolved, ("decode", key))
        if self.initial:
            resolved["initial"] = {pattern: entry.tree.plain() for pattern, entry in self._section("initial")}
        if self.precision:
            resolved["precision"] = dict(self.precision)
        for path in idle_settings(self.task, self.inputs, self.results):
            _remove(resolved, path)
        blocks = reachable_blocks(self.tree, self.model.stages)
        resolved["blocks"] = {name: entry.tree.plain() for name, entry in blocks.items()}
        return write_yaml(resolved)

    @cached_property
    def _elaborated(self) -> Elaborated:
        done = elaborate(self.name, self.task, self.model)
        schedule = self.train.schedule
        width = {schedule.width} if "width" not in schedule.idle() else set[str]()
        rates = {rate.word for _, entry in self._section("inputs") if (rate := entry.tree.get("rate")) is not None}
        sizes = with_dependencies(self.tree.get("sizes"), width | rates | done.sizes | self.sizes_of_initial)
        graph = initialized(done.graph, self.initial, self.tree, done.paths)
        graph = frozen(graph, self.train.freeze, self.tree, done.paths)
        graph = adapted(graph, self.train.low_rank, self.tree, done.paths)
        done = replace(done, graph=graph, sizes=frozenset(sizes))
        raise_problems(
            [
                *unused(self.tree, "size", "sizes", done.sizes),
                *unused(self.tree, "choice", "choices", done.choices),
                *unused_defaults(self.tree, done.defaults),
                *learned_limits(self.model, self.train, done.graph),
                *idle_patterns(self.tree, _stored(done.graph), done.paths),
                *idle_rates(self.tree, trained_in(done.graph), done.paths),
                *(chosen_attentions(self.tree, self.decode, done.graph)),
            ]
        )
        return done

    def _section(self, name: str) -> list[tuple[str, Entry]]:
        section = self.tree.get(name)
        return [] if section is None else list(section.entries.items())


def _stored(graph: Graph) -> tuple[str, ...]:
    """The weights that can be quantized, without those that only auxiliary losses need: engines leave these out."""
    needed = needed_values(graph, graph.outputs)
    return tuple(name for name in roundable(graph) if name in needed)


def _remove(section: dict[str, Plain], path: tuple[str, ...]) -> None:
    for key in path[:-1]:
        inner = section[key]
        assert isinstance(inner, dict)
        section = inner
    section.pop(path[-1], None)


def read_spec(tree: Tree, stem: str) -> Spec:
    """The spec of a tree; without a name of its own it is called `stem`. Raises: SpecError as `load_spec`."""
    tree = own_results(tree)
    document, problems = validate(tree, Document)
    problems += [
        Problem(tree.entries[key].key, f"'{key}' is not a setting", "write it in the file")
        for key in ("extends", "import")
        if key in tree.entries and tree.entries[key].key.source.setting
    ]
    model = read_model(tree, problems)
    initial, sizes_of_initial = read_section(tree, model.sizes, problems)
    problems += unused_blocks(tree)
    task = (document and document.task) or task_of(tree, model.results, model.inputs)
    if document is not None and not problems:
        problems += shared_vocabulary(tree, document.train, model.inputs)
        problems += schedule_rate(tree, document.train, model.sizes)
        problems += wide_beam(tree, task, written_in(model.results), document.decode, model.inputs)
        problems += word_pieces(tree, document.task, document.train, model.inputs)
        problems += objective_fits(tree, document.train, model.inputs, model.results)
        problems += sampling_fits(tree, task, document.train)
        problems += noise_fits(tree, document.train, model.inputs, written_in(model.results))
        problems += score_fits(tree, task, document.train)
        problems += r_drop_fits(tree, document.train, model.results)
        problems += named_apart(tree, document.train, model.inputs, model.results)
        problems += values_apart(tree, task, model.inputs, model.results)
        problems += caches_fit(tree, task, written_in(model.results))
    raise_problems(problems)
    assert document is not None
    name = document.name or re.sub(r"[^A-Za-z0-9_.-]", "_", stem)[:64]
    precision: dict[str, Precision] = {pattern: WORDS[word] for pattern, word in document.precision.items()}
    return Spec(
        name,
        task,
        model.sizes,
        model.inputs,
        model.results,
        document.train,
        document.decode,
        initial,
        precision,
        model,
        tree,
        sizes_of_initial,
    )
