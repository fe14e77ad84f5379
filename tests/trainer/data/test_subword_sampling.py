from pathlib import Path

import numpy as np
import pytest
from several_processes import write_tiny

from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_corpus, find_corpus, make_tokenizer, read_corpus
from xformc.trainer.data.redrawn_texts import redraw_of
from xformc.trainer.data.shards.prepare import Corpus, Preparation, prepare
from xformc.trainer.data.vocabulary import Kind
from xformc.trainer.train import Options, train_weights

pytestmark = pytest.mark.processor


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_segmentations_follow_from_the_seed_and_the_epoch(tmp_path: Path, kind: Kind) -> None:
    change = ("train:\n", f"train:\n  tokenizer: {{kind: {kind}, sampling: 0.3}}\n")
    write_tiny(tmp_path, change, ("vocabulary: 60", "vocabulary: 40"))
    spec = load_spec(tmp_path / "tiny.yaml")
    schema = data_schema(spec)
    corpus = read_corpus(find_corpus(tmp_path / "data", schema), schema)
    tokenizer = make_tokenizer(corpus.train, schema, spec.train.tokenizer)
    data = encode_corpus(corpus, schema, tokenizer, redraw_of(spec, schema)).train
    usual = encode_corpus(corpus, schema, tokenizer).train

    def tokens(seed: int, epoch: int) -> list[int]:
        ((number, examples),) = data.windows(seed, epoch)
        assert number == 0 and not list(data.windows(seed, epoch, 1))
        return [*examples.inputs["source"].lengths(), *examples.inputs["target"].lengths()]

    first = tokens(1, 0)
    assert first == tokens(1, 0)
    assert first != tokens(1, 1) and first != tokens(2, 0)
    assert len(data) == len(usual)
    ((_, whole),) = usual.windows(1, 0)
    assert np.sum(first) > whole.inputs["source"].lengths().sum() + whole.inputs["target"].lengths().sum()


def test_run_with_sampled_subwords_continues_to_the_bit(tmp_path: Path) -> None:
    write_tiny(
        tmp_path, ("train:\n", "train:\n  tokenizer: {sampling: 0.2}\n"), ("average: 2", "average: 1"), ("60", "50")
    )
    spec = load_spec(tmp_path / "tiny.yaml")
    for run, options in (("whole", Options()), ("part", Options(minutes=1e-9)), ("part", Options(resume=True))):
        train_weights(spec, tmp_path / "data", tmp_path / run, options, quiet=True)
    whole, part = (read_weights(tmp_path / run).arrays for run in ("whole", "part"))
    assert all((whole[name] == part[name]).all() for name in whole)
    files = (tmp_path / "data" / "train.tsv",)
    with pytest.raises(UserError, match="the token ids of prepared data are fixed"):
        prepare(spec, Preparation([Corpus("one", files)], files), tmp_path / "prepared")
