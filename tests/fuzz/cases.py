"""A case of the fuzzer: a model of one operator of xformc's, its inputs, and how it is run in ONNX Runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from xformc.format.operators import DOMAIN, OPERATORS
from xformc.runtime.library import find_library

Array = NDArray[Any]
_FATAL_ONLY = 4


@dataclass(frozen=True, eq=False)
class Tensor:
    """An array that is fed, or stored in the model. The same object at two inputs is one value with two readers."""

    values: Array
    stored: bool = False

    def __str__(self) -> str:
        array = self.values
        sample = "" if array.size > 8 else f" {array.tolist()}"
        return f"{'stored ' * self.stored}{array.dtype}{list(array.shape)}{sample}"


@dataclass(frozen=True, eq=False)
class Buffer:
    """A buffer that a node Cache or CacheNarrow makes."""

    shape: tuple[int, ...]
    narrow: bool

    def __str__(self) -> str:
        return f"{'CacheNarrow' if self.narrow else 'Cache'}{list(self.shape)}"


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
        session = _session([*nodes, one], feeds, dict(zip(results, self.outputs, strict=True)), stored, self.threads)
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
                kind = "CacheNarrow" if operand.narrow else "Cache"
                nodes.append(helper.make_node(kind, [f"{name}_shape"], [name], domain=DOMAIN, label=name))
        return ["" if operand is None else names[id(operand)] for operand in self.inputs], feeds, stored, nodes


def _session(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    results: Mapping[str, Any],
    stored: Mapping[str, Array],
    threads: int,
) -> Any:
    def value(name: str, kind: Any) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)

    graph = helper.make_graph(
        list(nodes),
        "case",
        [value(name, array.dtype) for name, array in feeds.items()],
        [value(name, kind) for name, kind in results.items() if name],
        [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, OPERATORS)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = cast(Any, onnxruntime).SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    options.enable_cpu_mem_arena = False  # tensors in memory of their own, so that sanitizers know where each ends
    options.register_custom_ops_library(str(find_library().path))
    return cast(Any, onnxruntime).InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
