"""A block of a spec as a module, which runs its own nodes and calls the blocks inside it."""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from itertools import groupby
from textwrap import indent
from typing import Any

import torch
from torch import Tensor, nn

from xformc.compiler.backends.torch.node_steps import (
    NO_MEMORIES,
    LinearMap,
    Operators,
    RowMap,
    Step,
    in_float32,
    run_steps,
)
from xformc.compiler.backends.torch.parameter_paths import attribute_of
from xformc.compiler.backends.torch.plan import BlockPlan
from xformc.compiler.graph.graph import Node, Parameter


class Block(nn.Module):
    """Runs a plan. `block[i]` is layer `i` of a repeat; assign to it to replace the layer.

    A block whose plan has no steps only holds parameters, for example those of a recurrence's cell.
    """

    def __init__(
        self, plan: BlockPlan, maps: Mapping[str, LinearMap], memories: Mapping[str, RowMap] = NO_MEMORIES
    ) -> None:
        """Make a block without parameters and inner blocks; `TorchModule` adds them."""
        super().__init__()
        self._plan, self._maps, self._memories = plan, maps, memories
        self._axes: dict[str, str] = {}
        self._compile()

    def forward(self, *inputs: Tensor) -> Any:
        """Compute the plan's outputs from its inputs, in order; a tuple unless there is only one."""
        values: dict[str, Any] = dict(zip(self._inputs, inputs, strict=True))
        self._read(values)
        run_steps(self._steps, values)
        outputs = self._plan.outputs
        return values[outputs[0]] if len(outputs) == 1 else tuple(values[name] for name in outputs)

    @property
    def is_called(self) -> bool:
        """Whether the block computes something, and does not only hold parameters."""
        return bool(self._steps)

    @property
    def plan(self) -> BlockPlan:
        """What it computes."""
        return self._plan

    def all_steps(self) -> list[Step]:
        """Its steps and those of all blocks inside it, in order."""
        found = list[Step]()
        for step, block in self._called():
            found += [step] if block is None else block.all_steps()
        return found

    def parameter_values(self) -> dict[str, Tensor]:
        """The parameters that it and all blocks inside it read, by name."""
        values: dict[str, Any] = {}
        self._read(values)
        for _, block in self._called():
            values |= {} if block is None else block.parameter_values()
        return values

    def add_block(self, part: str, block: "Block") -> None:
        """Register an inner block by the last part of its path."""
        self.add_module(attribute_of(part), block)

    def add_parameter(self, part: str, parameter: nn.Parameter, declared: Parameter) -> None:
        """Register a parameter by the last part of its path."""
        self.register_parameter(attribute_of(part), parameter)
        self._axes[attribute_of(part)] = ", ".join(map(str, declared.type.axes))

    def enter_values(self, values: dict[str, Any]) -> None:
        """Add all values of this block and of inner blocks to `values`, by name; it has the plan's inputs."""
        self._read(values)
        for step, block in self._called():
            if block is not None:
                block.enter_values(values)
            else:
                run_steps((step,), values)

    def __getitem__(self, index: int) -> nn.Module:
        """Layer `index` of a repeat; negative indices count from the end. Raises: IndexError."""
        return getattr(self, self._layers()[index])

    def __setitem__(self, index: int, module: nn.Module) -> None:
        """Replace a layer with another module. Raises: IndexError."""
        setattr(self, self._layers()[index], module)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the compiled steps, which refer to this module."""
        return {name: value for name, value in self.__dict__.items() if name != "_steps"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a copied or unpickled module and compile the steps for it."""
        parent: Any = super()
        parent.__setstate__(state)
        self._compile()

    def __repr__(self) -> str:
        """Inner blocks by name, and parameters with their axes; identical layers share a line."""
        name, extra = self._get_name(), self.extra_repr()
        if not self._modules:
            return f"{name}({extra})"
        lines = [extra] * bool(extra) + [f"({part}): {text}" for part, text in self._described()]
        return f"{name}(\n" + "".join(f"  {line}\n" for line in lines) + ")"

    def extra_repr(self) -> str:
        """The block's own parameters, and tied parameters that it uses."""
        parts = [f"{name}[{self._axes.get(name, '')}]" for name in self._parameters]
        used = {value.name for node in self._plan.nodes for value in node.inputs}
        parts += [f"tied {name}" for name in self._plan.tied if name in used]
        ops = [node.op.kind for node in self._plan.nodes]
        return ", ".join(parts if parts or self._modules else ops)

    def _get_name(self) -> str:
        name, steps = super()._get_name(), self._plan.steps
        given = self._parameters or self._plan.tied
        alone = steps[0] if len(steps) == 1 and given and name == "Block" else None
        return alone.op.kind if isinstance(alone, Node) else name

    def _described(self) -> Iterator[tuple[str, str]]:
        children = [(name, indent(repr(child), "  ").lstrip()) for name, child in self._modules.items()]
        for (text, layers), alike in groupby(children, lambda item: (item[1], item[0].isdigit())):
            names = [name for name, _ in alike]
            if layers and len(names) > 1:
                yield f"{names[0]}-{names[-1]}", f"{len(names)} x {text}"
            else:
                yield from ((name, text) for name in names)

    def _called(self) -> Iterator[tuple[Step, "Block | None"]]:
        """Its steps, each with the block that it calls, unless that was replaced by another module."""
        for step, planned in zip(self._steps, self._plan.steps, strict=True):
            block = None if isinstance(planned, Node) else getattr(self, _attribute(planned))
            yield step, block if isinstance(block, Block) else None

    def _layers(self) -> list[str]:
        return [name for name in self._modules if name.isdigit()]

    def _read(self, values: dict[str, Any]) -> None:
        held = self._parameters
        for name, attribute in self._own:
            values[name] = held[attribute] if attribute in held else getattr(self, attribute)
        for name, attributes in self._inner:
            values[name] = reduce(getattr, attributes, self)

    def _compile(self) -> None:
        start = len(self._plan.path) + 1 if self._plan.path else 0
        read = [(name, [attribute_of(part) for part in name[start:].split("/")]) for name in self._plan.parameters]
        self._own = [(name, attributes[0]) for name, attributes in read if len(attributes) == 1]
        self._inner = [(name, attributes) for name, attributes in read if len(attributes) > 1]
        self._inputs, operators = self._plan.inputs, Operators(self, self._maps, self._memories)
        self._steps: list[Step] = [
            self._running(operators.step(step), step.outputs[0].name)
            if isinstance(step, Node)
            else (self._calling(step), step.inputs, step.outputs)
            for step in self._plan.steps
        ]

    def _running(self, step: Step, name: str) -> Step:
        return in_float32(step) if name in self._plan.exact else step

    def _calling(self, plan: BlockPlan) -> Callable[..., Any]:
        modules, attribute, first = self._modules, _attribute(plan), len(plan.values)

        def call(*inputs: Tensor) -> Any:
            module = modules[attribute]
            assert module is not None
            if plan.tied and not torch.is_grad_enabled():
                # PyTorch's own hooks expect inputs that require gradients to have a graph, and here there is none.
                inputs = (*inputs[:first], *(parameter.detach() for parameter in inputs[first:]))
            return module(*inputs)

        return call


def _attribute(plan: BlockPlan) -> str:
    return attribute_of(plan.path.rpartition("/")[2])
