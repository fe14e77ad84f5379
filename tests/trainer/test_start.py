"""Runs that begin with the weights of another one, with more tokens and another head."""

from pathlib import Path

import numpy as np
import pytest
from several_processes import write_tiny
from tiny_run import write_spec

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import SHARED, begin, run_passes
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import read_weights
from xformc.errors import UserError
from xformc.trainer.data.vocabulary import Vocabulary
from xformc.trainer.start import start_from
from xformc.trainer.train import Options, train_weights

GROWN = """
  tokenizer: {symbols: [<de>, <fr>]}
  freeze: [encoder/0/self_attention]
  rates: {decoder: 0.5}
"""


@pytest.mark.processor
def test_grown_vocabulary_keeps_its_tokens_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    first = load_spec(write_tiny(tmp_path, ("average: 2", "average: 1"), ("steps: 12", "steps: 2")) / "tiny.yaml")
    train_weights(first, tmp_path / "data", tmp_path / "first", Options(), quiet=True)
    text = (tmp_path / "tiny.yaml").read_text().replace("steps: 2\n", "steps: 4\n").rstrip() + GROWN
    with pytest.raises(UserError, match=r"has 62 tokens with train\.tokenizer\.symbols; the spec's vocabulary is 60"):
        spec = load_spec(write_spec(tmp_path, text))
        train_weights(spec, tmp_path / "data", tmp_path / "small", Options(start=tmp_path / "first"))
    spec = load_spec(write_spec(tmp_path, text.replace("vocabulary: 60", "vocabulary: 64")))
    start = tmp_path / "first"
    for run, options in (
        ("whole", Options(start=start)),
        ("part", Options(start=start, minutes=1e-9)),
        ("part", Options(start=start, resume=True)),
    ):
        train_weights(spec, tmp_path / "data", tmp_path / run, options, quiet=True)
    old, whole, part = (read_weights(tmp_path / run).arrays for run in ("first", "whole", "part"))
    assert all((whole[name] == part[name]).all() for name in whole)
    kept = {name for name, array in whole.items() if name in old and np.array_equal(array, old[name])}
    assert kept == {name for name in old if name.startswith("encoder/0/self_attention/")}
    before, after = (Vocabulary((tmp_path / run / "tokenizer.model").read_bytes()) for run in ("first", "whole"))
    assert (len(before), len(after)) == (60, 62)
    assert after.encode(["<fr> red two"]) == [[after.encode(["x"])[0][0], 61, *before.encode(["red two"])[0]]]


def test_what_is_taken_and_what_is_new_is_said_by_name(tmp_path: Path) -> None:
    spec = load_spec(write_tiny(tmp_path) / "tiny.yaml")
    train_weights(spec, tmp_path / "data", tmp_path / "run", Options(minutes=1e-9), quiet=True)
    old = read_weights(tmp_path / "run").arrays
    changes = ["sizes.vocabulary=70", "sizes.d_ff=64"]
    model = TorchModule(run_passes(begin(load_spec(tmp_path / "tiny.yaml", changes)), after=SHARED).graph, seed=3)
    fresh = {name: array.copy() for name, array in model.arrays().items()}
    first, second = start_from(tmp_path / "run", model, {"vocabulary"})
    assert "; randomly initialized: " in first and "feed_forward/inner/weight" in first
    assert second.startswith("start: with randomly initialized rows for new tokens: ")
    now = model.arrays()
    (grown,) = [name for name in now if 70 in now[name].shape]
    assert grown in second and np.array_equal(now[grown][:60], old[grown])
    assert np.array_equal(now[grown][60:], fresh[grown][60:])
    assert all(np.array_equal(now[name], fresh[name]) for name in now if 64 in now[name].shape)
    other = load_spec(tmp_path / "tiny.yaml", ["sizes.d_model=24", "sizes.d_ff=48"])
    with pytest.raises(UserError, match="none of these weights has the path"):
        start_from(tmp_path / "run", TorchModule(run_passes(begin(other), after=SHARED).graph, seed=3))


def test_a_checkpoint_brings_the_tokenizer_of_its_run(tmp_path: Path) -> None:
    spec = load_spec(write_tiny(tmp_path) / "tiny.yaml")
    train_weights(spec, tmp_path / "data", tmp_path / "first", Options(minutes=1e-9), quiet=True)
    start = tmp_path / "first" / "checkpoints" / "00000001"
    for name, path in (("folder", start), ("file", start / "weights.safetensors")):
        train_weights(spec, tmp_path / "data", tmp_path / name, Options(start=path, minutes=1e-9), quiet=True)
        assert (tmp_path / name / "tokenizer.model").read_bytes() == (tmp_path / "first/tokenizer.model").read_bytes()
