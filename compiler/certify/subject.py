"""What a certificate is about: the training form in PyTorch, and the ONNX models made from the same graph."""

import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from xformc.compiler.backends.onnx.initializers import Initializers, save_model, save_models
from xformc.compiler.backends.onnx.models import emit_engine, forward_model, stepwise_model
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.graph import Graph, Value
from xformc.compiler.pipeline import run_passes
from xformc.compiler.program import Program
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import LinearMap
from xformc.errors import UserError
from xformc.format.manifest import SearchOptions
from xformc.format.names import MODEL
from xformc.format.precision import Precision
from xformc.format.targets import Target
from xformc.format.tokens import END
from xformc.runtime.devices.fixed_shapes import fixed_shapes
from xformc.runtime.search import SearchResult, search
from xformc.runtime.session import Session, open_model
from xformc.runtime.sessions import open_session
from xformc.runtime.whole import WholeSearch

Ids = NDArray[np.int64]
Feeds = Mapping[str, NDArray[Any]]
"""The inputs of a graph by name: batch first, padded."""


@dataclass(frozen=True)
class Subject:
    """The parts that must agree. `engine` is the folder with the model under test, made of the program.

    `module` has the weights as the engine stores them. `input_scales` are the scales of its calibration, by weight.
    `emulated`: the models are those that ONNX Runtime can run on a processor, see `OnnxEmitter`.
    """

    program: Program
    module: TorchModule
    engine: Path
    input_scales: Mapping[str, float] = field(default_factory=dict[str, float])
    emulated: bool = False

    @property
    def target(self) -> Target:
        """The target of the engine."""
        assert self.program.target is not None
        return self.program.target

    @property
    def precision(self) -> Mapping[str, Precision]:
        """In which numbers the engine stores its weights."""
        return self.program.precision

    @property
    def approximate(self) -> dict[str, Precision]:
        """The weights whose products round what they are given, too."""
        return {
            name: precision
            for name, precision in self.precision.items()
            if FORMATS[precision].rounds(self.program.traits) or name in self.input_scales
        }

    def rounding_map(self, weight: str) -> LinearMap:
        """The linear map of one of these weights, by its definition."""
        return FORMATS[self.approximate[weight]].linear_map(torch, self.input_scales.get(weight))

    @cached_property
    def rounding(self) -> "Subject":
        """The same, with a training form whose products round what they are given, by their definitions."""
        maps = {weight: self.rounding_map(weight) for weight in self.approximate}
        return replace(self, module=self.module.with_maps(maps))

    @contextmanager
    def exact(self) -> Generator["Subject"]:
        """The same with an engine of its own, until the end, that has the same weights in float32."""
        with self._written(program=replace(self.program, precision={})) as exact:
            yield exact

    @contextmanager
    def runnable(self) -> Generator["Subject"]:
        """The same, with products in 16 bits emulated, until the end.

        On a processor ONNX Runtime has no such products in bfloat16, and in float16 it adds up in float16, too.
        """
        emulated = any(FORMATS[precision].emulated for precision in self.approximate.values())
        if not self.program.traits.fixed or not emulated:
            yield self
            return
        with self._written(emulated=True) as subject:
            yield subject

    @contextmanager
    def _written(self, **changes: Any) -> Generator["Subject"]:
        """The same but for these changes, with an engine of its own."""
        with tempfile.TemporaryDirectory(prefix="xformc-certify-") as name:
            changed = replace(self, engine=Path(name), **changes)
            initializers = changed.initializers()
            save_models(emit_engine(changed.program, initializers), initializers, changed.engine)
            yield changed

    @cached_property
    def session(self) -> Session:
        """The engine, as the runtime runs it."""
        return open_session(self.engine, self.program.task, self.program.inputs, target=self.target, device="cpu")

    @cached_property
    def whole(self) -> Session | None:
        """The engine's search as one model, if the session drives it in parts."""
        if self.program.steps is None or not self.program.traits.fixed:
            return None
        shapes = fixed_shapes(self.program.task, self.program.inputs)
        return Session(lambda _: WholeSearch(self.engine, shapes), shapes.results, str(self.engine / MODEL))

    def search(self, source: Ids, options: SearchOptions, end: int = END) -> SearchResult:
        """What a translation engine finds for padded sources [batch, source], when `end` ends a hypothesis."""
        return search(self.session, source, options, end)

    def logits(self, feeds: Feeds) -> NDArray[np.float32]:
        """What the training form gives for the graph's inputs by name."""
        with torch.inference_mode():
            return self.module(*self._tensors(feeds)).numpy()

    def translation_logits(self, source: Ids, target: Ids) -> NDArray[np.float32]:
        """What the training form of a translation gives: [batch, target, vocabulary]."""
        return self.logits({"source": source, "target": target})

    def text_logits(self, text: Ids) -> NDArray[np.float32]:
        """What the training form of a language model gives: [batch, text, vocabulary]."""
        return self.logits({"text": text})

    def training_values(self, feeds: Feeds) -> dict[str, Any]:
        """Every value of the training form by name, as numpy arrays."""
        with torch.inference_mode():
            values = self.module.all_values(*self._tensors(feeds))
        return {name: value.detach().numpy() for name, value in values.items()}

    def forward(self, feeds: Feeds, show: Sequence[Value] = ()) -> list[Any]:
        """What ONNX Runtime says of the training graph: its result, then the values of `show`."""
        return self.run(self.program.graph, feeds, show)

    def run(self, graph: Graph, feeds: Feeds, show: Sequence[Value] = ()) -> list[Any]:
        """What ONNX Runtime says of a graph of these parameters: its results, then the values of `show`."""
        initializers = self.initializers()
        compiled = graph if show else run_passes(self.program.alone(graph)).graph
        model = forward_model(compiled, initializers, target=self.target, show=show)
        return self._run(model, initializers, feeds)

    def stepwise(self, feeds: Feeds, show: Sequence[Value] = ()) -> list[Any]:
        """What ONNX Runtime says of the derived step, token by token; values have a first axis for the steps."""
        initializers, program = self.initializers(), self.program
        program = program if show else run_passes(program, without=("beam", "candidates"))
        return self._run(stepwise_model(program, initializers, show=show), initializers, feeds)

    def initializers(self) -> Initializers:
        """The module's parameters, for another model."""
        arrays = self.module.arrays()
        return Initializers(arrays, self.precision, input_scales=self.input_scales, emulated=self.emulated)

    def _tensors(self, feeds: Feeds) -> list[torch.Tensor]:
        return [torch.tensor(feeds[value.name]) for value in self.module.graph.inputs]

    def _run(self, model: onnx.ModelProto, initializers: Initializers, feeds: Feeds) -> list[Any]:
        with tempfile.TemporaryDirectory(prefix="xformc-certify-") as name:
            folder = Path(name)
            save_model(model, initializers, folder, self.engine)
            try:
                return open_model(folder / MODEL, target=self.target).run(None, dict(feeds))
            except UserError:
                raise
            except Exception as error:
                reason = str(error).splitlines()[0][:300]
                raise UserError(f"ONNX Runtime refuses the {model.graph.name} model: {reason}") from error
