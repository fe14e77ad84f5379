"""Ensembles: the mean of the distributions of several models, in one engine."""

from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import CommandLine
from safetensors.numpy import save_file
from tiny_engine import train_tokenizer

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.compiler.spec.ensemble import Ensemble, join
from xformc.runtime import load
from xformc.specs import find_shipped

SMALL = ["sizes.layers=1", "sizes.d_model=16", "sizes.d_ff=32", "sizes.heads=2", "sizes.vocabulary=60"]
WIDER = [*SMALL, "sizes.d_model=24", "sizes.layers=2"]


def small(settings: list[str], name: str = "transformer_base") -> Spec:
    return load_spec(find_shipped(name), settings)


def write_run(folder: Path, spec: Spec, seed: int, tokenizer: bytes | None = b"") -> Path:
    """A run as training leaves it, with random weights."""
    folder.mkdir()
    (folder / "spec.yaml").write_text(spec.resolved_yaml())
    save_file(dict(TorchModule(spec.graph(), seed).arrays()), folder / "weights.safetensors")
    if tokenizer:
        (folder / "tokenizer.model").write_bytes(tokenizer)
    return folder


@pytest.mark.parametrize("name", ["transformer_base", "gpt"])
def test_its_probabilities_are_the_mean_of_those_of_its_members(name: str) -> None:
    specs = [small(SMALL, name), small([*SMALL, "sizes.d_model=24"], name)]
    whole = join(specs, "pair")
    modules = [TorchModule(spec.graph(), seed).eval() for seed, spec in enumerate(specs)]
    joined = TorchModule(whole.graph()).eval()
    joined.load_arrays({f"{n}/{key}": value for n, one in enumerate(modules, 1) for key, value in one.arrays().items()})
    ids = [torch.tensor([[5, 9, 3], [7, 3, 0]]) for _ in whole.inputs]
    with torch.inference_mode():
        found = joined(*ids).exp()
        mean = sum(torch.softmax(module(*ids), -1) for module in modules) / 2
    np.testing.assert_allclose(found, mean, atol=1e-6)


def test_its_file_reads_back_with_what_its_members_say() -> None:
    specs = [small([*SMALL, "decode.alignment=decoder/0/cross_attention"]), small([*WIDER, 'precision={"**": int8}'])]
    whole = join(specs, "pair", ["decode.beam_size=7"])
    assert (whole.decode.beam_size, whole.decode.alignment) == (7, "1/decoder/0/cross_attention")
    weights = whole.precisions()
    assert {weights[name] for name in weights if name.startswith("1/")} == {"float32"}
    assert {weights[name] for name in weights if name.startswith("2/")} == {"int8"}
    assert whole.graph().parameter_count() == sum(spec.graph().parameter_count() for spec in specs)


@pytest.mark.processor
def test_runs_become_one_certified_engine(tmp_path: Path, xformc: CommandLine) -> None:
    pieces = train_tokenizer(tmp_path / "tokenizer.model")
    settings = [f"sizes.vocabulary={pieces}"]
    tokenizer = (tmp_path / "tokenizer.model").read_bytes()
    runs = [
        write_run(tmp_path / str(number), small([*one, *settings]), number, tokenizer)
        for number, one in enumerate((SMALL, WIDER))
    ]
    engine = tmp_path / "engine"
    assert "its certificate passed" in xformc("build", *runs, "-o", engine).out
    with load(engine) as loaded:
        found = loaded.translate(["one two", "a man"], n_best=2)
    assert all(len(several) == 2 for several in found)
    spec = load_spec(engine / "spec.yaml")
    assert isinstance(spec, Ensemble)
    assert [one.sizes["d_model"] for one in spec.members] == [16, 24]
    assert "{1..2}/encoder/{0..1}/self_attention" in xformc("report", engine).out
    refused = xformc("train", engine / "spec.yaml", "--data", tmp_path, "-o", tmp_path / "new")
    assert refused.code == 2 and "is an ensemble, which is not trained" in refused.err
    assert not (tmp_path / "new").exists()

    other = write_run(tmp_path / "other", small([*SMALL, *settings]), 3, tokenizer + b"\0")
    refused = xformc("build", runs[0], other, "-o", tmp_path / "none")
    assert refused.code == 2 and f"has another tokenizer than {runs[0]}" in refused.err
    refused = xformc("build", runs[0], runs[1], "--weights", runs[0], "-o", tmp_path / "none")
    assert refused.code == 2 and "--weights is for one model" in refused.err
    refused = xformc("build", runs[0], "transformer_base", "-o", tmp_path / "none")
    assert refused.code == 2 and "transformer_base: is not a run" in refused.err
    assert not (tmp_path / "none").exists()


def test_members_that_have_no_mean_are_refused() -> None:
    with pytest.raises(SpecError) as raised:
        join([small(SMALL), small([*SMALL, "sizes.vocabulary=61"])], "pair")
    assert "translation with the inputs source (vocabulary=61), target (vocabulary=61)" in str(raised.value)
    vectors = load_spec(find_shipped("sentence_embedding"))
    with pytest.raises(SpecError, match="vectors: only text and single labels are averaged"):
        join([vectors, vectors], "pair")
