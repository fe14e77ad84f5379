"""The PyTorch backend: turns a graph into an `nn.Module` with the blocks of the spec as submodules."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xformc.compiler.backends.torch.block import Block
from xformc.compiler.backends.torch.node_steps import NO_MEMORIES, RowMap
from xformc.compiler.backends.torch.parameter_paths import attribute_of, parameters_by_path, path_of
from xformc.compiler.backends.torch.plan import BlockPlan, parents, plan_blocks
from xformc.compiler.graph.graph import Graph, Initial, Parameter
from xformc.compiler.quantize.number_format import LinearMap

_NOTHING: Mapping[str, LinearMap] = {}


class TorchModule(Block):
    """A graph as a module. `forward` takes the graph's inputs in order and returns its output (a tuple if several).

    The parameter `encoder/3/query/weight` is `model.encoder[3].query.weight`, and `encoder.3.query.weight` in
    `state_dict`, with the sizes of its axes. A tied parameter is registered once, under its path; other blocks that use
    it get it as one of their last inputs. Blocks can be wrapped, hooked and replaced like any modules. Blocks that only
    hold parameters, for a recurrence's cell or for the projection of a loss, are never called.
    """

    def __init__(
        self,
        graph: Graph,
        seed: int = 0,
        maps: Mapping[str, LinearMap] = _NOTHING,
        memories: Mapping[str, RowMap] = NO_MEMORIES,
    ) -> None:
        """Initialize the parameters; the same graph and seed give the same numbers on every machine.

        `maps` replaces the linear maps of some weights, by name; `memories` maps the keys and values of some
        attentions, by the names of their results.
        """
        plan = plan_blocks(graph)
        super().__init__(plan, dict(maps), dict(memories))
        self.graph = graph
        self._add_blocks(plan)
        generator = torch.Generator().manual_seed(seed)
        for parameter in graph.parameters:
            path, _, part = parameter.name.rpartition("/")
            drawn = nn.Parameter(_draw(parameter, generator), parameter.trained)
            self._block(path).add_parameter(part, drawn, parameter)

    def forward(self, *inputs: Tensor) -> Any:
        """Compute the outputs. Raises: TypeError unless there is a tensor for each input."""
        if len(inputs) != len(self.graph.inputs):
            wanted = ", ".join(f"{value.name}: {value.type}" for value in self.graph.inputs)
            raise TypeError(f"takes {wanted}; found {len(inputs)} of these {len(self.graph.inputs)}")
        return super().forward(*inputs)

    def all_values(self, *inputs: Tensor) -> dict[str, Tensor]:
        """All values of the graph by name, including parameters."""
        values: dict[str, Any] = dict(parameters_by_path(self))
        values.update(zip((value.name for value in self.graph.inputs), inputs, strict=True))
        self.enter_values(values)
        return values

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The parameters by path; on a CPU the arrays share their memory."""
        return {path: parameter.detach().cpu().numpy() for path, parameter in parameters_by_path(self).items()}

    def with_maps(self, maps: Mapping[str, LinearMap], memories: Mapping[str, RowMap] = NO_MEMORIES) -> "TorchModule":
        """The module in evaluation mode, with the same parameters and these linear maps, keys and values replaced."""
        module = TorchModule(self.graph, maps=maps, memories=memories).eval()
        module.load_state_dict(self.state_dict())
        return module

    def load_arrays(self, arrays: Mapping[str, Any]) -> None:
        """Load parameters from arrays by path. Raises: KeyError or RuntimeError if one is missing or does not fit."""
        with torch.no_grad():
            for path, parameter in parameters_by_path(self).items():
                parameter.copy_(torch.tensor(np.asarray(arrays[path], np.float32)))

    def _add_blocks(self, plan: BlockPlan) -> None:
        plans = {inner.path: inner for inner in plan.all_blocks}
        for path in _in_order(plans, self.graph):
            around, _, part = path.rpartition("/")
            self._block(around).add_block(part, Block(plans.get(path, BlockPlan(path)), self._maps, self._memories))

    def _block(self, path: str) -> Block:
        module = self.get_submodule(".".join(map(attribute_of, path.split("/")))) if path else self
        assert isinstance(module, Block)
        return module


def layers_of(model: TorchModule) -> dict[str, Block]:
    """The numbered blocks that compute something and are in no other such block, by path."""
    found = dict[str, Block]()
    for name, block in cast(Any, model).named_modules():
        numbered = name.rpartition(".")[2].isdigit() and isinstance(block, Block) and block.is_called
        if numbered and not any(name.startswith(f"{around}.") for around in found):
            found[name] = block
    return {path_of(name): block for name, block in found.items()}


def _in_order(running: Iterable[str], graph: Graph) -> Iterable[str]:
    """All blocks in the order in which they run; blocks with parameters declared earlier come first."""
    names = (parameter.name for parameter in graph.parameters)
    declared = list(dict.fromkeys(path for name in names for path in parents(name)))
    ordered, start = list[str](), 0
    for path in running:
        end = declared.index(path) + 1 if path in declared else start
        ordered += [*declared[start:end], path]
        start = max(start, end)
    return dict.fromkeys((*ordered, *declared[start:]))


def _draw(parameter: Parameter, generator: torch.Generator) -> Tensor:
    sizes, initial = parameter.type.sizes(), parameter.initial
    if initial.kind == "constant":
        return torch.full(sizes, initial.value)
    if initial.kind == "identity":
        return (initial.value * torch.eye(initial.rows)).reshape(sizes)
    if initial.kind == "orthogonal":
        return _orthogonal(initial, sizes, generator)
    if initial.kind == "normal":
        return torch.empty(sizes).normal_(0.0, initial.value, generator=generator)
    return torch.empty(sizes).uniform_(-initial.value, initial.value, generator=generator)


def _orthogonal(initial: Initial, sizes: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A matrix with orthonormal rows or columns, whichever are fewer (Saxe et al. 2014, section 4)."""
    drawn = torch.empty(sizes).normal_(generator=generator).reshape(initial.rows, -1)
    wide = drawn.shape[0] < drawn.shape[1]
    factors: tuple[Tensor, Tensor] = cast(Any, torch.linalg).qr(drawn.T if wide else drawn)
    unique = factors[0] * factors[1].diagonal().sign()
    return (initial.value * (unique.T if wide else unique)).reshape(sizes).contiguous()
