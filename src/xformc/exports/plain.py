"""Writes a model in two forms that need no library of ours: its weights as safetensors, its forward pass as ONNX."""

import shutil
from pathlib import Path

from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.onnx.models import forward_model
from xformc.compiler.pipeline import SEARCH, begin, run_passes
from xformc.compiler.results.kind import KINDS
from xformc.exports.source import Source, read_source
from xformc.exports.tensors import Format, rounded
from xformc.files import atomic_directory
from xformc.format.names import MODEL, SPEC
from xformc.trainer.data.label_names import save_labels
from xformc.trainer.run import check_free
from xformc.trainer.tensors import write_tensors

WEIGHTS = "model.safetensors"


def export_safetensors(path: Path, out: Path, precision: Format) -> int:
    """Write model.safetensors, whose names are the paths of the spec, with the spec and the tokenizers.

    Return the number of parameters. Raises: UserError if `path` is no run, checkpoint or engine, or if weights
    are too large for the precision.
    """
    check_free(out)
    source = read_source(path)
    stored = rounded(source.arrays, precision)
    with atomic_directory(out, replace=False) as part:
        write_tensors(part / WEIGHTS, stored, {"format": "pt"})
        _copy(source, part)
    return sum(array.size for array in source.arrays.values())


def export_onnx(path: Path, out: Path) -> tuple[list[str], list[str]]:
    """Write model.onnx, the forward pass in ONNX's own operators, with the spec and the tokenizers.

    Its inputs are those of the spec: a text that is written is an input, too, and gives the logits of the next token at
    each position. There is no search in it. Return the names of its inputs and outputs. Raises: as
    `export_safetensors`; RuleError for an op without a rule.
    """
    check_free(out)
    source = read_source(path)
    graph = run_passes(begin(source.spec, "portable"), without=("step", *SEARCH)).graph
    initializers = Initializers(source.arrays)
    names = [f"{result.name}{KINDS[result.kind].raw}" for result in source.spec.results]
    model = forward_model(graph, initializers, target="portable", names=names)
    with atomic_directory(out, replace=False) as part:
        save_models({MODEL: model}, initializers, part)
        _copy(source, part)
    return [value.name for value in model.graph.input], names


def _copy(source: Source, folder: Path) -> None:
    (folder / SPEC).write_text(source.spec.resolved_yaml(), encoding="utf-8")
    for file in source.tokenizers.values():
        shutil.copy(file, folder / file.name)
    save_labels(source.labels, folder)
