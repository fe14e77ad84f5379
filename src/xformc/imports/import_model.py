"""Imports a folder of Hugging Face as a run: a short spec, and its weights."""

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from xformc import __version__
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.compiler.spec.tree import write_yaml
from xformc.compiler.weight_files import graph_shapes
from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.format.names import IMPORTED, SPEC, WEIGHTS
from xformc.imports.checkpoint import stored_tensors
from xformc.imports.config import CONFIG, read_config, resolve
from xformc.imports.family import find_family, load_family
from xformc.imports.replay import Replay, replay
from xformc.imports.tokenizers import ForeignTokenizer, check_tokenizers, find_tokenizer
from xformc.imports.weights import map_weights
from xformc.trainer.checkpoint import writing
from xformc.trainer.run import check_free
from xformc.trainer.tensors import write_tensors

TASKS = ("language_model", "translation")
"""The tasks of the specs that tables may make."""


@dataclass(frozen=True)
class Import:
    """What was imported: the family, the number of parameters, the tokenizer, and the comparison with the origin."""

    family: str
    parameters: int
    tokenizer: ForeignTokenizer | None
    replay: Replay | None


def import_model(folder: Path, out: Path, table: Path | None = None, *, compare: bool = False) -> Import:
    """Write the run `out` from a folder with config.json and safetensors, by the family's table or that in `table`.

    With `compare`, transformers runs the origin beside the spec. Raises: UserError for whatever does not fit, or if the
    logits differ by more than the bound; then nothing is written.
    """
    check_free(out)
    values = read_config(folder)
    family = find_family(str(values["model_type"])) if table is None else load_family(table)
    place = str(folder / CONFIG)
    family, config = resolve(family, values, place)
    filled, tokenizer = config.filled(family.spec), find_tokenizer(folder)
    assert isinstance(filled, dict)
    special = filled.get("special_tokens")
    if tokenizer is not None and tokenizer.unknown is not None and isinstance(special, dict):
        special["unknown"] = tokenizer.unknown
    text = write_yaml({"name": _name(folder), **filled})
    spec = _checked(text, place)
    shapes = graph_shapes(spec.graph())
    arrays = map_weights(family, config, shapes, stored_tensors(folder, family.prefix), str(folder))
    compared = replay(folder, spec, arrays) if compare else None
    if compared is not None and not compared.passed:
        raise UserError(f"the import does not compute the origin's logits: {compared.line()}", place=str(folder))
    record = {"xformc": __version__, "family": family.name, "replay": None if compared is None else {**vars(compared)}}
    with writing(out), atomic_directory(out, replace=False) as part:
        (part / SPEC).write_text(text, encoding="utf-8")
        if tokenizer is not None:
            tokenizer.write(part)
        write_tensors(part / WEIGHTS, {path: torch.as_tensor(array) for path, array in arrays.items()}, {})
        (part / IMPORTED).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        check_tokenizers(part, spec)
    return Import(family.name, sum(array.size for array in arrays.values()), tokenizer, compared)


def _name(folder: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", folder.resolve().name)[:64] or "imported"


def _checked(text: str, place: str) -> Spec:
    """The spec of the text. Raises: UserError that shows what is wrong with the config that led to it."""
    with tempfile.TemporaryDirectory(prefix="xformc-import-") as name:
        path = Path(name) / SPEC
        path.write_text(text, encoding="utf-8")
        try:
            spec = load_spec(path)
            if spec.task not in TASKS:
                wanted = " and ".join(TASKS)
                raise UserError(f"the table's spec is of the task {spec.task}; imported are {wanted}", place=place)
            spec.graph()
        except SpecError as error:
            lines = "".join(f"\n  {problem.message}" for problem in error.problems[:8])
            raise UserError(f"asks for a model that cannot be:{lines}", place=place) from None
    return spec
