"""A case of the fuzzer: a model of one operator of xformc's, its inputs, and how it is run in ONNX Runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from tests.runtime.kernel_session import kernel_session
from xformc.format.operators import DOMAIN

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Tensor:
    """An array that is fed, or stored in the model. The same object at two inputs is one value with two readers."""

    values: Array
    stored: bool = False

    def __str__(self) -> str:
        array = self.values
        sample = "" if array.size > 8 else f" {array.tolist()}"
        return f"{'stored ' * self.stored}{array.dtype}{list(array.shape)}{sample}"


Stored = Literal["float32", "float16", "int8"]
STORED: tuple[Stored, ...] = ("float32", "float16", "int8")
MAKERS: dict[Stored, str] = {"float32": "Cache", "float16": "CacheNarrow", "int8": "CacheInt8"}


@dataclass(frozen=True, eq=False)
class Buffer:
    """A buffer that a node Cache, CacheNarrow or CacheInt8 makes."""

    shape: tuple[int, ...]
    stored: Stored

    def __str__(self) -> str:
        return f"{MAKERS[self.stored]}{list(self.shape)}"


Operand = Tensor | Buffer | None


@dataclass(frozen=True)
class Case:
    """One call of an operator; None is an input, or an output, that is left out."""

    operator: str
    inputs: Sequence[Operand]
    outputs: Sequence[Any]
    attributes: Mapping[str, Any]
    threads: int = 1

    def __str__(self) -> str:
        inputs = [f"  input {i}: {operand}" for i, operand in enumerate(self.inputs)]
        outputs = ["left out" if kind is None else np.dtype(kind).name for kind in self.outputs]
        head = f"{self.operator}, threads {self.threads}, {dict(self.attributes)}"
        return "\n".join([head, *inputs, f"  outputs: {', '.join(outputs)}"])

    def run(self) -> None:
        """Run it. Raises: whatever ONNX Runtime or the library does."""
        names, feeds, stored, nodes = self._operands()
        results = ["" if kind is None else f"y{i}" for i, kind in enumerate(self.outputs)]
        one = helper.make_node(self.operator, names, results, domain=DOMAIN)
        for name, value in self.attributes.items():
            kind = onnx.AttributeProto.INTS if value == [] else None
            one.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        inputs = {name: array.dtype for name, array in feeds.items()}
        outputs = {name: kind for name, kind in zip(results, self.outputs, strict=True) if name}
        session = kernel_session([*nodes, one], inputs, outputs, stored, self.threads)
        session.run(None, feeds)

    def _operands(self) -> tuple[list[str], dict[str, Array], dict[str, Array], list[onnx.NodeProto]]:
        """Return each input's name, what is fed, what is stored, and the nodes that make buffers."""
        names: dict[int, str] = {}
        feeds: dict[str, Array] = {}
        stored: dict[str, Array] = {}
        nodes: list[onnx.NodeProto] = []
        for operand in self.inputs:
            if operand is None or id(operand) in names:
                continue
            names[id(operand)] = name = f"x{len(names)}"
            if isinstance(operand, Tensor):
                (stored if operand.stored else feeds)[name] = operand.values
            else:
                stored[f"{name}_shape"] = np.array(operand.shape, np.int64)
                nodes.append(
                    helper.make_node(MAKERS[operand.stored], [f"{name}_shape"], [name], domain=DOMAIN, label=name)
                )
        return ["" if operand is None else names[id(operand)] for operand in self.inputs], feeds, stored, nodes
