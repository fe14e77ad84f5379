"""Reads the Transformers of fairseq: a checkpoint, its dictionaries, and the codes or the model that cuts its texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Stored
from xformc.imports.family import FAMILIES, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.origins.dictionaries import find_dictionaries
from xformc.imports.origins.pickled import is_scalar, options, read_pickle, stored_tensor
from xformc.imports.origins.subwords import fairseq_tokenizer

TABLE = FAMILIES.parent / "origins" / "fairseq.yaml"
CHECKPOINTS = ("checkpoint_best.pt", "model.pt", "checkpoint_last.pt")
"""The checkpoint that is taken of a folder, the best first."""

FOLDERS = (".", "checkpoints", "data", "data-bin")
"""Where the parts of a model are, seen from its folder."""

OF_MODEL = (
    "encoder_",
    "decoder_",
    "share_",
    "no_",
    "adaptive_",
    "tie_",
    "cross_",
    "layernorm_",
    "activation_fn",
    "quant_noise_",
)
"""How the options begin that may change what a model computes."""

OF_SEARCH = (
    "beam", "lenpen", "max_len_a", "max_len_b", "min_len", "unnormalized", "sampling", "match_source_len", "unkpen",
    "temperature", "diverse_beam_groups", "diversity_rate", "prefix_size", "retain_dropout", "lm_path",
)  # fmt: skip
"""Options of the search that change translations."""

OF_TRAINING = (
    "no_progress_bar", "no_seed_provided", "no_epoch_checkpoints", "no_last_checkpoints", "no_save",
    "no_save_optimizer_state", "no_reshard_after_forward",
)  # fmt: skip
"""Options of training that begin so, too."""


def _read(path: Path, table: Path | None) -> Origin:
    checkpoint, folders = _parts(path)
    content = read_pickle(checkpoint)
    place = str(checkpoint)
    tensors = _tensors(content.get("model"), place)
    given, search = _options(content)
    architecture = str(given.get("arch") or given.get("_name") or "")
    if not architecture.startswith("transformer") or "_lm" in architecture:
        found = f"is a {architecture[:60]}" if architecture else "names no architecture"
        raise UserError(f"{found}; imported are fairseq's Transformers for translation", place=place)
    dictionaries = find_dictionaries(folders, given, place)
    values: dict[str, Scalar] = {key: value for key, value in given.items() if _matters(key) and is_scalar(value)}
    values |= {f"generation.{key}": one for key, one in search.items() if key in OF_SEARCH and is_scalar(one)}
    values |= {key: one for key, one in search.items() if key == "no_repeat_ngram_size" and is_scalar(one)}
    values |= {f"{side}_vocabulary": max(ids.values()) + 1 for side, ids in dictionaries.items()}
    tokenizer = fairseq_tokenizer(folders, dictionaries, str(given.get("bpe") or ""), place)
    return Origin(place, values, load_family(table or TABLE), lambda prefix: _without(tensors, prefix), tokenizer)


def _reads(path: Path) -> bool:
    return path.suffix == ".pt" or _checkpoint(path) is not None


def _parts(path: Path) -> tuple[Path, list[Path]]:
    """The checkpoint, and the folders where its dictionaries may be."""
    if path.is_dir():
        found = _checkpoint(path)
        assert found is not None
        return found, [path / name for name in FOLDERS]
    around = [path.parent, path.parent.parent] if path.parent.name in FOLDERS else [path.parent]
    return path, [folder / name for folder in around for name in FOLDERS]


def _checkpoint(folder: Path) -> Path | None:
    """The best checkpoint of a folder, or the only one."""
    inside = [folder / name for name in FOLDERS[:2]]
    named = [one / name for one in inside for name in CHECKPOINTS if (one / name).is_file()]
    every = [file for one in inside for file in sorted(one.glob("*.pt"))]
    return named[0] if named else every[0] if len(every) == 1 else None


def _options(content: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """The options of the model with those of its task, and those of the search."""
    config = options(content.get("cfg"))
    if not config:
        old = options(content.get("args"))
        return old, old
    bpe = {"bpe": options(config.get("bpe")).get("_name")}
    return {**bpe, **options(config.get("task")), **options(config.get("model"))}, options(config.get("generation"))


def _matters(key: str) -> bool:
    return key.startswith((*OF_MODEL, "max_source_positions", "dropout")) and key not in OF_TRAINING


def _tensors(model: object, place: str) -> dict[str, Stored]:
    """The tensors of a model by name. Raises: UserError if there are none."""
    named: Mapping[str, object] = cast(Mapping[str, object], model) if isinstance(model, dict) else {}
    found = {str(name): tensor for name, tensor in named.items() if isinstance(tensor, torch.Tensor)}
    if not found:
        raise UserError("not a checkpoint of fairseq: it has no weights under `model`", place=place)
    return {name: stored_tensor(name, tensor) for name, tensor in found.items()}


def _without(tensors: Mapping[str, Stored], prefix: str) -> dict[str, Stored]:
    return {name.removeprefix(prefix): stored for name, stored in tensors.items()}


READER = Reader(_reads, _read)
