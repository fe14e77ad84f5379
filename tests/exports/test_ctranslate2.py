"""Models of CTranslate2 find the same translations, and what its classes cannot say is refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, listing, mistake
from safetensors.numpy import load_file
from small_specs import small_text

from tests.exports.test_hugging_face import done, write_run
from tests.imports.fairseq_files import write_fairseq
from xformc.compiler.spec import load_spec
from xformc.compiler.weight_files import load_weights
from xformc.exports.ctranslate2 import find_shape
from xformc.runtime.engine import Engine, load


@pytest.mark.processor
def test_ctranslate2_translates_an_imported_model_the_same(xformc: CommandLine, tmp_path: Path) -> None:
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    write_fairseq(tmp_path / "model")
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable")
    out = done(xformc, "export", "ct2", tmp_path / "run", "-o", tmp_path / "peer")
    assert "a model of CTranslate2, 2,340 parameters" in out
    done(xformc, "export", "ct2", tmp_path / "engine", "-o", tmp_path / "rounded", "--precision", "int8")
    assert ctranslate2.Translator(str(tmp_path / "rounded")).compute_type.startswith("int8")
    engine, peer = load(tmp_path / "engine", threads=1), ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1)
    texts = ["low lower", "new the low", "r", "the the new er"]
    assert engine.tokenizer is not None
    pieces = [engine.tokenizer.pieces("source", engine.tokenizer.encode_open("source", text)) for text in texts]
    found = peer.translate_batch(pieces, beam_size=4, max_decoding_length=12, suppress_sequences=[["<pad>"]])
    ours = engine.translate(texts, beam_size=4, preset="ctranslate2", max_length_factor=0, max_length_offset=12)
    for mine, its in zip(ours, found, strict=True):
        tokens = [one for one in mine[0].tokens if one != 2]
        assert engine.tokenizer.pieces("target", tokens) == its.hypotheses[0]
    assert_prefixes_bias_alike(engine, peer, texts, pieces)
    assert_alternatives_are_the_same(engine, peer, texts, pieces)


@pytest.mark.parametrize("ends", [True, False])
def test_sources_end_as_the_model_says(xformc: CommandLine, tmp_path: Path, ends: bool) -> None:
    """Weights without biases are written, too."""
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    text = "extends: transformer_base\nsizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: 99}\n"
    text += "defaults: {linear: {bias: false}}\n"
    text += f"inputs: {{source: {{tokens: vocabulary, ends: {str(ends).lower()}}}}}\n"
    run = write_run(tmp_path / "run", text)
    done(xformc, "export", "ct2", run, "-o", tmp_path / "peer")
    assert json.loads((tmp_path / "peer" / "config.json").read_text())["add_source_eos"] is ends
    done(xformc, "import", tmp_path / "peer", "-o", tmp_path / "again")
    again = load_file(tmp_path / "again" / "weights.safetensors")
    first = load_file(run / "weights.safetensors")
    for path in ("encoder/0/self_attention/output/weight", "decoder/0/cross_attention/query/weight"):
        np.testing.assert_array_equal(again[path], first[path])
    translator = ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1)
    assert translator.translate_batch([["▁a"]], beam_size=2)[0].hypotheses


@pytest.mark.processor
def test_ctranslate2_weighs_coverage_the_same(xformc: CommandLine, tmp_path: Path) -> None:
    """It takes the first head of its last layer, unless a model says otherwise; with one head, that is their mean.

    Its sum leaves out the step that writes the end token, so texts are compared that end at the length limit.
    """
    ctranslate2: Any = pytest.importorskip("ctranslate2")
    write_fairseq(tmp_path / "model", encoder_attention_heads=1, decoder_attention_heads=1)
    done(xformc, "import", tmp_path / "model", "-o", tmp_path / "run")
    setting = "decode.coverage=decoder/1/cross_attention"
    done(xformc, "build", tmp_path / "run", "-o", tmp_path / "engine", "--target", "portable", "--set", setting)
    done(xformc, "export", "ct2", tmp_path / "run", "-o", tmp_path / "peer")
    engine, peer = load(tmp_path / "engine", threads=1), ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1)
    assert engine.tokenizer is not None
    pieces = [engine.tokenizer.pieces("source", engine.tokenizer.encode_open("source", "the the new er"))]
    sizes: Any = {"beam_size": 4, "num_hypotheses": 4, "min_decoding_length": 0, "max_decoding_length": 12}
    options: Any = {"beam_size": 4, "n_best": 4, "preset": "ctranslate2", "max_length_factor": 0}
    ours: list[dict[tuple[str, ...], float]] = []
    theirs: list[dict[tuple[str, ...], float]] = []
    for penalty in (0.0, 2.0):
        (mine,) = engine.translate(["the the new er"], coverage_penalty=penalty, max_length_offset=12, **options)
        ours.append({tuple(engine.tokenizer.pieces("target", one.tokens)): one.score for one in mine})
        (its,) = peer.translate_batch(pieces, coverage_penalty=penalty, return_scores=True, **sizes)
        theirs.append(dict(zip(map(tuple, its.hypotheses), its.scores, strict=True)))
    whole = [text for text in ours[0] if len(text) == 12 and all(text in found for found in (*ours, *theirs))]
    assert len(whole) > 2, "the test shows little"
    for text in whole:
        assert ours[1][text] - ours[0][text] == pytest.approx(theirs[1][text] - theirs[0][text], abs=1e-4)
        assert ours[1][text] - ours[0][text] < -1


def assert_prefixes_bias_alike(engine: Engine, peer: Any, texts: list[str], pieces: list[list[str]]) -> None:
    """Prefixes that are made likelier give both the same hypotheses and scores, and others than without them."""
    assert engine.tokenizer is not None
    prefixes = [[4, 5, 6], [7], [5, 5], [8, 4]]
    given = [engine.tokenizer.pieces("target", one) for one in prefixes]
    sizes: Any = {"beam_size": 4, "num_hypotheses": 4, "min_decoding_length": 0, "max_decoding_length": 12}
    theirs = peer.translate_batch(pieces, target_prefix=given, prefix_bias_beta=0.5, return_scores=True, **sizes)
    options: Any = {"beam_size": 4, "n_best": 4, "preset": "ctranslate2", "min_length": 0}
    options |= {"max_length_factor": 0, "max_length_offset": 12}
    ours = engine.translate(texts, prefixes=prefixes, prefix_bias=[0.5] * 4, **options)
    assert ours != engine.translate(texts, **options)
    for mine, its in zip(ours, theirs, strict=True):
        tokens = [[token for token in one.tokens if token != 2] for one in mine]
        assert [engine.tokenizer.pieces("target", one) for one in tokens] == its.hypotheses
        assert [one.score for one in mine] == pytest.approx(its.scores, abs=1e-5)


def assert_alternatives_are_the_same(engine: Engine, peer: Any, texts: list[str], pieces: list[list[str]]) -> None:
    assert engine.tokenizer is not None
    prefixes = [[4, 5, 6], [], [5, 5], [8, 4]]
    given = [engine.tokenizer.pieces("target", one) for one in prefixes]
    sizes: Any = {"beam_size": 1, "num_hypotheses": 3, "min_decoding_length": 0, "max_decoding_length": 12}
    theirs = peer.translate_batch(pieces, target_prefix=given, return_alternatives=True, length_penalty=0, **sizes)
    options: Any = {"beam_size": 1, "preset": "ctranslate2", "length_penalty": 0.0, "min_length": 0}
    options |= {"max_length_factor": 0, "max_length_offset": 12}
    for mine, its in zip(engine.translate(texts, prefixes=prefixes, alternatives=3, **options), theirs, strict=True):
        tokens = [[token for token in one.tokens if token != 2] for one in mine]
        assert [engine.tokenizer.pieces("target", one) for one in tokens] == its.hypotheses


def test_the_choices_of_ctranslate2_are_found(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", small_text("transformer_base"))
    spec = load_spec(run / "spec.yaml")
    shape = find_shape(spec, load_weights(run, spec.graph()), "here", positions=8)
    layers = int(spec.sizes["layers"])
    assert (shape.layers, shape.pre_norm, shape.scaled, shape.activation) == ((layers, layers), False, True, "relu")
    assert shape.positions[0].shape == (8, spec.sizes["d_model"])


def test_what_ctranslate2_cannot_say_is_named(xformc: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    run = write_run(tmp_path / "run", small_text("regression"))
    base = write_run(
        tmp_path / "base", small_text("transformer_base").replace("positions: sinusoidal", "positions: none")
    )
    before = listing(tmp_path)
    assert "written of Transformers for translation" in mistake(xformc("export", "ct2", run, "-o", tmp_path / "out"))
    assert "adds no positions that CTranslate2 adds" in mistake(xformc("export", "ct2", base, "-o", tmp_path / "out"))
    assert "--family: not an option of ct2" in mistake(
        xformc("export", "ct2", base, "-o", tmp_path / "out", "--family", "bart")
    )
    assert listing(tmp_path) == before
