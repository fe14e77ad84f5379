"""Specs that declare their results, from data to the score of their engines, on data that is learned in seconds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xformc.compiler.certify import verify_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.tasks import TASKS
from xformc.runtime import load
from xformc.trainer.build_run import BuildOptions, build_run
from xformc.trainer.scores import rounding_cost
from xformc.trainer.scores.evaluation import SCORERS, ScoreOptions, evaluate_engine
from xformc.trainer.train import TrainResult, train

pytestmark = pytest.mark.processor

RECIPE = """
train:
  label_smoothing: 0.0
  schedule: {peak: 0.02, warmup_steps: 20, decay: linear}
  batch_tokens: 400
  steps: 300
  checkpoint: {every_steps: 150, every_minutes: null}
  average: 1
  tokenizer: {kind: word}
"""
HEADS = (
    """\
sizes: {d_model: 16, vocabulary: 40, tags: 2, topics: 3}
inputs: {text: {tokens: vocabulary}}
results:
  tags: {labels: tagged}
  topics: {labels: topical, several: true}
  length: {numbers: counted}
model:
  states: {from: text, do: [embedding: d_model, {linear: d_model}, relu]}
  whole: {from: states, do: [max]}
  tagged: {from: states, do: [linear: tags]}
  topical: {from: whole, do: [linear: topics]}
  counted: {from: states, do: [linear: {to: one}, sum]}
"""
    + RECIPE
    + "  losses: {length: {weight: 0.1, error: absolute}}\n"
)
CAPTIONS = (
    """\
sizes: {d_model: 32, height: 3, width: 3, vocabulary: 12, one: 1}
inputs: {image: {values: [height, width]}, caption: {tokens: vocabulary}}
results:
  caption: {text: logits}
  brightness: {numbers: bright}
model:
  sight: {from: image, do: [linear: {over: [height, width], to: d_model}, tanh]}
  bright: {from: sight, do: [linear: one]}
  states: {from: caption, do: [embedding: d_model, {gru_from: {start: sight}}]}
  logits: {from: states, do: [linear: vocabulary]}
decode: {beam_size: 2, max_length: {offset: 6}}
"""
    + RECIPE
)
PAIRS = (
    """\
sizes: {d_model: 16, vocabulary: 40}
inputs: {text: {tokens: vocabulary}}
results:
  meaning: {vectors: pooled, normalize: true}
model:
  pooled: {from: text, do: [embedding: d_model, mean, linear: d_model]}
