"""Models of Marian and Bergamot become runs that compute what their formulas say."""

import json
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from command_line import CommandLine, listing, mistake
from safetensors.numpy import load_file

from tests.imports.marian_files import (
    OPTIONS,
    SIZE,
    WORDS,
    marian_logits,
    marian_weights,
    write_marian_binary,
    write_marian_npz,
)
from tests.imports.test_fairseq import logits
from tests.imports.test_tokenizers import train_piece_model
from xformc.compiler.shortlist import read_shortlist
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.imports.origins.marian_files import read_binary, read_npz
from xformc.runtime.engine import load
from xformc.runtime.text.tokenizer import open_vocabulary

pytest.importorskip("tokenizers")


def refused(xformc: CommandLine, folder: Path) -> str:
    before = listing(folder.parent)
    found = mistake(xformc("import", folder, "-o", folder.parent / "run"))
    assert listing(folder.parent) == before
    return found


def test_an_archive_and_a_binary_file_become_the_same_run(xformc: CommandLine, tmp_path: Path) -> None:
    weights = marian_weights()
    runs = {}
    for name, write in (("npz", write_marian_npz), ("bin", write_marian_binary)):
        result = xformc("import", write(tmp_path / name, weights), "-o", tmp_path / f"run-{name}")
        assert (result.code, result.err) == (0, "") and "with tokenizer.json" in result.out
        runs[name] = load_file(tmp_path / f"run-{name}" / "weights.safetensors")
    assert all(np.array_equal(runs["bin"][path], array) for path, array in runs["npz"].items())
    spec = load_spec(tmp_path / "run-npz" / "spec.yaml")
    special, decode = spec.inputs["source"].special, spec.decode
    assert (special.pad, special.begin, special.end, special.unknown) == (SIZE, SIZE, (0,), 1)
    assert (decode.beam_size, decode.length_penalty, decode.suppress_tokens) == (2, 0.6, [1])
    source, target = [2, 5, 7, 0], [3, 4, 9]
    found = logits(tmp_path / "run-npz", spec, torch.tensor([source]), torch.tensor([[SIZE, *target]]))
    assert float(found[0, :, SIZE].max()) == -1e4
    expected = marian_logits(weights, source, target)
    torch.testing.assert_close(found[0, :, :SIZE], expected, rtol=0, atol=2e-5)
    vocabulary = open_vocabulary(tmp_path / "run-npz" / "tokenizer.json", SIZE + 1, special)
    assert vocabulary.surround(vocabulary.encode("a z  b")) == [2, 1, 3, 0]


@pytest.mark.processor
def test_a_binary_model_translates(xformc: CommandLine, tmp_path: Path) -> None:
    weights = marian_weights()
    xformc("import", write_marian_binary(tmp_path / "model", weights), "-o", tmp_path / "run")
    assert xformc("build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable").code == 0
    found = xformc("translate", tmp_path / "engine", "--beam-size", "1", stdin="a b\n")
    assert found.code == 0


def write_lists(
    path: Path, rows: list[list[int]], first: int = 2, best: int = 3, magic: int = 0xF11A48D5013417F5
) -> None:
    """A binary shortlist of Marian."""
    ends = np.cumsum([0, *map(len, rows)]).astype("<u8")
    tokens = np.array([token for row in rows for token in row], "<u4")
    path.write_bytes(
        struct.pack("<6Q", magic, 7, first, best, len(ends), len(tokens)) + ends.tobytes() + tokens.tobytes()
    )


def change_offset(path: Path, offset: int) -> None:
    """A row that begins somewhere else."""
    write_lists(path, [[1], [2]])
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, 56, offset)
    path.write_bytes(bytes(content))


