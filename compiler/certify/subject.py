"""The subject of a certificate: the training form in PyTorch, and the ONNX models of the same graph."""

import tempfile
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from xformc.compiler.backends.onnx.initializers import Initializers, save_model, save_models
from xformc.compiler.backends.onnx.models import SPLIT, emit_engine, extended_model, forward_model, stepwise_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.reference_coverage import coverage_of
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.ops.native import quantized_attentions
from xformc.compiler.pipeline import SEARCH, covered_attention, run_passes
from xformc.compiler.program import Program
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import LinearMap
from xformc.compiler.quantize.rounded_rows import rounded_rows
from xformc.compiler.spec.alignment import SOURCE
from xformc.errors import UserError
from xformc.format.manifest import SearchOptions
from xformc.format.names import MODEL
from xformc.format.precision import Precision
from xformc.format.targets import Target
from xformc.format.tokens import SpecialTokens
from xformc.runtime.constraints.automaton import Matching
from xformc.runtime.devices.fixed_shapes import fixed_shapes
from xformc.runtime.rows import Row, stack
from xformc.runtime.searching.search import SearchResult, search
from xformc.runtime.searching.translate import search_rows
from xformc.runtime.session import Session, open_model
from xformc.runtime.sessions import open_session
from xformc.runtime.whole import WholeSearch

Ids = NDArray[np.int64]
Feeds = Mapping[str, NDArray[Any]]
"""The inputs of a graph by name: batch first, padded."""


MOST_KNOWN = 2**24
"""Logits that a subject keeps, about 64 MiB, before it forgets them."""