"""
    + RECIPE
)
WORDS = ["red", "green", "blue", "dog", "cat", "hen", "runs", "sleeps"]


def heads(folder: Path) -> None:
    random = np.random.default_rng(0)
    for name, count in (("train", 200), ("valid", 30)):
        rows: list[str] = []
        for _ in range(count):
            words = [WORDS[int(one)] for one in random.integers(0, 8, random.integers(1, 6))]
            tags = " ".join("colour" if word in WORDS[:3] else "other" for word in words)
            topics = [
                kind
                for kind, group in zip(("c", "a", "v"), (WORDS[:3], WORDS[3:6], WORDS[6:]), strict=True)
                if {*words} & {*group}
            ]
            rows.append(f"{' '.join(words)}\t{tags}\t{' '.join(topics)}\t{len(words)}\n")
        (folder / f"{name}.tsv").write_text("".join(rows))


def captions(folder: Path) -> None:
    random = np.random.default_rng(0)
    for name, count in (("train", 300), ("valid", 40)):
        places = random.integers(0, 9, count)
        image = np.zeros((count, 9), np.float32)
        image[np.arange(count), places] = 1.0
        rows = [
            f"{('top', 'middle', 'bottom')[place // 3]} {('left', 'centre', 'right')[place % 3]}" for place in places
        ]
        bright = (places / 8.0).astype(np.float32)[:, None]
        np.savez(folder / f"{name}.npz", image=image.reshape(-1, 3, 3), caption=np.array(rows), brightness=bright)


def pairs(folder: Path) -> None:
    random = np.random.default_rng(0)
    for name, count in (("train", 300), ("valid", 24)):
        rows = [random.permutation(8)[:3] for _ in range(count)]
        lines = [f"{' '.join(WORDS[i] for i in row)}\t{' '.join(WORDS[i] for i in row[::-1])}\n" for row in rows]
        (folder / f"{name}.tsv").write_text("".join(dict.fromkeys(lines)))


@pytest.fixture
def trained(tmp_path: Path) -> Callable[[str, Callable[[Path], None]], tuple[Path, TrainResult]]:
    def make(text: str, data: Callable[[Path], None]) -> tuple[Path, TrainResult]:
        (tmp_path / "data").mkdir()
        data(tmp_path / "data")
        (tmp_path / "model.yaml").write_text(text)
        result = train(load_spec(tmp_path / "model.yaml"), tmp_path / "data", tmp_path / "run")
        build_run(load_spec(result.run / "spec.yaml"), result.run, tmp_path / "engine", BuildOptions("cpu"))
        return tmp_path / "engine", result

    return make


def test_several_heads_learn_and_are_predicted_together(trained, tmp_path: Path) -> None:
    engine, result = trained(HEADS.replace("topics: 3}", "topics: 3, one: 1}"), heads)
    scores = {key: measure.value for key, measure in result.scores.items()}
    assert scores["tags_accuracy"] > 0.98 and scores["topics_micro_f1"] > 0.95 and scores["length_mae"] < 0.5
    with load(engine, threads=1) as loaded:
        (found,) = loaded.predict(["red dog runs"])
        assert found.results["tags"].labels == ("colour", "other", "other")
        assert found.results["topics"].labels == ("a", "c", "v")
        assert found.results["length"] == pytest.approx(3, abs=0.6)
        assert "'length': array" in repr(found)
        assert loaded.manifest.results["topics"].labels == ("a", "c", "v")
    assert verify_engine(engine).passed
    again = evaluate_engine(engine, [tmp_path / "data" / "valid.tsv"], ScoreOptions(), lambda found, _: found)
    assert {one.key: one.value for one in again.measures} == pytest.approx(scores)


def test_what_quantization_costs_is_a_stage_for_each_score(
    trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result = trained(HEADS.replace("topics: 3}", "topics: 3, one: 1}"), heads)
    spec, data = load_spec(result.run / "spec.yaml"), [tmp_path / "data" / "valid.tsv"]
    certificate = build_run(spec, result.run, tmp_path / "small", BuildOptions("portable", "int8", compare=data))
    found = certificate.stages[-3:]
    assert [stage.name for stage in found] == ["tags_accuracy", "topics_micro_f1", "length_pearson"]
    tags, length = (result.scores[name].shown() for name in ("tags_accuracy", "length_pearson"))
    assert found[0].what.startswith(f"tags accuracy lost to quantization: {tags} in float32, ")
    assert found[2].what.startswith(f"length Pearson r lost to quantization: {length} in float32, ")
    assert found[0].bound == 0.003 and found[0].detail.endswith(" of 30 outputs are the same)")
    monkeypatch.setitem(rounding_cost.BOUNDS, "accuracy", rounding_cost.Bound(-0.5))
    refused = rf"quantization costs \d+\.\d\d% tags accuracy, from {tags} to .*, more than -50\.00%; the engine"
    with pytest.raises(UserError, match=refused):
        build_run(spec, result.run, tmp_path / "none", BuildOptions("portable", "int8", compare=data))
    assert not (tmp_path / "none").exists()


def test_an_image_is_captioned_with_a_second_head(trained, tmp_path: Path) -> None:
    engine, result = trained(CAPTIONS, captions)
    assert result.scores["wer"].value < 0.05 and result.scores["brightness_mae"].value < 0.2
    image = np.zeros((2, 3, 3), np.float32)
    image[0, 0, 2] = image[1, 2, 1] = 1.0
    with load(engine, threads=1) as loaded:
        found = loaded.transcribe({"image": image}, beam_size=3, n_best=2)
        alone = loaded.transcribe({"image": image[1:]})
    assert [row[0].text for row in found] == ["top right", "bottom centre"]
    assert [len(row) for row in found] == [2, 2]
    assert alone[0][0].text == "bottom centre"
    np.testing.assert_array_equal(found[1][0].results["brightness"], alone[0][0].results["brightness"])
    names = [stage.name for stage in verify_engine(engine).stages]
    searched = ["forward", "step", "scores", "greedy", "beam", "batch", "controls", "edits", "defaults"]
    assert names == [*searched, "results", "models"]


def test_texts_of_pairs_are_near_each_other(trained, tmp_path: Path) -> None:
    engine, result = trained(PAIRS, pairs)
    assert result.scores["meaning_mrr"].value > 0.8
    with load(engine, threads=1) as loaded:
        first, second, third = (one.results["meaning"] for one in loaded.predict(["red dog", "dog red", "hen sleeps"]))
    assert np.linalg.norm(first) == pytest.approx(1, abs=1e-5)
    assert first @ second > 0.9 > first @ third


ENCODER = """\
  states: {from: text, do: {words: {embedding: d_model}, after: gru, both: {gru: {reverse: true}}, normal: layer_norm}}
