"""Checkpoints of fairseq become runs that compute the same, and no pickle is run."""

import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import CommandLine, listing, mistake
from safetensors.torch import load_file

from tests.imports.fairseq_files import SIZE, peer, write_fairseq
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.pipeline import begin, run_passes
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.imports.origins.pickled import read_pickle
from xformc.imports.origins.subwords import read_codes
from xformc.runtime.engine import load
from xformc.runtime.text.tokenizer import open_vocabulary

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_fairseq(tmp_path / "model")
    return tmp_path / "model"


def refused(xformc: CommandLine, path: Path) -> str:
    """The message of an import that must be refused and must leave nothing behind."""
    folder = path if path.is_dir() else path.parent
    before = listing(folder.parent)
    found = mistake(xformc("import", path, "-o", folder.parent / "run"))
    assert listing(folder.parent) == before
    return found


def module(run: Path, spec: Spec) -> Any:
    """The PyTorch module of a run."""
    found: Any = TorchModule(run_passes(begin(spec), without=("loss",)).graph).eval()
    stored = load_file(run / "weights.safetensors")
    with torch.no_grad():
        for path, parameter in parameters_by_path(found).items():
            parameter.copy_(stored[path])
    return found


def logits(run: Path, spec: Spec, *inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return module(run, spec)(*inputs)


def test_an_import_computes_the_logits_of_the_same_weights_in_transformers(
    xformc: CommandLine, folder: Path, tmp_path: Path
) -> None:
    result = xformc("import", folder, "-o", tmp_path / "run")
    assert (result.code, result.err) == (0, "")
    assert "a run of the family fairseq, " in result.out and "with tokenizer.json" in result.out
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    decode = spec.decode
    assert (decode.beam_size, decode.min_length, decode.suppress_tokens, decode.max_length.offset) == (5, 2, [1], 201)
    source, target = torch.tensor([[4, 7, 9, 2], [5, 2, 1, 1]]), torch.tensor([[2, 5, 6], [2, 8, 12]])
    with torch.no_grad():
        expected = peer()(input_ids=source, attention_mask=(source != 1).long(), decoder_input_ids=target).logits
    torch.testing.assert_close(logits(tmp_path / "run", spec, source, target), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_both_sides_may_have_embeddings_of_their_own(xformc: CommandLine, tmp_path: Path, shared: bool) -> None:
    """The projection may be that of the target, or another one; weights may be parameters."""
    options = {"share_all_embeddings": False, "share_decoder_input_output_embed": shared}
    state = write_fairseq(tmp_path / "model", **options)
    table = state["encoder.embed_tokens.weight"]
    state["decoder.embed_tokens.weight"] = target = 1.5 * table
    state["decoder.output_projection.weight"] = projection = target if shared else torch.nn.Parameter(0.5 * table)
    change(tmp_path / "model", model=state)
    assert xformc("import", tmp_path / "model", "-o", tmp_path / "run").code == 0
    found = load_file(tmp_path / "run" / "weights.safetensors")
    expected = {"encoder/embed/embedding/weight": table, "decoder/embed/embedding/weight": target}
    expected |= {} if shared else {"logits/weight": projection}
    assert ("logits/weight" in found) is not shared
    for path, tensor in expected.items():
        torch.testing.assert_close(found[path], tensor.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["decoder.embed_tokens.weight", "decoder.output_projection.weight"])
def test_a_copy_of_the_embeddings_has_their_numbers(xformc: CommandLine, tmp_path: Path, name: str) -> None:
    state = write_fairseq(tmp_path / "model")
    change(tmp_path / "model", model={**state, name: 2 * state["encoder.embed_tokens.weight"]})
    assert f"no copy of the weight that it is tied to: {name}" in refused(xformc, tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"no_token_positional_embeddings": True}, "choices: {norm: pre, positions: none}"),
        ({"unnormalized": True, "lenpen": 0.7}, "length_penalty: 0.0"),
    ],
)
def test_options_that_change_the_spec(xformc: CommandLine, tmp_path: Path, options: dict[str, Any], part: str) -> None:
    write_fairseq(tmp_path / "model", **options)
    result = xformc("import", tmp_path / "model", "-o", tmp_path / "run")
    assert result.code == 0 and part in (tmp_path / "run" / "spec.yaml").read_text(), result.err


