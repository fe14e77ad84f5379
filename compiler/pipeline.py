"""The passes in their order, from a spec to what a build writes and a certificate compares with."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import onnx

from xformc.compiler import compile_spec
from xformc.compiler.backends.onnx.initializers import Initializers
from xformc.compiler.backends.onnx.models import engine_model, fixed_models, label_model, sampling_model
from xformc.compiler.graph import text
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.positions import Positions
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.lower import lower_decoder
from xformc.compiler.passes.step import Decoder, derive_step, with_beam
from xformc.compiler.search.fixed_beam import fixed_beam_search
from xformc.compiler.search.fixed_sample import fixed_sampling
from xformc.compiler.search.fixed_search import FixedSearch
from xformc.compiler.spec import Spec
from xformc.compiler.spec.tasks import TASKS
from xformc.errors import UserError
from xformc.format.manifest import Input, SampleOptions, SearchOptions
from xformc.format.names import MODEL
from xformc.format.targets import TRAITS, Target


@dataclass(frozen=True)
class Compiled:
    """What the passes make of a spec: the graph without dropout, and the decoder of a task that decodes.

    `inputs` are the spec's, as an engine records them.
    """

    spec: Spec
    graph: Graph
    inputs: Mapping[str, Input]
    steps: Decoder | None

    @property
    def task(self) -> str:
        """What the model is for."""
        return self.spec.task

    @property
    def decoder(self) -> Decoder:
        """The graph, derived to decode token by token."""
        assert self.steps is not None, f"{self.task} gives labels"
        return self.steps

    @property
    def labels(self) -> int | None:
        """How many labels there are, or None for a task that decodes."""
        return None if self.steps is not None else self.graph.outputs[0].type.axes[-1].size

    @property
    def positions(self) -> str | None:
        """The input whose positions have a label each, or None."""
        return self.graph.outputs[0].type.names[1] if self.labels and TASKS[self.task].positions else None

    @property
    def places(self) -> dict[str, str | None]:
        """Where in the spec each value of the engine's models comes from, by its name."""
        graphs = (self.graph,) if self.steps is None else (self.graph, *_graphs(self.steps))
        return {value.name: node.place for graph in graphs for node in graph.nodes for value in node.outputs}

    @property
    def options(self) -> SearchOptions:
        """The defaults of the search, from the spec."""
        decode, longest = self.spec.decode, self.spec.decode.max_length
        return SearchOptions(decode.beam_width, decode.n_best, decode.length_penalty, longest.factor, longest.offset)

    @property
    def sampling(self) -> SampleOptions:
        """The defaults of sampling, from the spec."""
        sample = self.spec.decode.sample
        return SampleOptions(sample.temperature, sample.top_k, sample.top_p, sample.max_new_tokens)

    @property
    def defaults(self) -> dict[str, float] | None:
        """What an engine records of them: those of its task, or None for one that gives labels."""
        chosen = {"translation": self.options, "language_model": self.sampling}.get(self.task)
        return None if chosen is None else asdict(chosen)


def compile_engine(spec: Spec, target: Target = "portable") -> Compiled:
    """Run the passes for engines of this target. Raises: SpecError, or RuleError at what cannot be decoded stepwise."""
    graph, time = inference(compile_spec(spec, arranged=not TRAITS[target].kernels)), TASKS[spec.task].time
    inputs = {
        name: Input(
            item.kind,
            vocabulary=item.vocabulary if item.kind == "tokens" else None,
            axes={axis.name: axis.size or 0 for axis in item.axes if item.kind != "tokens"},
            of=item.of,
            longest=_limit(graph, name),
        )
        for name, item in spec.inputs.items()
    }
    decoder = None if time is None else derive_step(graph, time, fixed=TRAITS[target].fixed)
    return Compiled(spec, graph, inputs, decoder)


def emit_engine(compiled: Compiled, weights: Initializers, target: Target) -> dict[str, onnx.ModelProto]:
    """The models of an engine by the names of their files, without their weights."""
    if compiled.steps is not None and TRAITS[target].fixed:
        return fixed_models(_fixed_search(compiled), weights, target=target)
    return {MODEL: _MODELS[compiled.task](compiled, weights, target)}


def _fixed_search(compiled: Compiled) -> FixedSearch:
    if compiled.task == "translation":
        return fixed_beam_search(with_beam(compiled.decoder))
    return fixed_sampling(compiled.decoder)


def print_stage(spec: Spec, stage: str) -> str:
    """The text of the graph, or of the two graphs of the decoder, after this pass. Raises: UserError if unknown."""
    stages = _stages(spec.task)
    if stage not in stages:
        raise UserError(f"no pass is called '{stage}'", hint=f"the passes of {spec.task} are {', '.join(stages)}")
    graph = compile_spec(spec, arranged=stage != "kernels")
    return "\n".join(text.format(verify(result)) for result in stages[stage](graph))


def _stages(task: str) -> dict[str, Callable[[Graph], tuple[Graph, ...]]]:
    """What `xformc build --stop-after` can print, in the order of the build."""
    time = TASKS[task].time
    stages: dict[str, Callable[[Graph], tuple[Graph, ...]]] = {
        "elaborate": lambda graph: (graph,),
        "inference": lambda graph: (inference(graph),),
    }
    if time is not None:
        stages["step"] = lambda graph: _graphs(derive_step(inference(graph), time))
    if task == "translation":
        stages["beam"] = lambda graph: _graphs(with_beam(derive_step(inference(graph))))
        stages["kernels"] = lambda graph: _graphs(
            lower_decoder(with_beam(derive_step(inference(graph))), lambda _: "float32")
        )
    return stages


def _graphs(decoder: Decoder) -> tuple[Graph, Graph]:
    return decoder.prepare, decoder.step


def _limit(graph: Graph, axis: str) -> int | None:
    """The most positions that the graph has encodings for, or None where there is no bound."""
    limits = [
        node.op.limit
        for node in graph.nodes
        if isinstance(node.op, Positions) and node.op.axis == axis and node.op.limit is not None
    ]
    return min(limits, default=None)


def _search_model(compiled: Compiled, weights: Initializers, target: Target) -> onnx.ModelProto:
    decoder, longest = with_beam(compiled.decoder), compiled.inputs["target"].longest
    return engine_model(decoder, weights, compiled.options, longest, target=target)


def _sampling_model(compiled: Compiled, weights: Initializers, target: Target) -> onnx.ModelProto:
    return sampling_model(compiled.decoder, weights, compiled.sampling, compiled.inputs["text"].longest, target=target)


def _label_model(compiled: Compiled, weights: Initializers, target: Target) -> onnx.ModelProto:
    return label_model(compiled.graph, weights, target=target)


_MODELS: dict[str, Callable[[Compiled, Initializers, Target], onnx.ModelProto]] = {
    "translation": _search_model,
    "language_model": _sampling_model,
    "tagging": _label_model,
    "classification": _label_model,
}
"""The model of an engine of each task: of what was compiled, with these weights, for a target."""
