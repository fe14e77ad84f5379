"""Models of CTranslate2 become runs that translate as it does; what is not supported is refused by name."""

import json
import shutil
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake

from tests.exports.test_hugging_face import done
from tests.imports.fairseq_files import write_fairseq
from tests.imports.opennmt_files import SOURCE, VARIANTS, write_opennmt
from tests.imports.opennmt_files import TEXTS as OPENNMT_TEXTS
from tests.imports.test_fairseq import logits
from tests.imports.test_tokenizers import SENTENCES, TEXTS, train_piece_model
from tests.imports.test_tuning import marian
from xformc.compiler.shortlist import Shortlist, read_shortlist, write_shortlist
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
from xformc.errors import UserError
from xformc.imports.import_model import import_model
from xformc.imports.origins.ctranslate2_files import read_binary
from xformc.runtime.engine import load
from xformc.runtime.text.tokenizer import open_vocabulary

KINDS = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
TOKENS = ["<pad>", "<unk>", "<s>", "</s>", *"abcdefgh"]
CONFIG = {
    "add_source_bos": False, "add_source_eos": True, "bos_token": "<s>", "decoder_start_token": "<s>",
    "eos_token": "</s>", "layer_norm_epsilon": 1e-6, "unk_token": "<unk>",
}  # fmt: skip


def variables() -> dict[str, Any]:
    """A Transformer of one layer on both sides, with the norm after."""
    random, width, inner = np.random.default_rng(5), 8, 12
    found: dict[str, Any] = {}

    def linear(name: str, outer: int, along: int = width) -> None:
        found[f"{name}/weight"] = random.normal(size=(outer, along)).astype(np.float32)
        found[f"{name}/bias"] = random.normal(size=outer).astype(np.float32)

    def norm(name: str) -> None:
        found[f"{name}/gamma"], found[f"{name}/beta"] = (random.normal(size=width).astype(np.float32) for _ in "gb")

    for side in ("encoder", "decoder"):
        layer = f"{side}/layer_0"
        parts = {"self_attention": (3 * width, width)}
        parts |= {"attention": (width, 2 * width, width)} if side == "decoder" else {}
        for part, sizes in parts.items():
            for place, size in enumerate(sizes):
                linear(f"{layer}/{part}/linear_{place}", size)
            norm(f"{layer}/{part}/layer_norm")
        linear(f"{layer}/ffn/linear_0", inner)
        linear(f"{layer}/ffn/linear_1", width, inner)
        norm(f"{layer}/ffn/layer_norm")
        found[f"{side}/num_heads"], found[f"{side}/pre_norm"] = np.int16(2), np.int8(0)
        found[f"{side}/activation"], found[f"{side}/scale_embeddings"] = np.int8(2), np.float32(width**0.5)
        found[f"{side}/position_encodings/encodings"] = random.normal(size=(20, width)).astype(np.float32)
    found["decoder/embeddings/weight"] = random.normal(size=(len(TOKENS), width)).astype(np.float32)
    return found


ALIASES = ("encoder/embeddings_0/weight", "decoder/projection/weight")


def write_model(folder: Path, found: Mapping[str, Any], name: str = "TransformerSpec", **config: object) -> Path:
    """The model's folder, as CTranslate2 writes it; all embeddings are one matrix."""
    folder.mkdir(exist_ok=True)

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    data = struct.pack("<I", 6) + text(name) + struct.pack("<II", 7, len(found))
    for key, value in found.items():
        array = np.asarray(value)
        sizes = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        data += text(key) + sizes + struct.pack("<BI", KINDS[str(array.dtype)], array.nbytes) + array.tobytes()
    aliases = [one for one in (ALIASES if name == "TransformerSpec" else ALIASES[1:]) if one not in found]
    data += struct.pack("<I", len(aliases))
    for alias in aliases:
        data += text(alias) + text("decoder/embeddings/weight")
    (folder / "model.bin").write_bytes(data)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "shared_vocabulary.json").write_text(json.dumps(TOKENS))
    return folder