def change(folder: Path, **parts: Any) -> None:
    """Replace parts of a checkpoint."""
    path = folder / "checkpoint_best.pt"
    torch.save({**torch.load(path, weights_only=False), **parts}, path)


def test_texts_are_cut_as_the_codes_say(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    xformc("import", folder / "checkpoint_best.pt", "-o", tmp_path / "run")
    special = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"].special
    vocabulary = open_vocabulary(tmp_path / "run" / "tokenizer.json", SIZE, special)
    # What subword-nmt 0.3.8 gives with the dictionary: low, lo@@ w@@ er, n@@ ew, th@@ (unknown) r, the
    assert vocabulary.encode("low lower new thr the") == [5, 4, 11, 6, 9, 10, 3, 8, 12]
    assert vocabulary.encode("lxy") == [3, 3, 3] and vocabulary.encode(" ") == []
    assert vocabulary.decode([5, 4, 11, 6, 9, 10, 12]) == "low lower new the"
    assert vocabulary.surround([5]) == [5, 2]


@pytest.mark.processor
def test_an_import_translates(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    xformc("import", folder, "-o", tmp_path / "run")
    assert xformc("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable").code == 0
    ((found,),) = load(tmp_path / "engine", threads=1).translate(["low lower"])
    assert len(found.tokens) > 1 and 1 not in found.tokens


def test_kinds_of_dictionaries_become_tokenizers(xformc: CommandLine, tmp_path: Path) -> None:
    words = "".join(f"{word} 1\n" for word in ["l", "o", "w", "▁", "low", "low▁", "e", "r", "x"])
    for kind, text, ids in (("characters", "low w", [4, 5, 6, 7, 6]), (None, "low  w", [8, 6])):
        folder = tmp_path / str(kind)
        write_fairseq(folder, bpe=kind)
        for language in ("de", "en"):
            (folder / f"dict.{language}.txt").write_text(words, encoding="utf-8")
        if kind is None:
            (folder / "bpe.codes").unlink()
        assert xformc("import", folder, "-o", folder / "run").code == 0
        special = load_spec(folder / "run" / "spec.yaml").inputs["source"].special
        vocabulary = open_vocabulary(folder / "run" / "tokenizer.json", SIZE, special)
        assert vocabulary.encode(text) == ids
        assert vocabulary.decode(ids) == " ".join(text.split())


@pytest.mark.parametrize("kind", ["gpt2", "byte_bpe", "bert"])
def test_other_kinds_of_codes_are_refused(xformc: CommandLine, tmp_path: Path, kind: str) -> None:
    write_fairseq(tmp_path / "model", bpe=kind)
    assert f"its texts are cut by {kind}; imported are characters, subword_nmt" in refused(xformc, tmp_path / "model")


def test_the_kind_of_codes_may_stand_apart(xformc: CommandLine, tmp_path: Path) -> None:
    """As in checkpoints with a `cfg`."""
    write_fairseq(tmp_path / "model")
    given = vars(torch.load(tmp_path / "model" / "checkpoint_best.pt", weights_only=False)["args"])
    change(tmp_path / "model", args=None, cfg={"model": {"_name": "transformer", **given}, "bpe": {"_name": "gpt2"}})
    assert "its texts are cut by gpt2" in refused(xformc, tmp_path / "model")


def test_everything_that_the_table_lacks_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    write_fairseq(tmp_path / "model", decoder_embed_dim=16, adaptive_softmax_cutoff="9", encoder_odd=1, sampling=True,
                  diversity_rate=0.5, prefix_size=1, lm_path="lm.pt", no_decoder_final_norm=True)  # fmt: skip
    found = refused(xformc, tmp_path / "model")
    for line in (
        "decoder_embed_dim: 16 differs from encoder_embed_dim",
        'adaptive_softmax_cutoff: "9" is not in the table of fairseq',
        "encoder_odd: 1 is not in the table of fairseq",
        "generation.sampling: true must be 'false'",
        "generation.diversity_rate: 0.5 must be '-1' or '-1.0'",
        "generation.prefix_size: 1 must be '0'",
        "generation.lm_path: lm.pt must be ''",
        "without_final_norm: 1 must be '0'",
    ):
        assert f"\n  {line}\n" in found


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"arch": "fconv"}, "is a fconv; imported are fairseq's Transformers"), ({"source_lang": "fr"}, "dict.fr.txt")],
)
def test_other_checkpoints_are_refused(
    xformc: CommandLine, tmp_path: Path, changed: dict[str, str], message: str
) -> None:
    write_fairseq(tmp_path / "model", **changed)
    assert message in refused(xformc, tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("dict.de.txt", "low 1\nlow 2\n", "dict.de.txt:2: must have a new token and its count, found 'low 2'"),
        ("dict.de.txt", "low\n", "dict.de.txt:1: must have a new token and its count, found 'low'"),
        ("bpe.codes", "#version: 0.1\nl o\n", "codes of version: 0.1; imported are those of version 0.2"),
        ("bpe.codes", "#version: 0.2\nl\n", "bpe.codes:2: must have a pair, as subword-nmt writes it, found 'l'"),
        ("bpe.codes", "l o\n", "bpe.codes:1: must have a pair and its count, as fastBPE writes it, found 'l o'"),
        ("bpe.codes", None, "its texts are cut by byte pairs: put the codes beside the dictionaries"),
        ("dict.en.txt", "".join(f"{one} 1\n" for one in range(10)), "wrong shape: encoder.embed_tokens.weight"),
        ("checkpoint_best.pt", "PK", "not a checkpoint that can be read without running it"),
    ],
)
def test_broken_files_are_refused(
    xformc: CommandLine, folder: Path, file: str, content: str | None, message: str
) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content, encoding="utf-8")
    assert message in refused(xformc, folder)


