"""What a prepared corpus holds: the columns of its task, and the files of the validation data."""

from collections.abc import Mapping
from pathlib import Path

from xformc.errors import UserError
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.shards.manifest import Stored
from xformc.trainer.data.text_examples import affixes
from xformc.trainer.data.vocabulary import Tokenizer, hash_vocabulary

PLAIN = "plain text"
"""What the manifest calls the texts of which an objective makes examples."""

VALID = {"translation": ("valid.source", "valid.target"), "language_model": ("valid.txt",), PLAIN: ("valid.txt",)}
"""The files of the validation data, for each kind of data that is prepared."""


def kind_of(schema: DataSchema, folder: Path | None = None) -> str:
    """What the manifest calls the schema's data, in `folder`. Raises: UserError if such data is not prepared."""
    kind = PLAIN if schema.objective is not None else schema.task
    if kind not in VALID:
        raise UserError(
            f"data is prepared for translation, language models and objectives; this task is {schema.task}",
            place=None if folder is None else str(folder),
            hint="give xformc train the folder of the texts or arrays, which it reads into memory",
        )
    return kind


def vocabulary_names(schema: DataSchema) -> Mapping[str, str]:
    """The input whose vocabulary each column has; that of an objective's text is the first one's."""
    if schema.objective is not None:
        return dict.fromkeys(schema.columns, schema.texts[0])
    return {name: name for name in schema.columns}


def stored_columns(schema: DataSchema, tokenizer: Tokenizer) -> dict[str, Stored]:
    """The columns as they are stored. The texts of an objective have no tokens around them."""
    alone, found = schema.task == "language_model", dict[str, Stored]()
    for column, name in vocabulary_names(schema).items():
        known, ends = tokenizer.vocabularies[name], schema.special[name].ends
        before, after = affixes(known, ends=ends, written=name == "target", alone=alone)
        if schema.objective is not None:
            before = after = ()
        found[column] = Stored(list(before), list(after), schema.vocabularies[name], hash_vocabulary(known))
    return found
