"""Reads both splits of a run's data, and makes examples of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xformc.compiler.spec.sections import Mixture
from xformc.compiler.spec.sections import Tokenizer as TokenizerSection
from xformc.errors import UserError
from xformc.trainer.data.array_examples import encode_arrays
from xformc.trainer.data.batches import Data, Examples
from xformc.trainer.data.curriculum import Curriculum, Part
from xformc.trainer.data.data_schema import DataSchema
from xformc.trainer.data.file_columns import as_arrays, read_files
from xformc.trainer.data.label_names import COLUMN, label_names, labels_of
from xformc.trainer.data.npz import Arrays, array_labels, read_arrays
from xformc.trainer.data.objectives import ONCE, Draws, copies_of, symbols
from xformc.trainer.data.redrawn_texts import KEPT, Redraw, RedrawnTexts
from xformc.trainer.data.result_examples import encode_results, has_texts, target_labels, text_columns
from xformc.trainer.data.shards.manifest import MANIFEST
from xformc.trainer.data.shards.reader import Prepared, is_prepared, prepared_files, read_prepared, shard_examples
from xformc.trainer.data.splits import CorpusFiles, Files, find_files, find_pairs, suffix_of
from xformc.trainer.data.subword_sampling import check_sampled
from xformc.trainer.data.text_examples import encode_texts, load_for, train_on
from xformc.trainer.data.text_files import Texts, read_texts
from xformc.trainer.data.vocabulary import Tokenizer, train_tokenizer

Split = Texts | Arrays


@dataclass(frozen=True)
class Corpus:
    """Both splits as they were read, and the names of the labels by id, for each result that has them."""

    train: Split | Prepared
    valid: Split
    labels: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class EncodedCorpus:
    """Both splits as examples; those of a prepared corpus stay in its files."""

    train: Data
    valid: Examples


def find_corpus(folder: Path, schema: DataSchema, languages: str | None = None) -> CorpusFiles:
    """Find the files of a folder with the data of the schema's task. Raises: UserError if they are missing."""
    if is_prepared(folder):
        return prepared_files(folder, schema, languages)
    if schema.task == "translation":
        return find_pairs(folder, languages)
    if languages is not None:
        raise UserError(f"--languages {languages} needs the task translation; this task is {schema.task}")
    return find_files(folder, schema.suffixes)


def read_corpus(files: CorpusFiles, schema: DataSchema) -> Corpus:
    """Read both splits. Raises: UserError as `read_texts` and `read_arrays`, or if the labels do not fit the spec."""
    if files.train[0].name == MANIFEST:
        return Corpus(read_prepared(files.train[0].parent, schema), read_split(files.valid, schema), {})
    train, valid = (read_split(split, schema) for split in (files.train, files.valid))
    return Corpus(train, valid, name_labels(train, schema))


def encode_corpus(
    corpus: Corpus,
    schema: DataSchema,
    tokenizer: Tokenizer | None,
    redraw: Redraw = KEPT,
    stages: Sequence[Mixture] = (),
    seed: int = 0,
) -> EncodedCorpus:
    """Make examples of both splits; the training texts have what `redraw` says anew in each epoch.

    `seed` is that of an objective's noise.
    `stages` weigh the corpora of prepared data by their names, one stage after another.

    Raises: UserError if the data does not fit the spec or is all too long.
    """
    if isinstance(corpus.train, Prepared):
        assert tokenizer is not None
        train = _prepared(corpus.train, schema, tokenizer, redraw, stages)
        return EncodedCorpus(train, encode_split(corpus.valid, schema, tokenizer, corpus.labels))
    if stages:
        hint = "prepare several corpora with xformc data, or remove train.stages from the spec"
        raise UserError("train.stages weigh the corpora of prepared data", place=str(corpus.train.path), hint=hint)
    draws = ONCE if schema.objective is None else Draws(copies_of(schema.objective), seed)
    train = encode_split(corpus.train, schema, tokenizer, corpus.labels, draws)
    if redraw != KEPT:
        train = _redrawn(corpus, schema, tokenizer, redraw, train)
    return EncodedCorpus(train, encode_split(corpus.valid, schema, tokenizer, corpus.labels))


def _prepared(
    corpus: Prepared, schema: DataSchema, tokenizer: Tokenizer, redraw: Redraw, stages: Sequence[Mixture]
) -> Data:
    if redraw.sampling is not None:
        check_sampled(tokenizer, str(corpus.path))
    train = shard_examples(corpus, schema, tokenizer, redraw)
    if not stages:
        return train
    return Curriculum([*(Part(train.weighted(one.weights), one.steps) for one in stages), Part(train, None)])


