"""Scores of given texts, and of each of their tokens, by engines of language models."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from tests.small_specs import small
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.certify import verify_engine
from xformc.compiler.certify.certify import engine_parameters
from xformc.compiler.certify.reference_sampling import log_softmax
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.manifest import SampleOptions
from xformc.format.targets import Target
from xformc.format.tokens import BEGIN, END
from xformc.runtime import load
from xformc.runtime.generation.generate import Prompt, sample

SPEC = """\
extends: gpt
sizes: {layers: 1, d_model: 16, heads: 2, d_ff: 24, vocabulary: 80}
"""
PROMPTS = [[], [7], [9, 4, 30, 31, 12, 40], [7, 8]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine of target portable with random weights and a tokenizer."""
    path = tmp_path_factory.mktemp("language")
    size = tiny_engine.train_tokenizer(path / "tokenizer.model")
    (path / "spec.yaml").write_text(SPEC.replace("80", str(size)))
    tokenizers = {"text": path / "tokenizer.model"}
    build_engine(load_spec(path / "spec.yaml"), None, tokenizers, "portable", path / "engine")
    return path / "engine"


@pytest.mark.parametrize("target", ["portable", "native"])
def test_the_score_of_a_continuation_is_the_one_that_it_was_sampled_with(tmp_path: Path, target: Target) -> None:
    """To the last bit with native, whatever else is in the batch."""
    if target == "native":
        kernel_library()
    build_engine(small("gpt"), None, None, target, tmp_path / "engine")
    with load(tmp_path / "engine", threads=1) as engine:
        options = SampleOptions(temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=9)
        found = sample(engine.session, [Prompt(ids, 5 + row) for row, ids in enumerate(PROMPTS)], options)
        texts = [found.tokens[row, :length].tolist() for row, length in enumerate(found.lengths)]
        scored = engine.score(PROMPTS, texts)
        assert [list(one.tokens) for one in scored] == texts
        for one, score, text, prompt in zip(scored, found.scores, texts, PROMPTS, strict=True):
            assert len(one.token_scores) == len(text)
            assert one.score == score if target == "native" else one.score == pytest.approx(float(score), abs=1e-4)
            assert engine.score([prompt], [text])[0].score == one.score or target != "native"


def test_texts_read_in_parts_have_the_scores_of_the_training_form(folder: Path) -> None:
    """A batch of many rows is read in parts of 4 tokens."""
    random = np.random.default_rng(0)
    graph = compile_engine(load_spec(folder / "spec.yaml")).graph
    module = TorchModule(graph).eval()
    module.load_arrays(engine_parameters(graph, folder / "model.onnx"))
    with load(folder, threads=1) as engine:
        pieces = engine.manifest.inputs["text"].pieces
        texts = [random.integers(4, pieces, 1 + row % 11).tolist() for row in range(140)]
        scored = engine.score(texts)
    for text, one in zip(texts, scored, strict=True):
        with torch.inference_mode():
            logits = module(torch.tensor([[BEGIN, *text[:-1]]]))[0].numpy()
        expected = [log_softmax(row)[token] for row, token in zip(logits, text, strict=True)]
        np.testing.assert_allclose(one.token_scores, expected, atol=1e-4)
        assert one.score == pytest.approx(sum(expected), abs=1e-4)


def test_texts_are_scored_whole_or_after_a_prompt(folder: Path) -> None:
    with load(folder, threads=1) as engine:
        (whole,), tokenizer = engine.score(["two dogs play"]), engine.tokenizer
        assert tokenizer is not None and whole.tokens == tuple(tokenizer.encode("text", "two dogs play"))
        assert whole.text == "two dogs play" and whole.tokens[-1] == END
        (rest,) = engine.score(["two dogs"], [" play"])
        assert rest.text == " play" and rest.tokens == whole.tokens[-len(rest.tokens) :]
        np.testing.assert_allclose(rest.token_scores, whole.token_scores[-len(rest.tokens) :], atol=1e-5)
        (nothing,) = engine.score(["two dogs"], [[]])
        assert nothing.score == 0.0 and nothing.token_scores == ()
        texts = ["two dogs play", "hello world", ""] * 3
        stream = engine.score_stream(iter(texts), window=2)
        assert [one.score for one in stream] == pytest.approx([one.score for one in engine.score(texts)])
        found = engine.generate(["two", ""], max_new_tokens=4, token_scores=True)
        for one, other in zip(
            found,
            engine.score([[*tokenizer.encode("text", "two")][:-1], []], [one.tokens for one in found]),
            strict=True,
        ):
            np.testing.assert_allclose(one.token_scores, other.token_scores, atol=1e-6)
            assert one.score == pytest.approx(sum(one.token_scores), abs=1e-5)