def test_int8_becomes_the_numbers_that_it_stands_for(xformc: CommandLine, tmp_path: Path) -> None:
    found = variables()
    name = "encoder/layer_0/ffn/linear_0/weight"
    found[name] = np.arange(96, dtype=np.int8).reshape(12, 8)
    found[f"{name}_scale"] = np.linspace(1, 2, 12, dtype=np.float32)
    found["decoder/layer_0/ffn/linear_0/weight"] = found["decoder/layer_0/ffn/linear_0/weight"].astype(np.float16)
    done(xformc, "import", write_model(tmp_path / "model", found), "-o", tmp_path / "run")
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    weights = load_weights(tmp_path / "run", spec.graph())
    np.testing.assert_allclose(
        weights["encoder/0/feed_forward/inner/weight"], found[name] / found[f"{name}_scale"][:, None], rtol=1e-6
    )
    keys = weights["decoder/0/cross_attention/key/weight"].reshape(8, 8)
    np.testing.assert_array_equal(keys, found["decoder/layer_0/attention/linear_1/weight"][:8])
    assert {**spec.sizes}["max_positions"] == 20 and spec.inputs["source"].special.pad == 0


def changed(found: dict[str, Any], network: str) -> dict[str, Any]:
    """The variables with another feed-forward network: its gates, and the biases that it and attention have."""
    random = np.random.default_rng(6)
    for layer in ("encoder/layer_0", "decoder/layer_0"):
        ffn = f"{layer}/ffn"
        if network.startswith("gated"):
            found[f"{ffn}/linear_0_noact/weight"] = random.normal(size=(12, 8)).astype(np.float32)
            found[f"{ffn}/linear_0_noact/bias"] = random.normal(size=12).astype(np.float32)
        for name in [name for name in found if name.startswith(layer) and name.endswith("/bias")]:
            if network == "bare" or not name.startswith(ffn) or (network == "gated" and name.startswith(ffn)):
                del found[name]
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("network", ["biased", "bare", "gated", "gated_biased"])
def test_feed_forward_networks_compute_what_ctranslate2_does(tmp_path: Path, network: str) -> None:
    """The scores of texts, with attention that has no biases."""
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    folder = write_model(tmp_path / "model", changed(variables(), network))
    import_model(folder, tmp_path / "run")
    spec = load_spec(tmp_path / "run" / "spec.yaml")
    source, target = [[5, 9, 7, 11, 4, 3]], [[2, 5, 6, 9, 8]]
    found = logits(tmp_path / "run", spec, torch.tensor(source), torch.tensor(target))[0].log_softmax(-1)
    translator = ctranslate2.Translator(str(folder), intra_threads=1, compute_type="float32")
    (theirs,) = translator.score_batch(
        [[TOKENS[one] for one in source[0][:-1]]], [[TOKENS[one] for one in target[0][1:]]]
    )
    ours = [float(found[place, token]) for place, token in enumerate([*target[0][1:], 3])]
    assert ours == pytest.approx(theirs.log_probs, abs=1e-4)


