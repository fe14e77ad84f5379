"""Opens a run: its options are checked, its folder is made or found, and its data becomes examples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from xformc.compiler.spec import Spec
from xformc.errors import UserError, refuse_together
from xformc.trainer.data.added_symbols import with_symbols
from xformc.trainer.data.data_schema import DataSchema, data_schema
from xformc.trainer.data.dataset import (
    Corpus,
    EncodedCorpus,
    encode_corpus,
    find_corpus,
    make_tokenizer,
    read_corpus,
    reads_text,
)
from xformc.trainer.data.own_vocabulary import file_hash, own_tokenizer
from xformc.trainer.data.redrawn_texts import redraw_of
from xformc.trainer.data.result_examples import piece_labels
from xformc.trainer.data.shards.reader import Prepared
from xformc.trainer.data.text_examples import load_for
from xformc.trainer.hardware import choose_precision
from xformc.trainer.processes import ALONE, Processes
from xformc.trainer.run import Identity, create_run, hash_text, is_run, recorded_precision, reopen_run
from xformc.trainer.start import tokenizer_of, weights_hash


@dataclass(frozen=True)
class Options:
    """Options of a training run beside its spec.

    languages: source and target in the names of the files, such as `en-de`.
    resume: continue the run to the bit, or start it if there is none yet.
    compile: run the model's layers through torch.compile (see `compile_layers`).
    minutes, seed: replace the spec's.
    start: a run, or a file of its weights, whose weights and tokenizers the run begins with (see `start_from`).
    shard: with several processes, each holds a part of every parameter.
    log: where the metrics go beside metrics.jsonl, by name (see `trainer.sinks`); not a part of the run's identity.
    tokenizer: a file with the vocabulary of all texts, which is not trained then.
    """

    languages: str | None = None
    resume: bool = False
    compile: bool = False
    minutes: float | None = None
    seed: int | None = None
    start: Path | None = None
    shard: bool = False
    log: Sequence[str] = ()
    tokenizer: Path | None = None


def check_options(spec: Spec, options: Options) -> None:
    """Raises: UserError for settings that exclude each other."""
    check_sharded(spec, shard=options.shard)


def check_sharded(spec: Spec, *, shard: bool) -> None:
    """Raises: UserError for parts of a recipe that exclude each other, or shards."""
    low_rank = {"train.low_rank": spec.train.low_rank}
    refuse_together({"train.optimizer: muon": spec.train.optimizer.muon, **low_rank}, hint="choose adamw")
    refuse_together({"--shard": shard, **low_rank})


def check_special(spec: Spec, schema: DataSchema, corpus: Corpus, options: Options) -> None:
    """Raises: UserError for special tokens, or a tokenizer, that the data does not have."""
    prepared = isinstance(corpus.train, Prepared)
    fixed = schema.objective is not None or not reads_text(corpus.valid, schema)
    given = {"--tokenizer": options.tokenizer, "--start": options.start}
    refuse_together(given, hint="--start brings the tokenizers of its run")
    if options.tokenizer is not None and (fixed or prepared):
        message = "--tokenizer: examples of an objective, prepared data and arrays have vocabularies of their own"
        raise UserError(message, hint="give the data as text, without an objective")
    if schema.objective is not None and not all(item.special.ends for item in spec.inputs.values()):
        raise UserError("ends: false: the texts of an objective have an end", hint="remove it from the inputs")
    if all(item.special.usual for item in spec.inputs.values()):
        return
    if fixed:
        message = "special_tokens: examples of an objective and arrays have xformc's own"
        raise UserError(message, hint="give the data as text, without an objective")
    if options.start is None and options.tokenizer is None and not prepared:
        hint = "give a tokenizer that has them by --tokenizer, or that of an import by --start, or remove the section"
        raise UserError("special_tokens: xformc trains vocabularies with its own special tokens", hint=hint)


def identify(
    spec: Spec, corpus: Corpus, out: Path, options: Options, device: torch.device, processes: Processes = ALONE
) -> Identity:
    """Return the identity of a run. A run that continues keeps its precision."""
    recorded = recorded_precision(out) if options.resume or not processes.first else None
    return Identity(
        spec_sha256=hash_text(spec.resolved_yaml()),
        train_sha256=corpus.train.sha256,
        valid_sha256=corpus.valid.sha256,
        seed=spec.train.seed if options.seed is None else options.seed,
        precision=recorded or choose_precision(spec.train.precision, device),
        compile=options.compile,
        start_sha256=None if options.start is None else weights_hash(options.start),
        tokenizer_sha256=None if options.tokenizer is None else file_hash(options.tokenizer),
    )


def hash_data(spec: Spec, data: Path, languages: str | None) -> str:
    """Return a hash of the training and validation data of a run. Raises: UserError as `read_corpus`."""
    schema = data_schema(spec)
    corpus = read_corpus(find_corpus(data, schema, languages), schema)
    return hash_text(f"{corpus.train.sha256} {corpus.valid.sha256}")


def open_run(
    spec: Spec,
    corpus: Corpus,
    schema: DataSchema,
    out: Path,
    identity: Identity,
    options: Options = Options(),
    *,
    processes: Processes = ALONE,
) -> EncodedCorpus:
    """Make the run's folder, or check that it belongs to this run, and return the data as examples.

    A new run has the tokenizers of the run that it starts from, or the one that it is given.

    Raises: UserError; then no folder was made.
    """
    known, texts = is_run(out), corpus.valid
    if known:
        reopen_run(out, spec.resolved_yaml(), identity, first=processes.first)
    tokenizer = None
    if reads_text(texts, schema):
        wanted = spec.train.tokenizer
        if known:
            tokenizer = load_for(schema, wanted, out) if options.tokenizer is None else tokenizer_of(out, schema)
        elif options.tokenizer is not None:
            tokenizer = with_symbols(own_tokenizer(options.tokenizer, schema), wanted.symbols, schema.vocabularies)
        elif options.start is not None:
            tokenizer = with_symbols(tokenizer_of(options.start, schema), wanted.symbols, schema.vocabularies)
        else:
            tokenizer = make_tokenizer(corpus.train, schema, wanted)
    if schema.objective is not None and schema.objective.masked is not None and tokenizer is not None:
        corpus = replace(corpus, labels=piece_labels(schema, tokenizer))
    encoded = encode_corpus(corpus, schema, tokenizer, redraw_of(spec, schema), spec.train.stages, identity.seed)
    if not known:
        create_run(out, spec.resolved_yaml(), identity, tokenizer, corpus.labels)
    return encoded