class _Harmful:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def test_a_pickle_is_never_run(xformc: CommandLine, folder: Path, tmp_path: Path) -> None:
    for protocol in (2, 4):
        harmful = {"args": _Harmful(tmp_path / "touched"), "model": {}}
        torch.save(harmful, folder / "checkpoint_best.pt", pickle_protocol=protocol)
        assert "Unsupported global" in refused(xformc, folder) or protocol == 4
    (folder / "checkpoint_best.pt").write_bytes(pickle.dumps(harmful))
    assert "not a checkpoint that can be read without running it" in refused(xformc, folder)
    assert not (tmp_path / "touched").exists()


def test_an_archive_that_grows_is_refused(xformc: CommandLine, folder: Path) -> None:
    path = folder / "checkpoint_best.pt"
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    assert "is a compressed archive" in refused(xformc, folder)


def test_changed_bytes_are_refused_or_read_as_a_mapping(folder: Path) -> None:
    path, draw, read = folder / "checkpoint_best.pt", random.Random(0), 0
    whole = path.read_bytes()
    for _ in range(100):
        data = bytearray(whole[: draw.choice((len(whole), draw.randrange(len(whole))))])
        for _ in range(draw.choice((1, 8))):
            data[draw.randrange(len(data))] = draw.randrange(256)
        path.write_bytes(data)
        with suppress(UserError):
            read += len(read_pickle(path)) > 0
    assert 0 < read < 100


def test_codes_of_fastbpe_have_counts(tmp_path: Path) -> None:
    (tmp_path / "codes").write_text("l o 12\nlo w</w> 5\nl o 3\n")
    assert read_codes(tmp_path / "codes") == [("l", "o"), ("lo", "w</w>")]