def test_a_sentencepiece_model_beside_it_gets_its_ids(xformc: CommandLine, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", variables())
    train_piece_model(folder / "sentencepiece.model", vocab_size=70)
    tokens = [*TOKENS[:4], "__fr__", *"▁theodg"]
    (folder / "shared_vocabulary.json").write_text(json.dumps(tokens))
    assert "of whose pieces have no id" in done(xformc, "import", folder, "-o", tmp_path / "run")
    item = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"]
    ours = open_vocabulary(tmp_path / "run" / "tokenizer.model", item.vocabulary, item.special)
    assert ours.encode("__fr__ the dog") == [tokens.index(one) for one in ("__fr__", *"▁the▁dog")]
    assert ours.decode([4, 5, 6, 7, 8]) == "the"


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        ({"decoder/alibi": np.int8(1)}, {}, "decoder.alibi: 1"),
        ({"decoder/pre_norm": np.int8(1)}, {}, "pre_norm"),
        ({"encoder/layer_0/self_attention/queries_scale": np.float32(1)}, {}, "queries_scale"),
        ({"encoder/layer_0/ffn/linear_0_noact/weight": np.zeros((12, 8), np.float32)}, {}, "missing"),
        ({"encoder/scale_embeddings": np.float32(3)}, {}, "scale_embeddings is 3; imported are 1 and sqrt(d_model)"),
        ({"encoder/position_encodings/encodings": np.int8(1)}, {}, "has no matrix encoder/position_encodings"),
        ({}, {"add_source_bos": True}, "sources with a begin token are not imported"),
        ({}, {"eos_token": "stop"}, "eos_token: stop must have one id"),
        ({}, {"decoder_start_token": None}, "decoder_start_token must be a token of the vocabulary, found None"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    xformc: CommandLine, tmp_path: Path, change: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    folder = write_model(tmp_path / "model", {**variables(), **change}, **config)
    assert message in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_damaged_files_are_refused(xformc: CommandLine, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", variables())
    file = folder / "model.bin"
    whole, random = file.read_bytes(), np.random.default_rng(7)
    for _ in range(100):
        file.write_bytes(whole[: int(random.integers(0, len(whole)))])
        with pytest.raises(UserError, match="not a complete model of CTranslate2"):
            read_binary(file)
    for place in range(1, 400):
        changed = bytearray(whole)
        changed[place] ^= int(random.integers(1, 256))
        file.write_bytes(bytes(changed))
        with suppress(UserError):
            read_binary(file).numbers()
    for place in range(30, 60, 5):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        assert mistake(xformc("import", folder, "-o", tmp_path / "run"))
    (folder / "model.bin").write_bytes(struct.pack("<I", 5) + whole[4:])
    assert "version 5; imported is version 6" in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    write_model(folder, variables(), "Wav2Vec2Spec")
    assert "is a Wav2Vec2Spec; imported are Tr" in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    write_model(folder, variables(), add_source_eos=False)
    (folder / "shared_vocabulary.json").write_text(json.dumps([*TOKENS, "a"]))
    found = mistake(xformc("import", folder, "-o", tmp_path / "run"))
    assert "the vocabulary of the source has 13 tokens, and the model 12" in found
    (folder / "shared_vocabulary.json").write_text(json.dumps([*TOKENS[:-1], 7]))
    assert "must be a list of tokens" in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    (folder / "shared_vocabulary.json").unlink()
    assert "there is no vocabulary of the source" in mistake(xformc("import", folder, "-o", tmp_path / "run"))


def test_a_token_that_is_there_again_has_the_first_id(xformc: CommandLine, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", variables())
    (folder / "shared_vocabulary.json").unlink()
    (folder / "shared_vocabulary.txt").write_text("\n".join([*TOKENS[:-1], "b"]) + "\n")
    done(xformc, "import", folder, "-o", tmp_path / "run")
    special = load_spec(tmp_path / "run" / "spec.yaml").inputs["source"].special
    vocabulary = open_vocabulary(tmp_path / "run" / "tokenizer.json", len(TOKENS), special)
    assert vocabulary.encode("a b") == [4, 5]


def test_numbers_that_are_not_said_are_ctranslate2s(xformc: CommandLine, tmp_path: Path) -> None:
    """Also where the other side says them: eight heads, ReLU, scaled embeddings, and norms before."""
    found = variables()
    for side in ("encoder", "decoder"):
        for name in ("num_heads", "activation", "scale_embeddings"):
            del found[f"{side}/{name}"]
    done(xformc, "import", write_model(tmp_path / "model", found), "-o", tmp_path / "run")
    spec, text = load_spec(tmp_path / "run" / "spec.yaml"), (tmp_path / "run" / "spec.yaml").read_text()
    assert {**spec.sizes}["heads"] == 8 and "silu" not in text and "Token embeddings plus" not in text
    del found["decoder/pre_norm"]
    message = mistake(xformc("import", write_model(tmp_path / "model", found), "-o", tmp_path / "other"))
    assert "decoder.pre_norm: 1 differs from encoder.pre_norm" in message


LIMITS: Any = {"max_length_factor": 0, "max_length_offset": 12, "min_length": 0}


@pytest.mark.processor
def test_an_import_translates_as_ctranslate2(xformc: CommandLine, tmp_path: Path) -> None:
    """After an export in int8, with the weights in float32 there."""
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    write_fairseq(tmp_path / "model")
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "first")
    done(xformc, "export", "ct2", tmp_path / "first", "-o", tmp_path / "peer", "--precision", "int8")
    done(xformc, "import", tmp_path / "peer", "-o", tmp_path / "run")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    engine = load(tmp_path / "engine", threads=1)
    peer = ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1, compute_type="float32")
    tokens = json.loads(next((tmp_path / "peer").glob("*vocabulary.json")).read_text())
    written, random = engine.manifest.inputs["target"].special, np.random.default_rng(3)
    for length in range(1, 7):
        words = [tokens[one] for one in random.integers(4, len(tokens), length)]
        for beam in (1, 3):
            (found,) = peer.translate_batch([words], beam_size=beam, max_decoding_length=12, min_decoding_length=0)
            [[ours]] = engine.translate([" ".join(words)], beam_size=beam, **LIMITS)
            assert [tokens[one] for one in ours.tokens if one not in written.end] == found.hypotheses[0]


@pytest.mark.processor
def test_a_vocabulary_map_is_a_shortlist(xformc: CommandLine, tmp_path: Path) -> None:
    """Written by an export, used by CTranslate2, and read again."""
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    write_fairseq(tmp_path / "model")
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "first")
    size, random = (
        load_spec(tmp_path / "first" / "spec.yaml").inputs["source"].vocabulary or 0,
        np.random.default_rng(1),
    )
    lists = Shortlist(np.array([2, 5], np.int32), random.integers(4, size, (size, 3), dtype=np.int32))
    write_shortlist(lists, tmp_path / "first" / "shortlist.safetensors")
    done(xformc, "export", "ct2", tmp_path / "first", "-o", tmp_path / "peer")
    out = done(xformc, "import", tmp_path / "peer", "-o", tmp_path / "run")
    assert "with a shortlist" in out
    again = read_shortlist(tmp_path / "run" / "shortlist.safetensors")
    map_file = tmp_path / "peer" / "vmap.txt"
    map_file.write_text(map_file.read_text() + "low er\tnew\n")  # of several source tokens
    done(xformc, "import", tmp_path / "peer", "-o", tmp_path / "with-phrases")
    assert read_shortlist(tmp_path / "with-phrases" / "shortlist.safetensors").equals(again)
    sources = [random.integers(4, size, length) for length in range(1, 7)]
    for source in sources:
        found, wanted = (one.allowed(source, [0, 2, 3], size) for one in (again, lists))
        assert np.array_equal(found, wanted)
    given = ("--target", "portable", "--shortlist", tmp_path / "run" / "shortlist.safetensors")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", *given)
    engine = load(tmp_path / "engine", threads=1)
    peer = ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1, compute_type="float32")
    tokens = json.loads(next((tmp_path / "peer").glob("*vocabulary.json")).read_text())
    written, changed = engine.manifest.inputs["target"].special, 0
    for source in sources:
        words = [tokens[one] for one in source]
        for beam in (1, 3):
            limits = {"beam_size": beam, "max_decoding_length": 12, "min_decoding_length": 0}
            (found,), (free,) = (peer.translate_batch([words], use_vmap=one, **limits) for one in (True, False))
            [[ours]] = engine.translate([" ".join(words)], beam_size=beam, **LIMITS)
            assert [tokens[one] for one in ours.tokens if one not in written.end] == found.hypotheses[0]
            changed += found.hypotheses[0] != free.hypotheses[0]
    assert changed > 3, "the lists change what is found"


