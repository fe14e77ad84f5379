"""A program: one spec on its way through the passes, with everything that a backend needs to know about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from xformc.compiler.graph.graph import Graph, Value, pruned
from xformc.compiler.graph.timed import outputs_of
from xformc.compiler.ops.positions import longest
from xformc.compiler.passes.step import Decoder
from xformc.compiler.results.kind import KINDS, Declared, output_names, positions_of
from xformc.compiler.shortlist import Shortlist
from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import sequences_of
from xformc.compiler.spec.sections import Decode, Sample
from xformc.format.inputs import Input
from xformc.format.interfaces import AUTOMATON, BY_TEXT, PHRASES, PREFIX, PROBABILITIES, RESULTS
from xformc.format.manifest import SampleOptions, SearchOptions, recorded
from xformc.format.precision import Caches, Precision
from xformc.format.results import Result
from xformc.format.search_options import EDITS, OPTIONS, SearchOption, Setting
from xformc.format.speech import Speech, Times, Timestamps
from xformc.format.targets import TRAITS, Target, Traits
from xformc.format.tasks import NAMED, TASKS, Decoding


@dataclass(frozen=True)
class Program:
    """A spec and the result of the passes so far.

    target: the engine's target, or None for training. precision: the number format of each weight, by name; float32 if
    missing. graph: from the model's inputs to its result or its loss. steps: for tasks that decode, the graphs that run
    once and per token. passed: the names of the passes that ran, in order. covering: the name of the attention weights
    whose coverage of the source the search weighs, if the spec asks for it. caches: how keys and values are stored.
    screened: the weights that the search of the engine screens, from the pass `lower` on. shortlist: the tokens among
    which the engine's search looks; None for all.
    """

    spec: Spec
    target: Target | None
    precision: Mapping[str, Precision]
    graph: Graph
    steps: Decoder | None = None
    passed: tuple[str, ...] = ()
    covering: str | None = None
    caches: Caches = "auto"
    screened: frozenset[str] = frozenset()
    shortlist: Shortlist | None = None

    @property
    def task(self) -> str:
        """The task of the model."""
        return self.spec.task

    @property
    def decoding(self) -> Decoding:
        """How the engine computes its results."""
        return TASKS[self.task].decoding

    @property
    def traits(self) -> Traits:
        """The features that models of the target may use; none for training."""
        return Traits() if self.target is None else TRAITS[self.target]

    @property
    def decoder(self) -> Decoder:
        """The decoder that the pass `step` derived from the graph."""
        assert self.steps is not None, f"a model of {self.task} is not decoded"
        return self.steps

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs to compute: those of the decoder, or the graph if there is none."""
        if self.steps is None:
            return (self.graph,)
        return (self.steps.prepare, self.steps.step, *([] if self.steps.extend is None else [self.steps.extend]))

    @cached_property
    def of_text(self) -> Graph | None:
        """The training form of the results that depend on the written text, or None without any."""
        outputs = outputs_of(self.graph, self.written) if self.written is not None else ()
        return pruned(replace(self.graph, outputs=outputs)) if outputs else None

    def alone(self, graph: Graph | None = None) -> "Program":
        """The program with this graph, or its own, and without a decoder."""
        return replace(self, graph=graph or self.graph, steps=None)

    def for_engine(self, target: Target, precision: Mapping[str, Precision] | None = None) -> "Program":
        """The program for another target, provided that no pass so far depends on the target."""
        assert self.steps is None, "the derived step depends on the target"
        assert TRAITS[target].kernels == self.traits.kernels, f"attention is fused differently for {target}"
        return replace(self, target=target, precision=self.precision if precision is None else precision)

    @property
    def rounded(self) -> dict[str, Precision]:
        """The number formats of the weights that are not in float32."""
        return {name: precision for name, precision in self.precision.items() if precision != "float32"}

    def precision_of(self, weight: str) -> Precision:
        """The number format of this weight."""
        return self.precision.get(weight, "float32")

    @property
    def inputs(self) -> dict[str, Input]:
        """The spec's inputs, as an engine records them."""
        return {name: replace(item.recorded, longest=self._longest[name]) for name, item in self.spec.inputs.items()}

    @cached_property
    def _longest(self) -> dict[str, int | None]:
        return {name: longest(self.graph, name) for name in self.spec.inputs}

    @property
    def written(self) -> str | None:
        """The input that is decoded token by token, or None."""
        return self.spec.written

    @property
    def given(self) -> dict[str, Input]:
        """The inputs that a call of the engine gives: all but the written text."""
        return {name: item for name, item in self.inputs.items() if name != self.written}

    @property
    def results(self) -> dict[str, Result]:
        """The results, as an engine records them, without the names of labels."""
        late = () if self.of_text is None else self.of_text.outputs
        return {
            declared.name: Result(
                declared.kind,
                {axis.name: axis.size for axis in value.type.axes[1:] if axis.size is not None},
                KINDS[declared.kind].positions(value.type, self.sequences),
                settings=declared.settings,
                outputs=self._outputs(declared),
                of=self.written if value in late else None,
            )
            for declared, value in zip(self.spec.results, self.graph.outputs, strict=True)
        }

    def _outputs(self, declared: Declared) -> tuple[str, ...]:
        if declared.kind == "text":
            return RESULTS
        if self.task in NAMED:
            return (PROBABILITIES,)
        return output_names(declared)

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of the written text, or None for no limit."""
        assert self.written is not None
        return self.inputs[self.written].longest

    def along(self, value: Value) -> str | None:
        """The input whose positions a value has, or None."""
        return positions_of(value.type, self.sequences)

    @property
    def sequences(self) -> list[str]:
        """The inputs with positions."""
        return sequences_of(self.spec.inputs)

    @property
    def places(self) -> dict[str, str | None]:
        """The place in the spec of each value of the engine's models, by name."""
        return {
            value.name: node.place
            for graph in (self.graph, *self.graphs)
            for node in graph.nodes
            for value in node.outputs
        }

    @property
    def search(self) -> SearchOptions:
        """The search defaults of the spec."""
        decode, longest = self.spec.decode, self.spec.decode.max_length
        found = SearchOptions(
            *(decode.beam_size, decode.n_best, decode.length_penalty, longest.factor, longest.offset),
            **({} if self.traits.fixed else added(decode, OPTIONS)),
        )
        found = replace(found, prefix_bias=None) if self.prefix or self.prompted else found  # these are always forced
        return found if self.covering is not None else replace(found, coverage_penalty=None)

    @property
    def controls(self) -> tuple[str, ...]:
        """What calls may give the engine beside one value for each option."""
        if self.decoding == "forward" or self.traits.fixed:
            return ()
        return (PREFIX, PHRASES, AUTOMATON, BY_TEXT) if self.decoding == "search" else (BY_TEXT,)

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens that texts begin with, unless a call gives others."""
        return tuple(self.spec.decode.prefix) if self.decoding == "search" else ()

    @property
    def suppress_first(self) -> tuple[int, ...]:
        """The tokens that are never the first one after the prefix of a text."""
        return tuple(self.spec.decode.suppress_first) if self.decoding == "search" else ()

    @property
    def speech(self) -> Speech | None:
        """How long a sound the model reads, and its languages and tasks, if the spec says so."""
        said = self.spec.decode.speech if self.decoding == "search" else None
        if said is None:
            return None
        times = said.timestamps
        timestamps = None if times is None else Timestamps(times.first, times.step, times.latest)
        return Speech(said.seconds, said.languages, said.tasks, said.no_timestamps, timestamps)

    @property
    def prompted(self) -> bool:
        """Whether prefixes are no part of the scores and lengths of texts, as those of a model of speech."""
        return self.speech is not None

    @property
    def times(self) -> Times | None:
        """What texts with timestamps follow, if the model knows times."""
        return None if self.speech is None else self.speech.times(self.inputs[str(self.written)].special.end)

    @property
    def scores_texts(self) -> bool:
        """Whether the engine gives the probabilities of the tokens of texts: its step is derived for several tokens."""
        return self.steps is not None and self.steps.extend is not None

    @property
    def samples_texts(self) -> bool:
        """Whether the engine, which searches, samples texts as well: one of translation whose shapes are not fixed."""
        return self.task == "translation" and self.scores_texts

    @property
    def searches_prompts(self) -> bool:
        """Whether the engine, which samples, searches for continuations as well: a language model whose shapes are not
        fixed."""
        return self.streams

    @property
    def streams(self) -> bool:
        """Whether the engine gives tokens as they are sampled: a language model whose shapes are not fixed."""
        return self.task == "language_model" and self.scores_texts

    @property
    def refills_searches(self) -> bool:
        """Whether texts may join and leave a batch of searches: translations with kernels, without other results
        and coverage."""
        return (
            self.decoding == "search"
            and self.task == "translation"
            and self.traits.kernels
            and len(self.results) == 1
            and self.covering is None
        )

    @property
    def sampling(self) -> SampleOptions:
        """The sampling defaults of the spec."""
        sample = self.spec.decode.sample
        return SampleOptions(
            *(sample.temperature, sample.top_k, sample.top_p, sample.max_new_tokens),
            **({} if self.traits.fixed else added(sample, EDITS)),
        )

    @property
    def beams(self) -> SearchOptions | None:
        """The defaults of the search for continuations; None for an engine without it."""
        if not self.searches_prompts:
            return None
        decode, written = self.spec.decode, self.inputs[str(self.written)]
        width = min(decode.beam_size, written.special.widest(written.pieces))
        best, limit = min(decode.n_best, width), decode.sample.max_new_tokens
        found = SearchOptions(width, best, decode.length_penalty, 0.0, limit, **added(decode, OPTIONS))
        groups = decode.beam_groups if width == decode.beam_size else 1
        return replace(found, prefix_bias=None, coverage_penalty=None, beam_groups=groups)

    @property
    def options(self) -> SearchOptions | SampleOptions | None:
        """The decoding defaults of the task, or None for a task that predicts labels."""
        return {"search": self.search, "sample": self.sampling}.get(self.decoding)

    @property
    def defaults(self) -> dict[str, Setting] | None:
        """The decoding defaults as an engine records them."""
        return None if self.options is None else recorded(self.options)


def added(section: Decode | Sample, options: Sequence[SearchOption]) -> dict[str, Any]:
    """What a section of the spec says of those options that engines of fixed shapes lack."""
    given = {item.name: getattr(section, item.name) for item in options if item.absent is not None}
    return {name: tuple(cast(list[int], one)) if isinstance(one, list) else one for name, one in given.items()}
