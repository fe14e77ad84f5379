"""Small models of xformc's own operators, run in ONNX Runtime with the library of runtime/kernels/.

The library is the one that native engines use; tests that need it are skipped if it is missing.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import DTypeLike, NDArray
from onnx import helper

from xformc.compiler.backends.onnx.emitter import VERSIONS
from xformc.errors import UserError
from xformc.format.operators import DOMAIN, OPERATORS
from xformc.runtime.library import VARIABLE, built_path, find_library

Array = NDArray[Any]
NO_KERNELS = "no kernels: "
"""The beginning of the reason for which tests of the kernels are skipped."""

_FATAL_ONLY = 4


def kernel_library() -> Path:
    """The compiled library. Skips the test if none was built; fails if there is one that cannot be used."""
    try:
        return find_library().path
    except UserError as error:
        if VARIABLE in os.environ or built_path().is_file():
            raise
        pytest.skip(f"{NO_KERNELS}{error.message}")


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    """A node of the domain `xformc`; the empty name stands for an optional input that is left out."""
    return helper.make_node(operator, list(inputs), list(outputs), domain=DOMAIN, **attributes)


def kernel_session(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, DTypeLike],
    outputs: Mapping[str, DTypeLike],
    constants: Mapping[str, Array] | None = None,
    threads: int = 1,
) -> onnxruntime.InferenceSession:
    """A session of a model of these nodes, with `constants` as initializers; inputs and outputs have any shape."""

    def values(types: Mapping[str, DTypeLike]) -> list[onnx.ValueInfoProto]:
        element = helper.np_dtype_to_tensor_dtype
        return [helper.make_tensor_value_info(name, element(np.dtype(kind)), None) for name, kind in types.items()]

    initializers = [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "kernels", values(inputs), values(outputs), initializers)
    opsets = [helper.make_opsetid("", VERSIONS[""]), helper.make_opsetid(DOMAIN, OPERATORS)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = cast(Any, onnxruntime).SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL_ONLY
    options.enable_cpu_mem_arena = False  # tensors in memory of their own, so that sanitizers know where each ends
    options.register_custom_ops_library(str(kernel_library()))
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def new_cache(*shape: int, dtype: DTypeLike = np.float32) -> Array:
    """A buffer of Cache, CacheNarrow or CacheInt8; all that is not its mark, which may be its last 8 bytes, is NaN."""
    operator = {"float32": "Cache", "float16": "CacheNarrow", "int8": "CacheInt8"}[np.dtype(dtype).name]
    [buffer] = run_node(operator, [np.array(shape)], [dtype], label="a")
    nothing = -1 if buffer.dtype == np.int8 else np.nan  # four bytes of -1 are a scale that is no number
    buffer.reshape(-1)[: -min(8 // buffer.itemsize, shape[-1])] = nothing
    return buffer


def run_node(
    operator: str, inputs: Sequence[Array | None], outputs: Sequence[DTypeLike], *, threads: int = 1, **attributes: Any
) -> list[Array]:
    """The outputs, of these dtypes, of one operator for these inputs, all of them fed; None is an input left out."""
    feeds = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    results = {f"y{i}": kind for i, kind in enumerate(outputs)}
    one = node(operator, names, list(results), **attributes)
    session = kernel_session([one], {name: value.dtype for name, value in feeds.items()}, results, threads=threads)
    return cast(Any, session).run(list(results), feeds)


def alone(kind: str, taken: Sequence[int], outputs: int) -> dict[str, Any]:
    """The attributes of a Sequence or a While of one node, which takes inputs with these numbers, -1 for none."""
    given = max(taken, default=-1) + 1
    return {
        "given": given,
        "kinds": kind,
        "operands": list(taken),
        "operand_counts": [len(taken)],
        "output_counts": [outputs],
        "results": [given + i for i in range(outputs)],
    }


def run_nodes(
    nodes: Sequence[onnx.NodeProto], feeds: Mapping[str, Array], results: Mapping[str, DTypeLike], threads: int = 1
) -> list[Array]:
    """The results, of these dtypes, of some nodes for these inputs."""
    session = kernel_session(nodes, {name: value.dtype for name, value in feeds.items()}, results, threads=threads)
    return cast(Any, session).run(list(results), dict(feeds))


def check_refused(
    operator: str,
    right: Mapping[str, Array | None],
    changed: Mapping[str, Array],
    message: str,
    outputs: Sequence[DTypeLike],
    **attributes: Any,
) -> None:
    """The operator takes these inputs, in their order, and with some of them changed it gives this message."""
    run_node(operator, list(right.values()), outputs, **attributes)
    with pytest.raises(Exception, match=message):
        run_node(operator, list({**right, **changed}.values()), outputs, **attributes)