def _redrawn(
    corpus: Corpus, schema: DataSchema, tokenizer: Tokenizer | None, redraw: Redraw, usual: Examples
) -> RedrawnTexts:
    texts, setting = corpus.train, "train.noise" if redraw.sampling is None else "train.tokenizer.sampling"
    if not isinstance(texts, Texts) or tokenizer is None:
        hint = f"give the data as text, or remove {setting} from the spec"
        raise UserError(f"{setting}: the token ids of an array are fixed", place=str(corpus.train.path), hint=hint)
    if redraw.sampling is not None:
        check_sampled(tokenizer, str(texts.path))

    def encode(texts: Texts, tokenizer: Tokenizer) -> Examples:
        return encode_split(texts, schema, tokenizer, corpus.labels)

    return RedrawnTexts(texts, tokenizer, redraw, encode, usual)


def describe_corpus(corpus: Corpus, encoded: EncodedCorpus) -> Iterator[str]:
    """Yield a line for each split: the number of examples, and the numbers dropped with the reasons."""
    for name, split, examples in (
        ("training", corpus.train, encoded.train),
        ("validation", corpus.valid, encoded.valid),
    ):
        if not isinstance(examples, Examples):
            how = "prepared" + (f", in {len(examples.parts)} stages" if isinstance(examples, Curriculum) else "")
            how = "drawn anew in each epoch" if isinstance(examples, RedrawnTexts) else how
            yield f"{name}: {len(examples):,} examples, {how}"
            continue
        empty = split.empty if isinstance(split, Texts) else 0
        dropped = [
            f"{empty:,} with an empty column" if empty else "",
            f"{examples.empty:,} without tokens" if examples.empty else "",
            f"{examples.too_long:,} longer than {examples.longest} positions" if examples.too_long else "",
        ]
        reasons = " and ".join(reason for reason in dropped if reason)
        yield f"{name}: {len(examples):,} examples" + (f" (dropped: {reasons})" if reasons else "")


def read_split(files: Files, schema: DataSchema) -> Split:
    """Read one split. Raises: UserError as `read_texts`, `read_files` and `read_arrays`."""
    if suffix_of(files[0]) == "npz":
        return read_arrays(files[0])
    texts = read_texts(files, schema.columns, schema.complete)
    return read_files(texts, schema.file_columns) if schema.files else texts


def make_tokenizer(split: Split | Prepared, schema: DataSchema, wanted: TokenizerSection) -> Tokenizer | None:
    """Train the tokenizers of the inputs that the split has as text; None if there are none.

    A prepared corpus has its own.
    """
    if isinstance(split, Prepared):
        return load_for(schema, wanted, split.folder)
    if schema.declared:
        columns = text_columns(split, schema)
        own = [*wanted.symbols, *([] if schema.objective is None else symbols(schema.objective))]
        shared, sizes = wanted.shared or schema.objective is not None, schema.vocabularies
        return train_tokenizer(columns, sizes, kind=wanted.kind, shared=shared, symbols=own) if columns else None
    return train_on(split, schema, wanted) if isinstance(split, Texts) and not split.arrays else None


def reads_text(split: Split, schema: DataSchema) -> bool:
    """Whether the split has inputs as text, so that a run has tokenizers."""
    return has_texts(split, schema) if schema.declared else isinstance(split, Texts) and not split.arrays


def name_labels(split: Split, schema: DataSchema) -> Mapping[str, tuple[str, ...]]:
    """Return the label names of a split by id, for each result that has them.

    Raises: UserError for a wrong number of them.
    """
    if schema.declared:
        return target_labels(split, schema)
    if not schema.labelled:
        return {}
    if isinstance(split, Arrays):
        return {COLUMN: array_labels(split, schema.classes)}
    rows = labels_of(split, each=schema.positions is not None)
    return {COLUMN: label_names((label for row in rows for label in row), schema.classes, str(split.path))}


def encode_split(
    split: Split,
    schema: DataSchema,
    tokenizer: Tokenizer | None,
    labels: Mapping[str, tuple[str, ...]],
    draws: Draws = ONCE,
) -> Examples:
    """Make examples of a split; an objective has its noise by `draws`.

    Raises: UserError if it does not fit the spec or is all too long.
    """
    if schema.declared:
        examples = encode_results(split, schema, tokenizer, labels, draws)
    elif isinstance(split, Arrays):
        examples = encode_arrays(split, schema, labels.get(COLUMN, ()))
    elif split.arrays:
        examples = encode_arrays(as_arrays(split, schema.files), schema, labels.get(COLUMN, ()))
    else:
        assert tokenizer is not None
        examples = encode_texts(split, schema, tokenizer, labels.get(COLUMN, ()))
    if not len(examples):
        raise UserError(
            f"every example is longer than {schema.longest} positions",
            place=str(split.path),
            hint="raise train.max_length or train.batch_tokens, or split the data into shorter parts",
        )
    return examples
