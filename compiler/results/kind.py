"""The interface of a kind of result, and the registry of kinds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xformc.compiler.graph.axes import Type
from xformc.compiler.graph.graph import Op, Value
from xformc.compiler.graph.rules import OnnxEmitter
from xformc.format.results import Setting
from xformc.format.tokens import PAD

Allowed = Mapping[str, Setting | tuple[str, ...]]
"""Settings by name: the default of each, or the words to choose from, of which the first is the default."""


Outputs = list[tuple[str, Type]]
"""Values in an ONNX model: the name and the type of each."""


EACH = ("word", "token")
"""The values of the setting `each`: whether a text has one result for each word, or for each token."""


@dataclass(frozen=True)
class Declared:
    """A result that a spec declares.

    stage: the stage of the model whose value it is; None: the last one. settings: those of its kind, complete.
    loss: the settings of its loss, complete; weight: the weight of its loss. ignore: for text, the label of positions
    without one. smoothing: label smoothing in place of the recipe's.
    """

    name: str
    kind: str
    stage: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    loss: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    weight: float = 1.0
    ignore: int = PAD
    smoothing: float | None = None


class Kind(ABC):
    """A kind of result. A new kind is a subclass that `register` adds to KINDS.

    name: its word in specs and in engine.json. settings, losses: the settings of results and of their losses.
    outputs: the endings of the names of its outputs of an engine's model. decoded: a search makes them from the
    value. raw: the ending of the name of that value itself, in models without a search. smoothed: its loss may have
    label smoothing. tokenized: the result has a tokenizer of its own, whose vocabulary is the value's last axis.
    """

    name: ClassVar[str]
    settings: ClassVar[Allowed] = {}
    losses: ClassVar[Allowed] = {}
    outputs: ClassVar[tuple[str, ...]] = ("",)
    decoded: ClassVar[bool] = False
    raw: ClassVar[str] = "_logits"
    smoothed: ClassVar[bool] = False
    tokenized: ClassVar[bool] = False

    def refused(self, name: str, inputs: Collection[str], settings: Mapping[str, Setting]) -> str | None:
        """Why a result cannot have this name beside these inputs, or these settings; None if it can."""
        return None

    @abstractmethod
    def wanted(self, sequences: Collection[str], settings: Mapping[str, Setting]) -> str:
        """The types that a result may have, in words; `sequences` are the axes of positions."""

    @abstractmethod
    def fits(self, type: Type, sequences: Collection[str], settings: Mapping[str, Setting]) -> bool:
        """Whether a stage of this type can be such a result."""

    def complete(
        self, value: Value, mask: Callable[[], Value | None], emit: Callable[[Op, tuple[Value, ...]], Value]
    ) -> Value:
        """The value that losses and engines take, from that of the stage; `mask` makes the mask of its second axis."""
        return value

    def positions(self, type: Type, sequences: Collection[str]) -> str | None:
        """The axis of positions that each have a result, if there is one."""
        return positions_of(type, sequences)

    @abstractmethod
    def target(self, type: Type, settings: Mapping[str, Setting]) -> Type:
        """The type of what the loss compares a value of this type with."""

    @abstractmethod
    def loss(self, result: Declared, smoothing: float) -> Op:
        """The loss: an op on the value and its target that returns the mean loss, the sum and the count.

        `smoothing` is the label smoothing of the recipe.
        """

    @abstractmethod
    def emit(self, onnx: OnnxEmitter, value: str, type: Type, settings: Mapping[str, Setting]) -> Outputs:
        """Write the outputs of the engine's model from the value of the graph."""

    @abstractmethod
    def expected(self, value: NDArray[Any], settings: Mapping[str, Setting]) -> tuple[NDArray[np.float32], ...]:
        """What the engine must return, for values of the training form."""


KINDS: dict[str, Kind] = {}
"""Every kind by its name; filled at import."""


def register(kind: Kind) -> None:
    """Add a kind."""
    assert kind.name not in KINDS, f"there is already a kind of result called {kind.name}"
    KINDS[kind.name] = kind


LABELS = "labels"
"""The input that a loss compares with, and the ending of its name in a model with several results."""


def target_of(result: Declared, results: Sequence[Declared]) -> str:
    """The name of the input that the loss of a result compares with."""
    return LABELS if len(results) == 1 else f"{result.name}_{LABELS}"


def output_names(result: Declared) -> tuple[str, ...]:
    """The names of the outputs of an engine's model that make a declared result."""
    return tuple("_".join(filter(None, (result.name, end))) for end in KINDS[result.kind].outputs)


def defaults(allowed: Allowed) -> dict[str, Setting]:
    """The default of each setting."""
    return {name: value[0] if isinstance(value, tuple) else value for name, value in allowed.items()}


def positions_of(type: Type, sequences: Collection[str]) -> str | None:
    """The axis of positions that follows the batch, if there is one."""
    return next((name for name in type.names[1:2] if name in sequences), None)


def is_result(type: Type, sequences: Collection[str], axes: range) -> bool:
    """Whether a type is float32 [batch], then positions or not, then as many sized axes as `axes` allows."""
    inner = type.axes[2:] if positions_of(type, sequences) else type.axes[1:]
    sized = all(axis.size is not None for axis in inner)
    return type.dtype == "float32" and type.names[:1] == ("batch",) and sized and len(inner) in axes


def any_positions(sequences: Collection[str]) -> str:
    """The axes of positions that a result may have, in words."""
    return " or ".join(sequences) or "POSITIONS"
