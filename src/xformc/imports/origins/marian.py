"""Reads the Transformers of Marian: npz archives, or Bergamot's binary files with weights in int8."""

import logging
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from typing import cast

import numpy as np

from xformc.compiler.shortlist import Shortlist
from xformc.compiler.spec.tree import Scalar
from xformc.errors import UserError
from xformc.imports.checkpoint import Array, Stored
from xformc.imports.family import FAMILIES, load_family
from xformc.imports.origin import Origin, Reader
from xformc.imports.origins.marian_files import CONFIG, read_binary, read_npz, read_yaml
from xformc.imports.origins.marian_shortlist import read_marian_shortlist
from xformc.imports.origins.marian_vocabularies import marian_tokenizer

logger = logging.getLogger(__name__)

TABLE = FAMILIES.parent / "origins" / "marian_nmt.yaml"
LAYER = re.compile(r"(encoder|decoder)_l([0-9]+)_")
EMBEDDING, BIAS = "Wemb", "decoder_ff_logit_out_b"
NEVER = -1e4
"""The logit of padding, whose probability is then 0 in float32."""

OF_MODEL = (
    "type",
    "transformer_",
    "tied_",
    "dim_emb",
    "enc_depth",
    "dec_depth",
    "dec_cell",
    "input_types",
    "lemma_dim_emb",
    "right_left",
    "ulr",
)
OF_TRAINING = (
    "transformer_dropout",
    "transformer_guided_alignment",
    "transformer_aan",
    "transformer_dim_aan",
    "dec_cell_",
    "ulr_",
)
"""How the options begin that may change what a model computes, and those among them that do not."""

OF_SEARCH = ("beam_size", "normalize", "word_penalty", "max_length_factor", "allow_unk")


def _read(path: Path, table: Path | None) -> Origin:
    model = _model(path) if path.is_dir() else path
    assert model is not None
    place = str(model)
    stored = read_npz(model) if model.suffix == ".npz" else read_binary(model)
    said = read_yaml(bytes(stored.pop(CONFIG).read().astype(np.uint8)), place) if CONFIG in stored else None
    if said is None:
        raise UserError(f"not a model of Marian: it has no {CONFIG}", place=place)
    decoder = _decoder(model)
    tokenizer = marian_tokenizer(decoder.get("vocabs"), model.parent, place)
    values: dict[str, Scalar] = {key: one for key, one in _flat(said) if _matters(key)}
    values |= {f"decoder.{key}": one for key, one in _flat(decoder) if key in OF_SEARCH}
    tensors = _with_padding({_renamed(name): one for name, one in stored.items()}, place)
    values["vocab_size"] = tensors[EMBEDDING].shape[0]
    shortlist = _shortlist(decoder.get("shortlist"), model.parent, int(values["vocab_size"]))
    family, models = load_family(table or TABLE), decoder.get("models")
    unread = ("other models",) if isinstance(models, list) and len(cast(list[object], models)) > 1 else ()
    return Origin(place, values, family, lambda _: tensors, tokenizer, shortlist=shortlist, unread=unread)


def _shortlist(said: object, folder: Path, vocabulary: int) -> Shortlist | None:
    """The lists in the binary file that the options name, if it is in the model's folder."""
    first = next(iter(cast(list[object], said)), None) if isinstance(said, list) else said
    if not isinstance(first, str) or not first:
        return None
    path = folder / PurePath(first).name
    if path.suffix == ".bin" and path.is_file():
        return read_marian_shortlist(path, vocabulary)
    reason = "there is no such file beside the model" if path.suffix == ".bin" else "only binary ones (.bin) are read"
    logger.warning("%s: the shortlist that the model names is left out: %s", path, reason)
    return None


def _reads(path: Path) -> bool:
    return path.suffix in (".npz", ".bin") if path.is_file() else _model(path) is not None


def _model(folder: Path) -> Path | None:
    """The only model of a folder: an archive, or else a binary file that is no shortlist."""
    for pattern in ("*.npz", "model*.bin"):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
    return None


def _decoder(model: Path) -> dict[str, object]:
    """The options of the search beside a model: `model.npz.decoder.yml`, `decoder.yml`, or the only `config*.yml`."""
    near = [model.parent / name for name in (f"{model.name}.decoder.yml", "decoder.yml")]
    files = [file for file in near if file.is_file()][:1] or sorted(model.parent.glob("config*.yml"))
    return read_yaml(files[0].read_bytes()[: 1 << 20], str(files[0])) if len(files) == 1 else {}


def _flat(said: Mapping[str, object]) -> list[tuple[str, Scalar]]:
    """The options in the spelling that tables can name; those that are lists with spaces between their items."""
    plain = {
        key: " ".join(map(str, cast(list[object], one))) if isinstance(one, list) else one for key, one in said.items()
    }
    return [(key.replace("-", "_"), one) for key, one in plain.items() if isinstance(one, str | bool | int | float)]


def _matters(key: str) -> bool:
    return key.startswith(OF_MODEL) and not key.startswith(OF_TRAINING)


def _renamed(name: str) -> str:
    """The name with its layer counted from 0, as in `encoder.0.self_Wq`."""
    return LAYER.sub(lambda match: f"{match[1]}.{int(match[2]) - 1}.", name)


def _with_padding(stored: Mapping[str, Stored], place: str) -> dict[str, Stored]:
    """The tensors with one more token, the padding. A decoder begins with the vector 0, which is its embedding."""
    found = dict(stored)
    if EMBEDDING not in found or len(found[EMBEDDING].shape) != 2:
        raise UserError(f"has no matrix {EMBEDDING} that both sides share; others are not imported", place=place)
    count, width = found[EMBEDDING].shape
    found[EMBEDDING] = _longer(found[EMBEDDING], (count + 1, width), 0.0)
    if BIAS in found and found[BIAS].shape == (1, count):
        found[BIAS] = _longer(found[BIAS], (1, count + 1), NEVER)
    return found


def _longer(one: Stored, shape: tuple[int, int], value: float) -> Stored:
    return Stored(one.name, shape, one.kind, partial(_extended, one, shape, value))


def _extended(one: Stored, shape: tuple[int, int], value: float) -> Array:
    array = np.full(shape, value, np.float32)
    array[: one.shape[0], : one.shape[1]] = one.read()
    return array


READER = Reader(_reads, _read)