def test_wrong_texts_are_refused(folder: Path, tmp_path: Path) -> None:
    with load(folder, threads=1) as engine:
        with pytest.raises(UserError, match=r"line 2: the ids of a text must be from 0 to"):
            engine.score([[5], [5000]])
        with pytest.raises(UserError, match="line 2: there is no target for this text"):
            engine.score(["a", "b"], ["c"])
        with pytest.raises(UserError, match=r"length_penalty: no effect on .*, which samples"):
            engine.score(["a"], length_penalty=0.5)
        with pytest.raises(UserError, match="a list of texts is needed"):
            engine.score("hello")
        (cut,) = engine.score([[5] * 1025 + [7]], truncate=True)
        assert cut.tokens == (*[5] * 1023, 7)
        with pytest.raises(UserError, match="line 1: 1,025 tokens; this engine takes at most 1,024"):
            engine.score([[5] * 1025])
    with pytest.raises(UserError, match="the engine is closed"):
        engine.score(["a"])
    older = shutil.copytree(folder, tmp_path / "older")
    (older / "scores.onnx").unlink()
    tiny_engine.write_manifest(older, json.loads((older / "engine.json").read_text()))
    assert verify_engine(older).passed
    with load(older, threads=1) as engine:
        with pytest.raises(UserError, match="cannot score given texts"):
            engine.score(["a"])
        with pytest.raises(UserError, match="has no scores of tokens"):
            engine.generate(["a"], token_scores=True)


def test_the_command_line_scores_texts(folder: Path, tmp_path: Path, xformc: CommandLine) -> None:
    (tmp_path / "in").write_text("two dogs\n\nhello world\n")
    (tmp_path / "more").write_text(" play\nhello\nhello\n")
    plain = xformc("score", folder, tmp_path / "in", "--token-scores", "--threads", "1").out.splitlines()
    objects = list(
        map(json.loads, xformc("score", folder, tmp_path / "in", "--token-scores", "--json").out.splitlines())
    )
    with load(folder, threads=1) as engine:
        scored = engine.score(["two dogs", "", "hello world"])
        after = engine.score(["two dogs", "", "hello world"], [" play", "hello", "hello"])
    for line, fields, one in zip(plain, objects, scored, strict=True):
        total, each = line.split("\t")
        assert total == f"{one.score:.4f}" and each == " ".join(f"{score:.4f}" for score in one.token_scores)
        assert fields["score"] == fields["log_probability"] == pytest.approx(one.score, abs=1e-5)
        assert fields["tokens"] == len(fields["pieces"]) == len(fields["token_scores"]) == len(one.tokens)
        assert fields["pieces"][-1] == "</s>"
    found = xformc("score", folder, tmp_path / "in", tmp_path / "more").out.splitlines()
    assert found == [f"{one.score:.4f}" for one in after]
    assert mistake(xformc("score", folder, tmp_path / "in", "--beam-size", "2")).startswith("--beam-size: no effect")
    (tmp_path / "json").write_text('"two\\ndogs"\n{"text": "hello"}\n')
    with load(folder, threads=1) as engine:
        broken = engine.score(["two\ndogs", "hello"])
    found = xformc("score", folder, tmp_path / "json", "--json-input").out.splitlines()
    assert found == [f"{one.score:.4f}" for one in broken]
    refused = mistake(xformc("score", folder, tmp_path / "in", "--json-input"))
    assert refused.startswith("line 1: not JSON") and 'write "a text" or {"text": "a text"}' in refused
    generated = xformc("generate", folder, "-i", tmp_path / "in", "--token-scores", "--json", "--max-new-tokens", "3")
    for line in map(json.loads, generated.out.splitlines()):
        assert sum(line["token_scores"]) == pytest.approx(line["score"], abs=1e-4)
    refused = xformc("generate", folder, "-i", tmp_path / "in", "--token-scores")
    assert mistake(refused).startswith("--token-scores needs --json")
