"""Attention maps: the model's weights as a page that works in a browser, and as a figure."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, mistake
from sounds import tone, write_wav
from tiny_engine import train_tokenizer

from tests.small_specs import small
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.explain.attention.attention_maps import AttentionMap, attention_maps
from xformc.compiler.passes.inference import inference
from xformc.compiler.spec import load_spec
from xformc.runtime import load
from xformc.runtime.media.wav import cut

SMALL = "sizes: {layers: 2, d_model: 16, d_ff: 32, heads: 2, vocabulary: 40, dropout: 0.1}"
SOURCE, TARGET = [5, 6, 7, 8, 3], [2, 9, 10, 11]


def write(folder: Path, text: str) -> Path:
    path = folder / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def maps_of(path: Path, *inputs: Sequence[int]) -> list[AttentionMap]:
    graph = load_spec(path).graph()
    arrays = TorchModule(graph, seed=3).arrays()
    return attention_maps(graph, arrays, [torch.tensor([row]) for row in inputs])


def test_maps_are_those_of_every_layer(tmp_path: Path) -> None:
    maps = maps_of(write(tmp_path, f"extends: transformer_base\n{SMALL}\n"), SOURCE, TARGET)
    assert [(one.group, one.layer, one.rows, one.columns, one.weights.shape) for one in maps] == [
        ("encoder/self_attention", "1", "source", "source", (2, 5, 5)),
        ("encoder/self_attention", "2", "source", "source", (2, 5, 5)),
        ("decoder/causal_self_attention", "1", "target", "target", (2, 4, 4)),
        ("decoder/cross_attention", "1", "target", "source", (2, 4, 5)),
        ("decoder/causal_self_attention", "2", "target", "target", (2, 4, 4)),
        ("decoder/cross_attention", "2", "target", "source", (2, 4, 5)),
    ]


def test_weights_of_a_row_sum_to_one(tmp_path: Path) -> None:
    for one in maps_of(write(tmp_path, f"extends: transformer_base\n{SMALL}\n"), SOURCE, TARGET):
        np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-5)


def test_causal_maps_are_zero_above_the_diagonal(tmp_path: Path) -> None:
    maps = maps_of(write(tmp_path, f"extends: transformer_base\n{SMALL}\n"), SOURCE, TARGET)
    causal = [one for one in maps if "causal" in one.name]
    assert len(causal) == 2
    for one in causal:
        assert np.all(one.weights[:, *np.triu_indices(4, 1)] == 0)
        assert np.all(one.weights[:, *np.tril_indices(4)] > 0)


def test_weights_are_the_softmax_of_scaled_dot_products(tmp_path: Path) -> None:
    graph = inference(load_spec(write(tmp_path, f"extends: transformer_base\n{SMALL}\n")).graph())
    module = TorchModule(graph, seed=3).eval()
    with torch.no_grad():
        values = module.all_values(torch.tensor([SOURCE]), torch.tensor([TARGET]))
    query, key = values["encoder/1/self_attention/query"][0], values["encoder/1/self_attention/key"][0]
    wanted = torch.softmax(torch.einsum("qhd,khd->hqk", query, key) / 8**0.5, -1)
    found = maps_of(tmp_path / "small.yaml", SOURCE, TARGET)[1]
    np.testing.assert_allclose(found.weights, wanted.numpy(), atol=1e-6)


def test_maps_inside_a_recurrence_have_a_row_for_each_position(tmp_path: Path) -> None:
    sizes = "sizes: {d_model: 8, both: 16, d_a: 8, vocabulary: 40, dropout: 0.0}"
    (one,) = maps_of(write(tmp_path, f"extends: seq2seq_attention\n{sizes}\n"), SOURCE, TARGET)
    assert (one.rows, one.columns, one.weights.shape) == ("target", "source", (1, 4, 5))
    np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-5)
    assert np.abs(one.weights[0, 0] - one.weights[0, 3]).max() > 1e-6


def test_maps_of_every_model_with_weights_sum_to_one() -> None:
    graph = small("memory_network").graph()
    arrays = TorchModule(graph, seed=3).arrays()
    maps = attention_maps(graph, arrays, [torch.tensor([row]) for row in (SOURCE, TARGET)])
    assert {(one.rows, one.columns, one.weights.shape) for one in maps} == {(None, "story", (1, 1, 5))}
    np.testing.assert_allclose([one.weights.sum() for one in maps], 1, atol=1e-5)


def test_maps_of_arrays_leave_out_padding(tmp_path: Path, xformc: CommandLine) -> None:
    from xformc.compiler.explain.attention.attention_engine import look_at_arrays

    spec = small("conformer")
    build_engine(spec, None, None, "portable", tmp_path / "engine")
    frames = np.random.default_rng(0).normal(size=(2, 7, 6)).astype(np.float32)
    arrays: dict[str, Any] = {"frames": frames, "frames_lengths": np.array([7, 4])}
    looked = look_at_arrays(tmp_path / "engine", arrays, 2)
    assert {one.weights.shape for one in looked.maps} == {(4, 4, 4)}
    np.savez(tmp_path / "two.npz", **arrays)
    given = ("attention", tmp_path / "engine", "--input", tmp_path / "two.npz")
    assert xformc(*given, "--example", "2", "--out", tmp_path / "a.html").code == 0
    rows: list[dict[str, list[str]]] = data_of(tmp_path / "a.html")["groups"]
    assert rows[0]["rows"] == ["1", "2", "3", "4"]
    assert mistake(xformc(*given, "--example", "3")) == "there is no example 3, only 2"
    assert mistake(xformc("attention", tmp_path / "engine", "text")).startswith(
        "the engine conformer takes more than text"
    )


def test_maps_of_a_sound_are_those_of_its_samples(tmp_path: Path, xformc: CommandLine) -> None:
    from xformc.compiler.explain.attention.attention_engine import look, look_at_arrays

    engine, sound = tmp_path / "engine", write_wav(tmp_path / "a.wav", tone(333), code=3, bits=32)
    text = (
        "sizes: {hop: 80, sample_rate: 8000, d_model: 8, heads: 2, d_k: 4, d_v: 4, labels: 3}\ntask: classification\n"
    )
    text += "inputs: {wave: {vectors: hop, rate: sample_rate}}\nmodel: {label: {from: wave, do: "
    text += "[{name: vectors, linear: d_model}, self_attention, mean, linear: labels]}}"
    build_engine(load_spec(write(tmp_path, text)), None, None, "portable", engine)
    (found,), samples = look(engine, [str(sound)], None).maps, cut(tone(333), 80)
    (same,) = look_at_arrays(engine, {"wave": samples[None], "wave_lengths": np.array([5])}, 1).maps
    np.testing.assert_array_equal(found.weights, same.weights)
    assert xformc("attention", engine, sound, "--out", tmp_path / "a.html").code == 0
    missing = mistake(xformc("attention", engine, tmp_path / "b.wav"))
    assert missing == f"{tmp_path / 'b.wav'}: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one example: a sentence, or --input with arrays"),
        (["a", "--input", "b.npz"], "give one example: a sentence, or --input with arrays"),
        (["--input", "b.npz", "--translation", "c"], "--translation belongs to a sentence, not to --input"),
        (["a", "--example", "2"], "--example needs --input"),
    ],
)
def test_attention_refuses_options_that_do_nothing(xformc: CommandLine, arguments: list[str], message: str) -> None:
    assert mistake(xformc("attention", "engine", *arguments)).startswith(message)


def test_a_model_without_attention_has_no_maps(tmp_path: Path, xformc: CommandLine) -> None:
    size = train_tokenizer(tmp_path / "tokenizer.model")
    text = f"extends: seq2seq\nsizes: {{d_model: 8, vocabulary: {size}, dropout: 0.0}}\n"
    engine = make_engine(tmp_path, text, ("source", "target"))
    message = mistake(xformc("attention", engine, "hello world", "--out", tmp_path / "a.html"))
    assert message.startswith("small has no attention weights")


def make_engine(folder: Path, text: str, inputs: Sequence[str]) -> Path:
    tokenizers = {name: folder / "tokenizer.model" for name in inputs}
    build_engine(load_spec(write(folder, text)), None, tokenizers, "portable", folder / "engine")
    return folder / "engine"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attention")
    size = train_tokenizer(folder / "tokenizer.model")
    sizes = f"sizes: {{layers: 2, d_model: 16, d_ff: 32, heads: 2, vocabulary: {size}, dropout: 0.0}}"
    return make_engine(folder, f"extends: transformer_base\n{sizes}\n", ("source", "target"))


@pytest.fixture(scope="module")
def page(translator: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from xformc.compiler.explain.attention.attention_engine import look
    from xformc.compiler.explain.attention.attention_page import write_page

    path = tmp_path_factory.mktemp("page") / "attention.html"
    write_page(look(translator, ["hello <b>world</b>"], "two dogs play"), path)
    return path


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found
    return json.loads(found[1])


def test_page_has_the_maps_and_their_pieces(page: Path) -> None:
    data = data_of(page)
    groups: list[dict[str, Any]] = data["groups"]
    assert [group["title"] for group in groups] == [
        "Encoder: self attention",
        "Decoder: causal self attention",
        "Decoder: cross attention",
    ]
    cross = groups[2]
    assert (cross["rows"][0], cross["rows"][-1], cross["writes"], cross["columns"][0]) == ("two", "</s>", None, "he")
    assert (groups[1]["rows"][0], groups[1]["writes"]) == ("<s>", cross["rows"])
    packed = cross["layers"][1]["heads"][0]
    weights = np.frombuffer(base64.b64decode(packed), "<u2").reshape(len(cross["rows"]), len(cross["columns"]))
    np.testing.assert_allclose(weights.sum(-1) / 65535, 1, atol=1e-3)


def test_page_loads_nothing_from_elsewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<b>world</b>" not in text


PROBE = """<script>
const seen = [];
for (const button of document.querySelectorAll("nav button")) {
  button.click();
  const cell = document.querySelector("svg rect");
  cell.dispatchEvent(new MouseEvent("mouseenter"));
  seen.push([document.querySelectorAll("svg rect").length, document.querySelectorAll("td canvas").length,
             document.querySelector("output").textContent]);
}
document.getElementById("head").value = "1";
document.getElementById("head").dispatchEvent(new Event("change"));
seen.push(document.querySelector("canvas[aria-current=true]").dataset.place);
document.title = JSON.stringify(seen);
</script></html>"""


def test_page_works_in_a_browser(page: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text(encoding="utf-8").replace("</html>", PROBE), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += ["--disable-component-update", "--disable-sync", "--disable-quic", "--enable-logging=stderr"]
    command = [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", probed.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    found = re.search(r"<title>(.*?)</title>", done.stdout)
    assert found
    *tabs, current = json.loads(found[1])
    data = data_of(page)
    groups: list[dict[str, list[str]]] = data["groups"]
    for (cells, thumbnails, said), group in zip(tabs, groups, strict=True):
        assert (cells, thumbnails) == (len(group["rows"]) * len(group["columns"]), 2 * 3)
        assert re.search(r"looks at .*: [01]\.\d{4}$", said)
    assert current == "0,1"


@pytest.mark.parametrize("name", ["maps.svg", "maps.png", "maps.pdf"])
def test_figure_has_all_maps(translator: Path, tmp_path: Path, xformc: CommandLine, name: str) -> None:
    result = xformc("attention", translator, "two dogs", "--translation", "two dogs", "--out", tmp_path / name)
    assert (result.code, result.out) == (0, f"{tmp_path / name}\n")
    assert (tmp_path / name).stat().st_size > 1000
    if name.endswith("svg"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.count("<image") == 12
        assert "Decoder: cross attention" in text


def test_target_defaults_to_the_engines_translation(translator: Path, tmp_path: Path, xformc: CommandLine) -> None:
    result = xformc("attention", translator, "two dogs", "--out", tmp_path / "a.html")
    assert result.code == 0
    assert xformc("translate", translator, stdin="two dogs\n").out.strip() == data_of(tmp_path / "a.html")["texts"][1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b"], "translation takes one text, found 2"),
        (["a", "--translation", ""], "the target is empty"),
        (["", "--translation", "a"], "the source is empty"),
        (["a", "--out", "a.gif"], "a.gif: a picture's name says its format\nhint: it ends in .html, .svg, .pdf, .png"),
    ],
)
def test_attention_refuses_what_it_cannot_show(
    translator: Path, xformc: CommandLine, arguments: list[str], message: str
) -> None:
    assert mistake(xformc("attention", translator, *arguments)).startswith(message)


def test_a_source_without_an_end_may_have_one_token(tmp_path: Path, xformc: CommandLine) -> None:
    size = train_tokenizer(tmp_path / "tokenizer.model")
    sizes = f"sizes: {{layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: {size}, dropout: 0.0}}"
    inputs = "inputs: {source: {tokens: vocabulary, ends: false}}"
    engine = make_engine(tmp_path, f"extends: transformer_base\n{sizes}\n{inputs}\n", ("source", "target"))
    result = xformc("attention", engine, "a", "--translation", "two dogs", "--out", tmp_path / "a.html")
    assert result.code == 0, result.err
    assert mistake(xformc("attention", engine, "", "--translation", "a")) == "the source is empty"


def test_attention_of_a_language_model_writes_the_next_piece(tmp_path: Path) -> None:
    from xformc.compiler.explain.attention.attention_engine import look

    size = train_tokenizer(tmp_path / "tokenizer.model")
    sizes = (
        f"sizes: {{layers: 1, d_model: 16, d_ff: 32, heads: 2, vocabulary: {size}, max_positions: 64, dropout: 0.0}}"
    )
    engine = make_engine(tmp_path, f"extends: gpt\n{sizes}\ntrain: {{max_length: 32}}\n", ("text",))
    looked = look(engine, ["two dogs play"], None)
    assert looked.tokens["text"][0] == "<s>"
    assert looked.written[:-1] == looked.tokens["text"][1:]
    assert [one.columns for one in looked.maps] == ["text"]


CAPTIONS = """\
sizes: {d_model: 8, features: 3, SIZE}
inputs: {INPUTS, caption: {tokens: vocabulary}}
results: {caption: {text: logits}}
model:
  heard: {from: FIRST, do: [START: d_model]}
  states: {from: caption, do: [embedding: d_model, {plain_attention: {memory: heard}}]}
  logits: {from: states, do: [linear: vocabulary]}
