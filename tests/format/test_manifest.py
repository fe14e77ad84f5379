import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_engine import write_manifest

from xformc.errors import UserError
from xformc.format.manifest import manifest_checksum
from xformc.runtime import load, read_manifest

FILES = ("model.onnx", "tokenizer.model", "certificate.json", "spec.yaml")


def edit(engine: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Apply `change` to the object in engine.json, and make its checksum fit."""
    path = engine / "engine.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps({**content, "checksum": manifest_checksum(content)}))


def message(engine: Path) -> str:
    """What `load` says about the engine; it must be one line, and a hint."""
    with pytest.raises(UserError) as caught:
        load(engine, threads=1)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return f"{caught.value.place}: {caught.value.message}"


@pytest.mark.parametrize("name", FILES)
def test_load_refuses_one_flipped_byte_in_any_file(own_engine: Path, name: str) -> None:
    data = bytearray((own_engine / name).read_bytes())
    data[len(data) // 2] ^= 1
    (own_engine / name).write_bytes(data)
    assert message(own_engine) == f"{own_engine / name}: the content has changed since it was built: its sha256 differs"


def test_load_refuses_every_flipped_byte_of_the_manifest(own_engine: Path) -> None:
    path = own_engine / "engine.json"
    whole = path.read_bytes()
    read_manifest(own_engine)
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(UserError):
            read_manifest(own_engine)


@pytest.mark.parametrize("name", FILES)
def test_load_refuses_a_missing_or_cut_file(own_engine: Path, name: str) -> None:
    path = own_engine / name
    path.write_bytes(path.read_bytes()[:-1])
    assert "were written" in message(own_engine)
    path.unlink()
    assert message(own_engine) == f"{path}: this file of the engine is missing"


def test_load_refuses_a_manifest_without_its_checksum(own_engine: Path) -> None:
    path = own_engine / "engine.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps(content))
    assert message(own_engine) == f"{path}: the key checksum is missing"


def test_load_without_hashes_still_checks_the_sizes(own_engine: Path) -> None:
    (own_engine / "spec.yaml").write_text("name: cOpy\n")
    load(own_engine, threads=1, verify_hashes=False)
    (own_engine / "spec.yaml").write_text("name: other\n")
    with pytest.raises(UserError, match="12 bytes; 11 were written"):
        load(own_engine, threads=1, verify_hashes=False)


def test_load_refuses_a_link_out_of_the_folder(own_engine: Path, tmp_path: Path) -> None:
    os.rename(own_engine / "spec.yaml", tmp_path / "elsewhere")
    (own_engine / "spec.yaml").symlink_to(tmp_path / "elsewhere")
    assert "a link out of the engine's folder" in message(own_engine)


def test_load_refuses_a_link_to_itself(own_engine: Path) -> None:
    (own_engine / "spec.yaml").unlink()
    (own_engine / "spec.yaml").symlink_to("spec.yaml")
    assert message(own_engine) == f"{own_engine / 'spec.yaml'}: this file of the engine is missing"


def test_load_follows_a_link_to_the_folder_itself(own_engine: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(own_engine)
    assert load(tmp_path / "link", threads=1).translate(["hello world"])[0][0].text == "hello world"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "..", "", "a\\b", "a\0b"])
def test_load_refuses_names_that_lead_out(own_engine: Path, name: str) -> None:
    edit(own_engine, lambda content: content["files"].update({name: {"bytes": 1, "sha256": "0"}}))
    assert "is not a path inside the engine" in message(own_engine)


SPEECH: dict[str, Any] = {"seconds": 30.0, "languages": {}, "tasks": {}, "no_timestamps": None}
WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda content: content.update(format=2), "this engine has format 2; this xformc reads format 1"),
    (lambda content: content.update(format="1"), "format must be an integer from 1 to 4,611,686,018,427,387,904"),
    (lambda content: content.update(format=0), "format must be"),
    (lambda content: content.pop("name"), "the key name is missing"),
    (lambda content: content.update(name=3), "name must be a printable string, not 3"),
    (lambda content: content.update(name="\x1b[2J"), "name must be a printable string, not"),
    (lambda content: content.update(name="\ud800"), "name must be a printable string, not"),
    (lambda content: content["inputs"]["target"].pop("vocabulary"), "the key inputs.target.vocabulary is missing"),
    (lambda content: content["inputs"]["target"].update(vocabulary=-5), "inputs.target.vocabulary must be an integer"),
    (lambda content: content["inputs"]["target"].update(kind="text"), "inputs.target.kind must be tokens or vectors"),
    (lambda content: content["inputs"].pop("target"), "the inputs do not fit the task translation: source"),
    (lambda content: content.update(inputs=[1]), "inputs must be an object, not [1]"),
    (lambda content: content.update(task="parsing"), "task must be translation or language_model or tagging or"),
    (lambda content: content["results"]["target"].update(labels=["a", "a"]), "results.target.labels must be a list of"),
    (lambda content: content["results"]["target"].update(labels=["a", 1]), "results.target.labels must be a list of"),
    (lambda content: content["results"]["target"].update(labels=[]), "results.target.labels must be a list of"),
    (lambda content: content["results"]["target"].update(positions="words"), "positions must be source or target, not"),
    (lambda content: content["results"]["target"].update(kind="labels"), "the results do not fit the task translation"),
    (lambda content: content["inputs"]["target"].pop("special_tokens"), "inputs.target.special_tokens is missing"),
    (lambda content: content["inputs"]["target"]["special_tokens"].update(end=5), "special_tokens.end must be a list"),
    (lambda content: content["inputs"]["target"]["special_tokens"].update(pad=3), "end has the id of padding, 3"),
    (lambda content: content["defaults"].update(n_best=9), "defaults.n_best must be an integer from 1 to 4, not 9"),
    (lambda content: content["defaults"].update(length_penalty=float("nan")), "defaults.length_penalty must be"),
    (lambda content: content["inputs"]["source"].update(longest=0), "inputs.source.longest must be"),
    (lambda content: content.update(suppress_first=[2, 2]), "suppress_first must be a list of 1 to 100000 distinct"),
    (lambda content: content.update(speech={"languages": {}}), "the key speech.tasks is missing"),
    (
        lambda content: content.update(speech={**SPEECH, "seconds": -1}),
        "speech.seconds must be a number from 0 to 3600",
    ),
    (lambda content: content.update(speech={**SPEECH, "tasks": {"sing": "a"}}), "speech.tasks.sing must be an integer"),
    (lambda content: content["files"].pop("model.onnx"), "model.onnx is not listed in files"),
    (lambda content: content["inputs"]["source"].update(tokenizer="no.model"), "no.model is not listed in files"),
    (lambda content: content["files"]["spec.yaml"].update(bytes="many"), "files.spec.yaml.bytes must be an integer"),
]


@pytest.mark.parametrize(("change", "expected"), WRONG, ids=[expected for _, expected in WRONG])
def test_load_refuses_a_manifest_that_cannot_be(
    own_engine: Path, change: Callable[[dict[str, Any]], object], expected: str
) -> None:
    edit(own_engine, change)
    found = message(own_engine)
    assert found.startswith(f"{own_engine / 'engine.json'}: ")
    assert expected in found


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b" " * (1 << 20) + b"{}", "larger than 1,048,576 bytes"),
    ],
    ids=["empty", "cut", "binary", "list", "deep", "large"],
)
def test_load_refuses_a_manifest_that_is_no_object(own_engine: Path, content: bytes, expected: str) -> None:
    (own_engine / "engine.json").write_bytes(content)
    assert expected in message(own_engine)


def test_load_refuses_what_is_not_an_engine(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert message(tmp_path / "missing").endswith("missing: no such folder")
    assert message(tmp_path / "file").endswith("file: not a folder")
    assert message(tmp_path).endswith("not an engine: it has no engine.json")


def test_load_refuses_a_model_that_onnx_runtime_cannot_read(own_engine: Path) -> None:
    rewrite(own_engine, "model.onnx", b"not a model")
    assert "model.onnx: the model cannot be loaded: " in message(own_engine)


def test_load_refuses_a_model_with_another_interface(own_engine: Path, foreign_model: bytes) -> None:
    rewrite(own_engine, "model.onnx", foreign_model)
    assert "not an xformc model: it lacks source, beam_size" in message(own_engine)
    assert message(own_engine).endswith("it needs x")


def test_load_refuses_a_tokenizer_that_is_none(own_engine: Path) -> None:
    rewrite(own_engine, "tokenizer.model", b"\x08\xff\xff")
    assert message(own_engine) == f"{own_engine / 'tokenizer.model'}: not a SentencePiece model"


def test_load_refuses_a_tokenizer_larger_than_the_vocabulary(own_engine: Path) -> None:
    edit(own_engine, lambda content: content["inputs"]["source"].update(vocabulary=20))
    assert "has 80 pieces; the engine's vocabulary 20" in message(own_engine)


def test_load_takes_an_engine_without_a_tokenizer(own_engine: Path) -> None:
    edit(own_engine, lambda content: [item.update(tokenizer=None) for item in content["inputs"].values()])
    engine = load(own_engine, threads=1)
    assert engine.search([[5, 3]]).tokens.tolist() == [[[5, 3]]]


def rewrite(engine: Path, name: str, content: bytes) -> None:
    """Replace a file, and its record in engine.json."""
    (engine / name).write_bytes(content)
    manifest = json.loads((engine / "engine.json").read_text())
    write_manifest(engine, {key: value for key, value in manifest.items() if key != "files"})


@pytest.fixture
def foreign_model() -> bytes:
    from onnx import TensorProto, helper

    node = helper.make_node("Neg", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([node], "other", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return model.SerializeToString()
