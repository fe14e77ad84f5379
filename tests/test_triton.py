"""`xformc export` for Triton: the repository matches its configuration, and serves the runtime's results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import CommandLine, listing, mistake
from task_specs import PAIRS, SPECS
from test_cli_compile import SPEC
from test_cli_predict import write_run
from triton_server import Server

from xformc.errors import UserError
from xformc.format.plans import Plan
from xformc.runtime import Engine, load, read_manifest
from xformc.runtime.rows import pad
from xformc.runtime.searching.search import check_source
from xformc.triton.repository import choose_backend

TEXTS = ["hello world", "two dogs play in the snow", "", "twenty-one"]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the engines of this module's tests, each built once."""
    return tmp_path_factory.mktemp("engines")


def built(xformc: CommandLine, engines: Path, name: str, *options: str) -> Path:
    """The engine of the spec, with a tokenizer and labels; without options, of target portable."""
    options = options or ("--target", "portable")
    text = {"translation": SPEC, "pairs": PAIRS, **SPECS}[name]
    labels = {"pairs": "no perhaps yes", "tagging": "A B C D E", "images": "a b c d", "frames": "x y z"}.get(name)
    folder = engines / "-".join((name, *options))
    if not folder.exists():
        run = write_run(engines / f"{folder.name}-run", text, labels, tokenizer=name not in ("images", "frames"))
        result = xformc("build", run / "spec.yaml", "--weights", run, "--out", folder, *options)
        assert result.code == 0, result.err
    return folder


def encode(engine: Engine, name: str, text: str) -> list[int]:
    assert engine.tokenizer is not None
    return engine.tokenizer.encode(name, text)


def strings(*texts: str) -> np.ndarray:
    return np.array([[text.encode()] for text in texts], np.object_)


