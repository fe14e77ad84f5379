"""A corpus made ready for a spec: read, turned into token ids, and what was left out of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.trainer.batches import Examples, make_examples
from xformc.trainer.corpus import CorpusFiles, Pairs, read_pairs
from xformc.trainer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Corpus:
    """Both splits as sentences."""

    train: Pairs
    valid: Pairs


@dataclass(frozen=True)
class EncodedCorpus:
    """Both splits as token ids; pairs longer than `longest` tokens are not in them."""

    train: Examples
    valid: Examples
    longest: int


def read_corpus(files: CorpusFiles) -> Corpus:
    """Read both splits. Raises: UserError as `read_pairs`."""
    return Corpus(read_pairs(files.train), read_pairs(files.valid))


def encode_corpus(corpus: Corpus, tokenizer: Tokenizer, spec: Spec) -> EncodedCorpus:
    """Encode both splits. Raises: UserError if no pair of one is short enough for the spec."""
    longest = min(spec.train.max_length, spec.train.batch_tokens)
    return EncodedCorpus(
        _encode(corpus.train, tokenizer, longest, "training"),
        _encode(corpus.valid, tokenizer, longest, "validation"),
        longest,
    )


def describe_corpus(corpus: Corpus, encoded: EncodedCorpus) -> Iterator[str]:
    """A line for each split: how many pairs there are, and how many were dropped for what."""
    for name, pairs, examples in (
        ("training", corpus.train, encoded.train),
        ("validation", corpus.valid, encoded.valid),
    ):
        dropped = [
            f"{pairs.empty:,} with an empty side" if pairs.empty else "",
            f"{examples.too_long:,} longer than {encoded.longest} tokens" if examples.too_long else "",
        ]
        reasons = " and ".join(reason for reason in dropped if reason)
        yield f"{name}: {len(examples):,} pairs" + (f" (dropped: {reasons})" if reasons else "")


def _encode(pairs: Pairs, tokenizer: Tokenizer, longest: int, name: str) -> Examples:
    examples = make_examples(tokenizer.source.encode(pairs.sources), tokenizer.target.encode(pairs.targets), longest)
    if not len(examples):
        raise UserError(
            f"every {name} pair is longer than {longest} tokens",
            hint="raise train.max_length or train.batch_tokens, or split the text into sentences",
        )
    return examples