@pytest.mark.processor
def test_a_shortlist_comes_with_its_model(
    xformc: CommandLine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each source token has itself, its row, and the first tokens of the vocabulary."""
    folder = write_marian_binary(tmp_path / "model", marian_weights())
    options = next(folder.glob("*.yml"))
    options.write_text(options.read_text() + "shortlist:\n  - /a/lex.s2t.bin\n  - false\n")
    result = xformc("import", folder, "-o", tmp_path / "without")
    assert result.code == 0 and "with a shortlist" not in result.out, "the file is not there"
    assert "lex.s2t.bin: the shortlist that the model names is left out: there is no such file" in caplog.text
    write_lists(folder / "lex.s2t.bin", [[index % 12, 7] if index > 2 else [] for index in range(SIZE)])
    result = xformc("import", folder, "-o", tmp_path / "run")
    assert f"with a shortlist: xformc build {tmp_path / 'run'} --shortlist" in result.out
    found = read_shortlist(tmp_path / "run" / "shortlist.safetensors")
    assert np.flatnonzero(found.allowed([5, 2], (), SIZE + 1)).tolist() == [0, 1, 2, 5, 7]
    lists = ("--shortlist", tmp_path / "run" / "shortlist.safetensors", "--target", "portable")
    assert xformc("build", tmp_path / "run", "-o", tmp_path / "engine", *lists).code == 0
    engine = load(tmp_path / "engine", threads=1)
    (best,) = engine.translate(["d a"], max_length_factor=0, max_length_offset=9)[0]
    assert set(best.tokens) <= {0, 1, 2, 5, 7}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(b""), "not a whole binary shortlist of Marian"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "not a whole binary shortlist of Marian"),
        (lambda path: write_lists(path, [[1]], magic=5), "not a whole binary shortlist of Marian"),
        (lambda path: write_lists(path, [[SIZE + 1]]), "out of order or too long"),
        (lambda path: write_lists(path, [[1]] * (SIZE + 2)), "out of order or too long"),
        (lambda path: write_lists(path, [[1]], best=4096), "out of order or too long"),
        (lambda path: write_lists(path, [[1]], first=SIZE + 2), "out of order or too long"),
        (lambda path: change_offset(path, 2**63 + 1), "out of order or too long"),
        (lambda path: write_lists(path, [[1, 2, 3, 4]], best=3), "out of order or too long"),
    ],
)
def test_damaged_shortlists_are_refused(
    xformc: CommandLine, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    folder = write_marian_binary(tmp_path / "model", marian_weights())
    options = next(folder.glob("*.yml"))
    options.write_text(options.read_text() + "shortlist: lex.bin\n")
    write_lists(folder / "lex.bin", [[1]])
    change(folder / "lex.bin")
    assert message in refused(xformc, folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type: transformer", "type: s2s", "type: s2s must be 'transformer'"),
        ("dan", "da", "transformer_postprocess: da must be 'dan'"),
        ("heads: 2", "heads: 2\ntransformer-odd: 1", "transformer_odd: 1 is not in the table of marian_nmt"),
        ("enc-depth: 1", "enc-depth: 2", "missing: encoder.1.ffn_W1"),
        ("heads: 2", "heads: 2\nright-left: true", "right_left: true must be 'false'"),
        ("heads: 2", "heads: 2\ntransformer-tied-layers: [1, 1]", "transformer_tied_layers: 1 1 must be ''"),
        ("heads: 2", "heads: 2\ninput-types: [sequence, class]", "input_types: sequence class must be"),
        (OPTIONS, "a: [", "is no YAML"),
    ],
)
def test_models_of_other_kinds_are_refused(
    xformc: CommandLine, tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = write_marian_npz(tmp_path / "model", marian_weights(), OPTIONS.replace(old, new))
    assert message in refused(xformc, folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("</s>: 0\nx: 0\n", "must map words to ids"),
        (f"</s>: 0\nx: {'9' * 5000}\n", "must map words to ids"),
        (f"{WORDS}a: 15\nb: 16\na: 17\n", "must map words to ids, each to one of its own"),
        ("</s>: 1\n<unk>: 0\n", "must give </s> the id 0 and <unk> the id 1"),
        ("[1, 2]", "must map words to ids"),
        ("</s>: 0\n<unk>: 1\na: [2]\n", "must map words to ids"),
        (None, "needs the vocabularies of both sides; vocab.yml is not there"),
    ],
)
def test_broken_vocabularies_are_refused(
    xformc: CommandLine, tmp_path: Path, content: str | None, message: str
) -> None:
    folder = write_marian_npz(tmp_path / "model", marian_weights())
    (folder / "vocab.yml").unlink()
    if content is not None:
        (folder / "vocab.yml").write_text(content)
    assert message in refused(xformc, folder)


def test_words_of_a_vocabulary_are_what_is_written(xformc: CommandLine, tmp_path: Path) -> None:
    """YAML would make other values of them."""
    words = ["no", "yes", "null", "10:30", "1_000", "007", "true", "<<", "~", "1.0"]
    folder = write_marian_npz(tmp_path / "model", marian_weights())
    lines = [f"{word}: {number}" for number, word in enumerate(["</s>", "<unk>", *words])]
    (folder / "vocab.yml").write_text("\n".join(lines) + "\n")
    assert xformc("import", folder, "-o", tmp_path / "run").code == 0
    special = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"].special
    vocabulary = open_vocabulary(tmp_path / "run" / "tokenizer.json", SIZE + 1, special)
    assert vocabulary.encode(" ".join(words)) == [*range(2, SIZE)]
    assert vocabulary.decode([*range(2, SIZE)]) == " ".join(words)


def test_options_of_a_package_and_the_models_that_cut_its_texts(xformc: CommandLine, tmp_path: Path) -> None:
    """As OPUS-MT has them: `decoder.yml`, a dictionary of pieces, and `source.spm` and `target.spm`. Current versions
    of Marian name more options, which say that nothing is different."""
    off = ("no-affine: false", "rnn-projection: false", "decoder-dim-ffn: 0", "decoder-ffn-depth: 0",
           "disable-position-embeddings: false", "alibi-shift: false", "attention-mask: default",
           "tied-layers: []")  # fmt: skip
    options = OPTIONS + "".join(f"transformer-{one}\n" for one in off) + "right-left: false\n"
    options += "ulr: false\nulr-dim-emb: 0\nulr-trainable-transformation: false\nlemma-dim-emb: 0\n"
    folder = write_marian_npz(tmp_path / "model", marian_weights(), options)
    for side in ("source", "target"):
        train_piece_model(folder / f"{side}.spm", ["ab ba ab", "b a bb"], bos_id=-1, vocab_size=8)
    pieces: Any = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    ids = {"</s>": 0, "<unk>": 1}
    for number in reversed(range(pieces.get_piece_size())):
        ids.setdefault(pieces.id_to_piece(number), len(ids))
    (folder / "vocab.yml").rename(folder / "opus.vocab.yml")
    (folder / "opus.vocab.yml").write_text("".join(f"{json.dumps(word)}: {number}\n" for word, number in ids.items()))
    (folder / "model.npz.decoder.yml").unlink()
    names = "vocabs: [opus.vocab.yml, opus.vocab.yml]\nmodels: [a.npz, b.npz]\n"
    (folder / "decoder.yml").write_text(f"{names}beam-size: 6\nnormalize: 1\n")
    result = xformc("import", folder, "-o", tmp_path / "run")
    assert result.code == 0 and "with source.model and target.model" in result.out, result.err
    assert "without the origin's other models, which would change its texts" in result.out
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    assert (spec.decode.beam_size, spec.decode.length_penalty) == (6, 1)
    vocabulary = open_vocabulary(tmp_path / "run" / "source.model", SIZE + 1, spec.inputs["source"].special)
    assert vocabulary.encode("ab b ba") == [ids[piece] for piece in pieces.encode("ab b ba", out_type=str)]


def test_archives_with_objects_are_refused(xformc: CommandLine, tmp_path: Path) -> None:
    folder = write_marian_npz(tmp_path / "model", marian_weights())
    objects: Any = np.array([{"a": 1}], dtype=object)
    np.savez(folder / "model.npz", Wemb=objects)
    assert "not an archive of Marian: Object arrays cannot be loaded" in refused(xformc, folder)
    (folder / "model.npz").write_bytes(b"\0" * 40)
    assert "not an archive of Marian" in refused(xformc, folder)


def test_changed_bytes_are_refused_or_read(tmp_path: Path) -> None:
    weights, draw = marian_weights(), random.Random(0)
    files = (write_marian_npz(tmp_path, weights) / "model.npz", write_marian_binary(tmp_path, weights) / "model.bin")
    for path, read in zip(files, (read_npz, read_binary), strict=True):
        whole, complete = path.read_bytes(), 0
        for _ in range(100):
            data = bytearray(whole[: draw.choice((len(whole), draw.randrange(len(whole))))])
            for _ in range(draw.choice((1, 8)) if data else 0):
                data[draw.randrange(min(len(data), 3000))] = draw.randrange(256)
            path.write_bytes(data)
            with suppress(UserError):
                complete += len([one.read() for one in read(path).values()]) > 0
        assert 0 < complete < 100
