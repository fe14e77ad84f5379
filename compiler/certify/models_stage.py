"""The stage that only `xformc verify` has: whether an engine's models are those that the compiler writes."""

import filecmp
from collections.abc import Collection, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message

from xformc.compiler.backends.onnx.graphs import all_graphs
from xformc.compiler.certify.subject import Subject
from xformc.format.certificate import Stage
from xformc.format.names import DATA


def models_stage(subject: Subject, files: Collection[str]) -> Stage:
    """Write the models of the program and its weights anew, and compare those among the engine's files with them, to
    the byte.

    So it also covers what the other stages check on models of their own: the search of quantized weights, the steps in
    16 bits that no CPU computes, and the second form of a weight that is stored in two. A model that the engine lacks
    is left out: the stages that need it are not repeated.
    """
    with subject.rewritten() as again:
        models = sorted(name for name in files if name.endswith(".onnx") or name == DATA)
        wrong = [name for name in models if not _same(subject.engine / name, again.engine / name)]
        where = _difference(subject.engine / wrong[0], again.engine / wrong[0]) if wrong else ""
    what = "models and weights that the compiler writes for this spec, to the byte"
    return Stage("models", what, len(wrong), 0, f"({wrong[0]}: {where})" if wrong else f"({len(models)} files)")


def _same(found: Path, wanted: Path) -> bool:
    return wanted.exists() and filecmp.cmp(found, wanted, shallow=False)


def _difference(found: Path, wanted: Path) -> str:
    """Where two files differ first, for people."""
    if not wanted.exists():
        return "the compiler writes no such file"
    if found.name == DATA:
        return "other weights than those that were read, which are stored twice"
    try:
        ours, theirs = (list(_parts(onnx.ModelProto.FromString(path.read_bytes()))) for path in (found, wanted))
    except DecodeError:
        return "no ONNX model"
    for (name, part), (_, other) in zip(ours, theirs, strict=False):
        if part != other:
            return name
    return f"{len(ours)} nodes and weights, where the compiler writes {len(theirs)}"


def _parts(model: onnx.ModelProto) -> Iterator[tuple[str, Message]]:
    """The parts of a model with their names, those of inner graphs first, where a difference is the smallest."""
    for _, graph in reversed(list(all_graphs(model.graph))):
        yield from ((f"the node of {', '.join(node.output)} ({node.op_type})", node) for node in graph.node)
        yield from ((f"the tensor {tensor.name}", tensor) for tensor in graph.initializer)
        for value in (*graph.input, *graph.output):
            yield f"the type of {value.name}", value
    yield "the rest of the model", model