blocks:
  plain_attention:
    takes: {memory: value}
    do: [attend: {query: x, key: memory, value: memory, width: d_model}]
decode: {max_length: {offset: 4}}
"""


def test_attention_of_declared_text_is_that_of_what_the_engine_writes(tmp_path: Path) -> None:
    from xformc.compiler.explain.attention.attention_engine import look, look_at_arrays

    size = f"vocabulary: {train_tokenizer(tmp_path / 'tokenizer.model')}"
    spec = CAPTIONS.replace("SIZE", size).replace("features: 3, ", "").replace("FIRST", "words")
    spec = spec.replace("INPUTS", "words: {tokens: vocabulary}").replace("START", "embedding")
    engine = make_engine(tmp_path, spec, ("words", "caption"))
    looked = look(engine, ["two dogs play"], None)
    with load(engine, threads=1) as loaded:
        (best, *_) = loaded.transcribe(["two dogs play"])[0]
    assert looked.texts == ("two dogs play", best.text) and len(looked.written) == len(best.tokens)
    assert looked.tokens["words"] != looked.tokens["caption"]
    (tmp_path / "frames").mkdir()
    spec = CAPTIONS.replace("SIZE", "vocabulary: 20").replace("INPUTS", "frames: {vectors: features}")
    spec = spec.replace("FIRST", "frames").replace("START", "linear")
    build_engine(load_spec(write(tmp_path / "frames", spec)), None, None, "portable", tmp_path / "frames" / "engine")
    frames = np.random.default_rng(0).standard_normal((1, 5, 3)).astype(np.float32)
    looked = look_at_arrays(tmp_path / "frames" / "engine", {"frames": frames, "frames_lengths": np.array([5])}, 1)
    assert looked.tokens["caption"][0] == "2" and looked.maps[0].weights.shape[-1] == 5