@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_a_translation_is_served_from_ids_and_from_text(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    engine = built(xformc, engines, "translation", "--target", target)
    options = ["--option", "beam_size=3", "--option", "n_best=2", "--option", "max_length_offset=7"]
    result = xformc("export", "triton", engine, "--output", tmp_path, "--name", "small", *options)
    assert result.out.splitlines() == [str(tmp_path / "small"), str(tmp_path / "small_text")], result.err
    server, loaded = Server(tmp_path, monkeypatch), load(engine, threads=1)
    assert server.models["small"].config["backend"] == ["onnxruntime"]
    ids = pad([encode(loaded, "source", text) for text in TEXTS if text])
    first, second = server.outputs("small", {"source": ids[:1]}, {"source": ids[1:]})
    expected = loaded.search(check_source(ids, 80), beam_size=3, n_best=2, max_length_offset=7)
    np.testing.assert_array_equal(np.concatenate([first["tokens"], second["tokens"]]), expected.tokens)
    np.testing.assert_array_equal(np.concatenate([first["scores"], second["scores"]]), expected.scores)
    wanted = loaded.translate(TEXTS, beam_size=3, n_best=2, max_length_offset=7)
    one, rest = server.outputs("small_text", {"text": strings(TEXTS[0])}, {"text": strings(*TEXTS[1:])})
    found = [[text.decode() for text in row] for row in [*one["translation"], *rest["translation"]]]
    texts = [[one.text for one in row] for row in wanted]
    assert found == [row if len(row) == 2 else [*row, ""] for row in texts]


def test_a_search_in_fixed_shapes_gives_the_best_alone(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, plain = built(xformc, engines, "translation", "--target", "cuda"), built(xformc, engines, "translation")
    options = ["--option", "n_best=2", "--option", "max_length_offset=4", "--longest", "20"]
    assert xformc("export", "triton", engine, "--output", tmp_path, "--name", "small", *options).code == 0
    server, loaded = Server(tmp_path, monkeypatch), load(plain, threads=1)
    assert server.models["small"].config["instance_group"][0]["kind"] == ["KIND_GPU"]
    ids = pad([encode(loaded, "source", text) for text in TEXTS if text])
    (found,) = server.outputs("small", {"source": ids})
    expected = loaded.search(ids, n_best=2, max_length_offset=4)
    assert found["tokens"].shape == (3, 2, 24)
    np.testing.assert_array_equal(found["tokens"][:, :, : expected.tokens.shape[2]], expected.tokens)
    np.testing.assert_array_equal(found["lengths"], expected.lengths)
    np.testing.assert_allclose(found["scores"], expected.scores, rtol=1e-5)
    wanted = loaded.translate(TEXTS, n_best=2, max_length_offset=4)
    (texts,) = server.outputs("small_text", {"text": strings(*TEXTS)})
    assert [row[0].decode() for row in texts["translation"]] == [row[0].text for row in wanted]


CHOSEN: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {"no_repeat_ngram_size": 2},
    {"suppress_tokens": [5, 6]},
    {"presence_penalty": 0.5},
    {"frequency_penalty": 0.25},
    {"min_length": 3},
    {"beam_groups": 2, "diversity_penalty": 0.5},
]


@pytest.mark.parametrize("target", ["portable", "cpu"])
def test_every_option_of_a_search_may_be_chosen(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Some of them lead to nested conditions that ONNX Runtime cannot inline if they are constants."""
    engine = built(xformc, engines, "translation", "--target", target)
    loaded = load(engine, threads=1)
    ids = pad([encode(loaded, "source", text) for text in TEXTS if text])
    for index, chosen in enumerate(CHOSEN):
        texts = {name: ",".join(map(str, one)) if isinstance(one, list) else one for name, one in chosen.items()}
        options = [word for name, text in texts.items() for word in ("--option", f"{name}={text}")]
        out = tmp_path / str(index)
        assert xformc("export", "triton", engine, "--output", out, "--name", "small", *options).code == 0
        (found,) = Server(out, monkeypatch).outputs("small", {"source": ids})
        expected = loaded.search(ids, **chosen)
        np.testing.assert_array_equal(found["tokens"], expected.tokens)
        np.testing.assert_array_equal(found["scores"], expected.scores)


def test_the_runtime_serves_sources_of_different_lengths_together(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = built(xformc, engines, "translation")
    assert xformc("export", "triton", engine, "--output", tmp_path, "--name", "small", "--runtime").code == 0
    server, loaded = Server(tmp_path, monkeypatch), load(engine, threads=1)
    assert server.models["small"].config["backend"] == ["python"]
    rows = [pad([encode(loaded, "source", text)]) for text in TEXTS if text]
    wrong, empty = np.array([[0, 5]]), np.zeros((1, 0), np.int64)
    *found, error, nothing = server.infer("small", *({"source": row} for row in (*rows, wrong, empty)))
    assert isinstance(nothing, str) and "each row of source ids must be one or more tokens" in nothing
    for row, one in zip(rows, found, strict=True):
        assert not isinstance(one, str), one
        expected = loaded.search(row)
        np.testing.assert_array_equal(one["tokens"][:, :, : expected.tokens.shape[2]], expected.tokens)
    assert isinstance(error, str) and "each row of source ids must be one or more tokens" in error
    (text,) = server.outputs("small_text", {"text": strings("hello world")})
    assert text["translation"][0][0].decode() == loaded.translate(["hello world"])[0][0].text


def test_the_runtime_drives_searches_in_fixed_shapes(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, plain = built(xformc, engines, "translation", "--target", "cuda"), built(xformc, engines, "translation")
    assert xformc("export", "triton", engine, "--output", tmp_path, "--name", "small", "--runtime").code == 0
    server, expected = Server(tmp_path, monkeypatch), load(plain, threads=1).translate(TEXTS)
    assert server.models["small"].config["instance_group"][0]["kind"] == ["KIND_GPU"]
    (found,) = server.outputs("small_text", {"text": strings(*TEXTS)})
    assert [row[0].decode() for row in found["translation"]] == [row[0].text for row in expected]


@pytest.mark.parametrize(("target", "options"), [("portable", []), ("portable", ["--runtime"]), ("cuda", [])])
def test_a_language_model_is_served_with_seeds(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, options: list[str]
) -> None:
    engine, plain = (
        built(xformc, engines, "language_model", "--target", target),
        built(xformc, engines, "language_model"),
    )
    set_ = ["--option", "temperature=1.5", "--option", "max_new_tokens=6"]
    assert xformc("export", "triton", engine, "--output", tmp_path, "--name", "lm", *set_, *options).code == 0
    server, loaded = Server(tmp_path, monkeypatch), load(plain, threads=1)
    expected = loaded.generate(["hello", "two dogs"], seed=3, temperature=1.5, max_new_tokens=6)
    prompts = pad([encode(loaded, "text", text)[:-1] for text in ("hello", "two dogs")])
    (ids,) = server.outputs("lm", {"prompt": prompts, "seed": np.array([[3], [4]])})
    for row, one in enumerate(expected):
        assert tuple(ids["tokens"][row, : ids["lengths"][row, 0]]) == one.tokens
    (text,) = server.outputs("lm_text", {"text": strings("hello", "two dogs"), "seed": np.array([[3], [4]])})
    assert [row[0].decode() for row in text["continuation"]] == [one.text for one in expected]
    np.testing.assert_allclose(text["score"][:, 0], [one.score for one in expected], rtol=1e-5)
    assert server.outputs("lm_text", {"text": strings("hello")})
    if server.models["lm"].config["backend"] == ["python"]:
        wrong = {"tokens, then padding": [7, 0, 8], "ids of a prompt must be from 0": [-5, 8]}
        seeds = np.array([[3]])
        errors = server.infer("lm", *({"prompt": np.array([row]), "seed": seeds} for row in wrong.values()))
        assert all(isinstance(one, str) and part in one for part, one in zip(wrong, errors, strict=True))


@pytest.mark.parametrize("target", ["portable", "cuda"])
def test_labels_of_texts_are_served(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    pairs, tagger = (built(xformc, engines, name, "--target", target) for name in ("pairs", "tagging"))
    for engine, name in ((pairs, "pairs"), (tagger, "tagger")):
        assert xformc("export", "triton", engine, "--output", tmp_path, "--name", name).code == 0
    server = Server(tmp_path, monkeypatch)
    premise, claim = strings("hello world", "twenty-one"), strings("two dogs", "words")
    (found,) = server.outputs("pairs_text", {"premise": premise, "claim": claim})
    plain = load(built(xformc, engines, "pairs"), threads=1)
    expected = plain.predict([("hello world", "two dogs"), ("twenty-one", "words")])
    assert [row[0].decode() for row in found["label"]] == [one.label for one in expected]
    np.testing.assert_allclose(found["probability"][:, 0], [one.probability for one in expected], rtol=1e-5)
    (found,) = server.outputs("tagger_text", {"words": strings("hello world two", "")})
    plain = load(built(xformc, engines, "tagging"), threads=1)
    (labels, _) = plain.predict(["hello world two", ""])
    assert [row[0].decode() for row in found["labels"]] == [" ".join(labels.labels), ""]


@pytest.mark.parametrize("name", ["images", "frames"])
def test_labels_of_arrays_are_served(
    xformc: CommandLine, engines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    engine = built(xformc, engines, name)
    result = xformc("export", "triton", engine, "--output", tmp_path, "--name", name)
    assert result.out.splitlines() == [str(tmp_path / name)], result.err
    random = np.random.default_rng(0)
    feeds = {
        "images": {"image": random.standard_normal((2, 3, 2, 3), np.float32)},
        "frames": {"frames": random.standard_normal((2, 5, 6), np.float32), "frames_mask": np.ones((2, 5), np.bool_)},
    }
    (found,) = Server(tmp_path, monkeypatch).outputs(name, feeds[name])
    arrays = {key: array for key, array in feeds[name].items() if not key.endswith("_mask")}
    lengths = {"frames_lengths": np.array([5, 5])} if name == "frames" else {}
    expected = load(engine, threads=1).predict({**arrays, **lengths})
    probabilities = found["probabilities"].reshape(2, -1, found["probabilities"].shape[-1])
    np.testing.assert_allclose(probabilities, [one.probabilities for one in expected], rtol=1e-5)


def test_backends_are_those_that_can_run_the_engine(xformc: CommandLine, engines: Path) -> None:
    manifests = {
        task: read_manifest(built(xformc, engines, name))
        for task, name in (("search", "translation"), ("sampling", "language_model"), ("labels", "images"))
    }
    rows = {
        ("portable", "search"): "onnxruntime", ("portable", "sampling"): "onnxruntime",
        ("portable", "labels"): "onnxruntime", ("cpu", "search"): "onnxruntime", ("native", "search"): "python",
        ("cuda", "search"): "onnxruntime", ("cuda", "sampling"): "python", ("cuda", "labels"): "onnxruntime",
        ("tensorrt", "search"): "python", ("tensorrt", "sampling"): "python", ("tensorrt", "labels"): "onnxruntime",
    }  # fmt: skip
    for (target, task), backend in rows.items():
        assert choose_backend(replace(manifests[task], target=target), runtime=False) == backend, (target, task)
    assert choose_backend(manifests["search"], runtime=True) == "python"
    for builder, backend in (("tensorrt", "tensorrt"), ("tensorrt_rtx", "onnxruntime")):
        plans = {"model.plan": Plan(builder, "1.0", None, None, "float32", {})}
        assert choose_backend(replace(manifests["labels"], target="tensorrt", plans=plans), runtime=False) == backend
    with pytest.raises(UserError, match="served with xformc's runtime or kernels"):
        choose_backend(replace(manifests["labels"], target="native"), runtime=False)


def test_the_options_are_no_inputs_of_the_model(xformc: CommandLine, engines: Path, tmp_path: Path) -> None:
    assert (
        xformc("export", "triton", built(xformc, engines, "translation"), "--output", tmp_path, "--name", "small").code
        == 0
    )
    path = tmp_path / "small" / "1" / "model.onnx"
    onnx.checker.check_model(onnx.load(path))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["source"]


def test_configs_are_of_tritons_own_schema(xformc: CommandLine, engines: Path, tmp_path: Path) -> None:
    schema = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from google.protobuf import text_format

    for name, options in (("translation", []), ("language_model", []), ("translation", ["--runtime"]), ("pairs", [])):
        folder = tmp_path / "-".join((name, *options))
        engine = built(xformc, engines, name)
        assert (
            xformc("export", "triton", engine, "--output", folder, "--name", "one", "--instances", "2", *options).code
            == 0
        )
        for path in folder.glob("*/config.pbtxt"):
            config = text_format.Parse(path.read_text(), schema.ModelConfig())
            assert config.name == path.parent.name
            assert config.max_batch_size == 64 and config.HasField("dynamic_batching")
            assert config.instance_group[0].count == 2
            shapes = [(tensor.dims, tensor.reshape) for tensor in (*config.input, *config.output)]
            assert all(dims and (not reshape.shape or len(reshape.shape)) for dims, reshape in shapes)
    seed = next(
        tensor
        for tensor in text_format.Parse(
            (tmp_path / "language_model" / "one" / "config.pbtxt").read_text(), schema.ModelConfig()
        ).input
        if tensor.name == "seed"
    )
    assert list(seed.dims) == [1] and seed.HasField("reshape") and not seed.reshape.shape


def test_an_export_replaces_an_export_and_nothing_else(xformc: CommandLine, engines: Path, tmp_path: Path) -> None:
    engine = built(xformc, engines, "translation")
    assert xformc("export", "triton", engine, "--output", tmp_path, "--name", "one").code == 0
    before = listing(tmp_path)
    assert xformc("export", "triton", engine, "--output", tmp_path, "--name", "one").code == 0
    assert listing(tmp_path) == before
    found = mistake(xformc("export", "triton", engine, "--output", tmp_path, "--name", "one_text"))
    assert found.startswith(f"{tmp_path / 'one_text'}: is a model of another export, which takes text\nhint: ")
    (tmp_path / "other_text").mkdir()
    found = mistake(xformc("export", "triton", engine, "--output", tmp_path, "--name", "other"))
    assert found.startswith(f"{tmp_path / 'other_text'}: exists and was not exported by xformc\nhint: ")
    assert listing(tmp_path) == sorted([*before, "other_text"])


def test_wrong_options_are_named(xformc: CommandLine, engines: Path, tmp_path: Path) -> None:
    engine = built(xformc, engines, "translation")

    def export(*options: str) -> str:
        return mistake(xformc("export", "triton", engine, "--output", tmp_path / "models", *options))

    assert export("--option", "beam=4").startswith("--option: no option is called 'beam'\nhint: there are beam_size")
    assert export("--option", "beam_size=x") == "--option beam_size: 'x' is not an integer"
    assert "beam_size must be an integer from 1" in export("--option", "beam_size=0")
    assert "a model's name must be letters" in export("--name", "a/b")
    assert not (tmp_path / "models").exists()
    images = built(xformc, engines, "images")
    refused = mistake(xformc("export", "triton", images, "--output", tmp_path / "models", "--runtime"))
    assert refused.startswith("an engine that predicts labels cannot be served with xformc's runtime")
    assert "classification has no options" in mistake(
        xformc("export", "triton", images, "--output", tmp_path / "models", "--option", "beam_size=2")
    )


def test_a_broken_engine_is_not_exported(xformc: CommandLine, own_engine: Path, tmp_path: Path) -> None:
    (own_engine / "model.onnx").write_bytes(b"nothing")
    found = mistake(xformc("export", "triton", own_engine, "--output", tmp_path / "models"))
    assert found.startswith(str(own_engine / "model.onnx")) and not (tmp_path / "models").exists()
    assert json.loads((own_engine / "engine.json").read_text())["name"] == "copy"