@dataclass(frozen=True)
class Subject:
    """The parts that must agree. `engine` is the folder with the model under test, compiled from the program.

    `module` has the weights as the engine stores them. `input_scales` are its calibrated input scales, by weight.
    `emulated`: the models emulate 16-bit products, so that ONNX Runtime can run them on a CPU (see `OnnxEmitter`).
    """

    program: Program
    module: TorchModule
    engine: Path
    input_scales: Mapping[str, float] = field(default_factory=dict[str, float])
    emulated: bool = False
    _known: dict[tuple[tuple[bytes, ...], bytes], NDArray[np.float32]] = field(
        default_factory=dict[tuple[tuple[bytes, ...], bytes], NDArray[np.float32]],
        init=False,
        repr=False,
        compare=False,
    )

    @property
    def target(self) -> Target:
        """The target of the engine."""
        assert self.program.target is not None
        return self.program.target

    @property
    def special(self) -> SpecialTokens:
        """The special tokens of the written text."""
        return self.program.inputs[str(self.program.written)].special

    @property
    def precision(self) -> Mapping[str, Precision]:
        """The number format of each weight."""
        return self.program.precision

    @property
    def approximate(self) -> dict[str, Precision]:
        """The weights whose matrix products also quantize their inputs."""
        return {
            name: precision
            for name, precision in self.precision.items()
            if FORMATS[precision].rounds(self.program.traits) or name in self.input_scales
        }

    @cached_property
    def memories(self) -> frozenset[str]:
        """The attentions over keys and values in int8, by their results."""
        if self.program.caches != "int8" or self.program.steps is None:
            return frozenset()
        return quantized_attentions(run_passes(self.program).decoder.step.nodes)

    @property
    def quantized(self) -> bool:
        """Whether the engine stores weights or caches in fewer bits than float32."""
        return bool(self.program.rounded) or self.program.caches != "auto"

    def rounding_map(self, weight: str) -> LinearMap:
        """The linear map of one of these weights, as defined by its number format."""
        number_format = FORMATS[self.approximate[weight]]
        return number_format.linear_map(torch, self.input_scales.get(weight), self.program.traits)

    @cached_property
    def rounding(self) -> "Subject":
        """The subject with a training form that quantizes inputs, and keys and values, as the number formats define."""
        maps = {weight: self.rounding_map(weight) for weight in self.approximate}
        return replace(self, module=self.module.with_maps(maps, dict.fromkeys(self.memories, rounded_rows)))

    @contextmanager
    def exact(self) -> Generator["Subject"]:
        """The subject with a temporary engine that has the same weights, and caches, in float32."""
        with self.rewritten(program=replace(self.program, precision={}, caches="auto")) as exact:
            yield exact

    @contextmanager
    def runnable(self) -> Generator["Subject"]:
        """The subject with a temporary engine that emulates 16-bit matrix products.

        On CPUs, ONNX Runtime has no bfloat16 products, and it accumulates float16 products in float16.
        """
        emulated = any(FORMATS[precision].emulated for precision in self.approximate.values())
        if not self.program.traits.fixed or not emulated:
            yield self
            return
        with self.rewritten(emulated=True) as subject:
            yield subject

    @contextmanager
    def rewritten(self, **changes: Any) -> Generator["Subject"]:
        """The subject with these changes, if any, and a temporary engine of its program and weights."""
        with tempfile.TemporaryDirectory(prefix="xformc-certify-") as name:
            changed = replace(self, engine=Path(name), **changes)
            initializers = changed.initializers()
            save_models(emit_engine(changed.program, initializers), initializers, changed.engine)
            yield changed

    @cached_property
    def session(self) -> Session:
        """The session of the engine, as the runtime opens it."""
        program = self.program
        return open_session(
            self.engine,
            program.inputs,
            program.results,
            target=self.target,
            decoding=program.decoding,
            device="cpu",
            files=[path.name for path in self.engine.iterdir()],
        )

    @cached_property
    def whole(self) -> Session | None:
        """The engine's search as one model, if the session drives it step by step."""
        if self.program.steps is None or not self.program.traits.fixed:
            return None
        program = self.program
        shapes = fixed_shapes(
            program.decoding, program.longest, program.given, program.results, program.decoder.vocabularies
        )
        return Session(
            lambda _: WholeSearch(self.engine, shapes),
            shapes.results,
            str(self.engine / MODEL),
            vocabularies=program.decoder.vocabularies,
        )

    def search(
        self, given: Feeds, options: SearchOptions, end: Sequence[int] = (), constraint: Matching | None = None
    ) -> SearchResult:
        """The texts of these inputs, padded; `end` are the end tokens, if not the engine's."""
        return search(self.session, given, options, end)

    def search_rows(
        self,
        sources: Sequence[Row],
        options: SearchOptions,
        end: Sequence[int] = (),
        constraint: Matching | None = None,
    ) -> SearchResult:
        """The texts of these sources, with the other results of the engine."""
        return search_rows(self.session, sources, self.program, options, end, constraint)

    def outputs(self, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """What the engine's model returns in one forward pass, by output."""
        names = [name for result in self.program.results.values() for name in result.outputs]
        return dict(zip(names, self.session.run(feeds), strict=True))

    def results(self, feeds: Feeds) -> tuple[NDArray[np.float32], ...]:
        """The results of the training form for the graph's inputs by name."""
        with torch.inference_mode():
            found: Any = self.module(*self._tensors(feeds))
        tensors = cast(tuple[torch.Tensor, ...], found if isinstance(found, tuple) else (found,))
        return tuple(tensor.numpy() for tensor in tensors)

    def logits(self, feeds: Feeds) -> NDArray[np.float32]:
        """The first result of the training form: of a model that writes text, the logits of the next token."""
        return self.results(feeds)[0]

    def scorer(self, source: Row) -> Callable[[Ids], NDArray[np.float32]]:
        """A function from texts [batch, positions] to the logits of the training form, for this one source."""
        return lambda written: self.scored([source] * len(written), written)

    def scored(self, sources: Sequence[Row], written: Ids) -> NDArray[np.float32]:
        """The logits of the training form for texts [batch, positions], each of its source.

        Searches with other options ask for many of the same texts, so the last logits are kept.
        """
        inputs, name = self.program.given, str(self.program.written)
        given = [tuple(np.asarray(source[key]).tobytes() for key in inputs) for source in sources]
        keys = [(source, text.tobytes()) for source, text in zip(given, written, strict=True)]
        if all(key in self._known for key in keys):
            return np.stack([self._known[key] for key in keys])
        found = self.logits({**stack(inputs, sources), name: written})
        if len(self._known) * found[0].size > MOST_KNOWN:
            self._known.clear()
        self._known.update(zip(keys, found, strict=True))
        return found

    def coverage(self, source: Row) -> Callable[[tuple[int, ...]], float] | None:
        """A function from a text to its coverage of this source, by the training form; None without coverage."""
        if self.program.covering is None:
            return None
        given, name = stack(self.program.given, [source]), str(self.program.written)
        real = given[SOURCE][0] != self.program.inputs[SOURCE].special.absent

        def covered(text: tuple[int, ...]) -> float:
            feeds = {**given, name: np.array([text], np.int64)}
            with torch.inference_mode():
                weights = self._attention(*(torch.tensor(feeds[value.name]) for value in self._attention.graph.inputs))
            return coverage_of(weights[0].numpy(), real)

        return covered

    @cached_property
    def _attention(self) -> TorchModule:
        """The training form of the attention whose coverage counts, in which nothing is fused."""
        module = TorchModule(covered_attention(self.program)).eval()
        module.load_arrays(self.module.arrays())
        return module

    def training_values(self, feeds: Feeds) -> dict[str, Any]:
        """Every value of the training form by name, as numpy arrays."""
        with torch.inference_mode():
            values = self.module.all_values(*self._tensors(feeds))
        return {name: value.detach().numpy() for name, value in values.items()}

    def forward(self, feeds: Feeds, show: Sequence[Value] = ()) -> list[Any]:
        """Run the training graph in ONNX Runtime: its result, then the values of `show`."""
        return self.run(self.program.graph, feeds, show)

    def run(self, graph: Graph, feeds: Feeds, show: Sequence[Value] = ()) -> list[Any]:
        """Run a graph with these parameters in ONNX Runtime: its results, then the values of `show`."""
        initializers = self.initializers()
        compiled = graph if show else run_passes(self.program.alone(graph)).graph
        model = forward_model(compiled, initializers, target=self.target, show=show)
        return self.run_model(model, initializers, feeds)

    def stepwise(self, feeds: Feeds, show: Sequence[Value] = ()) -> list[Any]:
        """Run the derived step in ONNX Runtime, token by token; values have a first axis of steps."""
        initializers, program = self.initializers(), self.program
        program = program if show else run_passes(program, without=SEARCH)
        return self.run_model(stepwise_model(program, initializers, show=show), initializers, feeds)

    def extended(self, feeds: Feeds, splits: Collection[int]) -> list[NDArray[np.float32]]:
        """The logits of the derived step of several tokens, for each of the `splits`: it is fed with so many tokens,
        and then with the others."""
        initializers, program = self.initializers(), run_passes(self.program, without=SEARCH)
        model = extended_model(program, initializers)
        every = [{**feeds, SPLIT: np.array(split)} for split in splits]
        return [logits for (logits,) in self._run_each(model, initializers, every)]

    def run_model(self, model: onnx.ModelProto, initializers: Initializers, feeds: Feeds) -> list[Any]:
        """Run a model as the engine's are run; return its outputs."""
        (results,) = self._run_each(model, initializers, [feeds])
        return results

    def initializers(self) -> Initializers:
        """The module's parameters as initializers of a new model."""
        arrays = self.module.arrays()
        return Initializers(arrays, self.precision, input_scales=self.input_scales, emulated=self.emulated)

    def _tensors(self, feeds: Feeds) -> list[torch.Tensor]:
        return [torch.tensor(feeds[value.name]) for value in self.module.graph.inputs]

    def _run_each(self, model: onnx.ModelProto, initializers: Initializers, every: Sequence[Feeds]) -> list[list[Any]]:
        with tempfile.TemporaryDirectory(prefix="xformc-certify-") as name:
            folder = Path(name)
            save_model(model, initializers, folder, self.engine)
            try:
                opened = open_model(folder / MODEL, target=self.target)
                return [opened.run(None, dict(feeds)) for feeds in every]
            except UserError:
                raise
            except Exception as error:
                reason = str(error).splitlines()[0][:300]
                raise UserError(f"ONNX Runtime cannot run the {model.graph.name} model: {reason}") from error