@pytest.mark.parametrize(
    ("line", "message"),
    [("a", "a line without a tab"), ("\xff", "not UTF-8"), ("a\t" + "b " * 5000, "more than 4,096 tokens")],
)
def test_other_vocabulary_maps_are_refused(xformc: CommandLine, tmp_path: Path, line: str, message: str) -> None:
    folder = write_model(tmp_path / "model", variables())
    (folder / "vmap.txt").write_bytes(b"a\tb c\n" + line.encode("latin-1") + b"\n")
    assert message in mistake(xformc("import", folder, "-o", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.processor
@pytest.mark.filterwarnings("ignore")
def test_what_ctranslate2_has_converted_translates_the_same(xformc: CommandLine, tmp_path: Path) -> None:
    """A Marian of transformers, whose decoder begins with the vector 0 there, with its SentencePiece models."""
    converters: Any = pytest.importorskip("ctranslate2.converters")
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    _, theirs = marian(tmp_path / "model")
    theirs.save_pretrained(tmp_path / "model")
    converters.TransformersConverter(str(tmp_path / "model")).convert(str(tmp_path / "peer"))
    for file in ("source.spm", "target.spm"):
        shutil.copy(tmp_path / "model" / file, tmp_path / "peer" / file)
    done(xformc, "import", tmp_path / "peer", "-o", tmp_path / "run")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    engine, peer = load(tmp_path / "engine", threads=1), ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1)
    assert engine.tokenizer is not None
    for text in [*TEXTS[:3], *SENTENCES[:4]]:
        ids = theirs(text).input_ids
        assert engine.tokenizer.encode("source", text) == ids
        words = theirs.convert_ids_to_tokens(ids)
        for beam in (1, 4):
            (found,) = peer.translate_batch([words], beam_size=beam, max_decoding_length=12, min_decoding_length=0)
            [[ours]] = engine.translate([text], beam_size=beam, **LIMITS)
            written = [one for one in ours.tokens if one not in engine.manifest.inputs["target"].special.end]
            assert theirs.convert_ids_to_tokens(written) == found.hypotheses[0]


@pytest.mark.processor
@pytest.mark.filterwarnings("ignore")
def test_opennmt_by_way_of_ctranslate2_translates_the_same(xformc: CommandLine, tmp_path: Path) -> None:
    """A checkpoint of OpenNMT-py, whose sources have no end token, as CTranslate2 has converted it."""
    converters: Any = pytest.importorskip("ctranslate2.converters")
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    path = write_opennmt(tmp_path / "model.pt", **VARIANTS["biased"])
    converters.OpenNMTPyConverter(str(path), unsafe_deserialization=True).convert(str(tmp_path / "peer"))
    peer = ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1, compute_type="float32")
    engines: list[Any] = []
    for name, source in (("first", path), ("second", tmp_path / "peer")):
        done(xformc, "import", source, "-o", tmp_path / name)
        done(xformc, "build", tmp_path / name, "-o", tmp_path / f"{name}.engine", "--target", "portable")
        engines.append(load(tmp_path / f"{name}.engine", threads=1))
    for text in OPENNMT_TEXTS:
        words = [SOURCE[one] for one in text]
        (found,) = peer.translate_batch([words], beam_size=5, max_decoding_length=12, min_decoding_length=0)
        for engine in engines:
            [[ours]] = engine.translate([" ".join(words)], beam_size=5, **LIMITS)
            assert [SOURCE[one] for one in ours.tokens if one != 3] == found.hypotheses[0]