"""
MASKED = (
    """\
sizes: {d_model: 32, vocabulary: 20}
inputs: {text: {tokens: vocabulary}}
results: {text: {labels: logits, each: token}}
model:
"""
    + ENCODER
    + "  logits: {from: states, do: [linear: vocabulary]}\n"
    + RECIPE
    + "  objective: {masked: {copies: 4}}\n"
)
TAGGER = (
    """\
task: tagging
sizes: {d_model: 32, vocabulary: 20, labels: 2}
inputs: {text: {tokens: vocabulary}}
model:
"""
    + ENCODER
    + "  tagged: {from: states, do: [linear: labels]}\n"
    + RECIPE.replace("steps: 300", "steps: 10").replace("every_steps: 150", "every_steps: 10")
)
SPANS = (
    """\
extends: t5
sizes: {layers: 1, d_model: 32, d_ff: 64, heads: 2, d_k: 16, vocabulary: 30, dropout: 0.0}
results: {target: {text: logits}}
decode: {beam_size: 1, max_length: {factor: 1.0, offset: 8}}
"""
    + RECIPE
    + "  objective: {spans: {copies: 4, sentinels: 3}}\n"
)


def plain(folder: Path) -> None:
    """Sentences in which the word after a colour is an animal, and the one after that a verb."""
    random = np.random.default_rng(0)
    for name, count in (("train", 200), ("valid", 20)):
        rows = [
            [WORDS[low + int(random.integers(0, size))] for low, size in ((0, 3), (3, 3), (6, 2))] for _ in range(count)
        ]
        (folder / f"{name}.txt").write_text("".join(f"{' '.join(row)}\n" for row in rows))


def test_a_masked_language_model_learns_and_is_tuned_to_tag(trained, tmp_path: Path) -> None:
    engine, result = trained(MASKED, plain)
    assert (result.scores["text_accuracy"].value or 0) > 0.25  # one of two or three words is right
    with load(engine, threads=1) as loaded:
        assert "<mask>" in (loaded.manifest.results["text"].labels or ())
        (found,) = loaded.predict(["red<mask> runs"])
        best = found.results["text"].labels[1]
        assert best.strip("\u2581") in WORDS[3:6]
    data = tmp_path / "tags"
    data.mkdir()
    for name in ("train", "valid"):
        lines = (tmp_path / "data" / f"{name}.txt").read_text().splitlines()
        (data / f"{name}.tsv").write_text("".join(f"{line}\tC O O\n" for line in lines))
    (tmp_path / "tagger.yaml").write_text(TAGGER)
    tuned = train(load_spec(tmp_path / "tagger.yaml"), data, tmp_path / "tuned", start=result.run)
    assert (tuned.scores["accuracy"].value or 0) > 0.9
    assert (tmp_path / "tuned" / "tokenizer.model").read_bytes() == (result.run / "tokenizer.model").read_bytes()
    again = train(load_spec(tmp_path / "tagger.yaml"), data, tmp_path / "tuned", start=result.run, resume=True)
    assert again.state == tuned.state


def test_span_corruption_learns(trained) -> None:
    _, result = trained(SPANS, plain)
    assert result.scores["wer"].value < 0.8


def test_engines_of_every_task_are_scored() -> None:
    assert SCORERS.keys() == TASKS.keys()
