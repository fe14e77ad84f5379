"""The Spec object: its sections, merging with `extends`, the resolved file, and the JSON schema."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from laws.settings import some

from tests.small_specs import shipped
from xformc.compiler import compile_spec
from xformc.compiler.graph import text
from xformc.compiler.spec import Decode, SpecError, Train, json_schema, load_spec
from xformc.specs import SHIPPED, shipped_specs

VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_base_has_the_recipe_and_the_defaults_of_the_paper() -> None:
    spec = load_spec(SHIPPED / "transformer_base.yaml")
    assert (spec.name, spec.task, spec.sizes["d_k"]) == ("transformer_base", "translation", 64)
    assert {name: item.vocabulary for name, item in spec.inputs.items()} == {"source": 37000, "target": 37000}
    assert (spec.train, spec.decode) == (Train(), Decode())
    adam = spec.train.optimizer.adam
    assert adam is not None
    assert (adam.beta2, spec.train.schedule.warmup_steps) == (0.98, 4000)
    assert (spec.decode.length_penalty, spec.decode.max_length.offset) == (0.6, 50)


def test_extends_merges_sections_key_by_key_and_replaces_bodies_blocks_and_inputs(tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text(
        """\
extends: transformer_base
sizes: {heads: 4, small: 90}
train: {schedule: {scale: 2.0}}
inputs: {source: {tokens: small}}
model: {encoder: {do: [embed, final_norm]}}
blocks: {final_norm: {choose: norm, post: [], pre: [relu]}}
"""
    )
    (tmp_path / "child.yaml").write_text(
        """\
extends: parent.yaml
sizes: {heads: 2}
train: {schedule: {warmup_steps: 7}, tokenizer: {shared: false}}
blocks: {final_norm: {do: [tanh]}}
tie: []
"""
    )
    spec = load_spec(tmp_path / "child.yaml")
    assert (spec.sizes["heads"], spec.sizes["layers"], spec.sizes["d_k"]) == (2, 6, 256)
    assert (spec.train.schedule.warmup_steps, spec.train.schedule.scale) == (7, 2.0)
    kinds = [node.op.kind for node in compile_spec(spec).nodes if node.outputs[0].name.startswith("encoder")]
    assert kinds == ["embedding", "scale", "positions", "sinusoid", "add", "dropout", "unary"]


def test_a_preset_of_the_search_sets_what_is_not_set(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(
        "extends: transformer_base\ndecode: {preset: huggingface, length_penalty: 0.8, beam_size: 5}\n"
    )
    decode = load_spec(tmp_path / "other.yaml").decode
    assert (decode.length_penalty_kind, decode.stop_rule, decode.length_penalty) == ("average", "best", 0.8)
    (tmp_path / "none.yaml").write_text("extends: transformer_base\ndecode: {preset: moses}\n")
    with pytest.raises(SpecError, match="must be 'paper', 'huggingface'"):
        _ = load_spec(tmp_path / "none.yaml").decode


def test_name_is_the_files_unless_the_spec_gives_one(tmp_path: Path) -> None:
    path = tmp_path / "my model (2).yaml"
    path.write_text("extends: transformer_base\n")
    assert load_spec(path).name == "my_model__2_"
    path.write_text("extends: transformer_base\nname: mine\n")
    assert compile_spec(load_spec(path)).name == "mine"


@pytest.mark.parametrize("name", some([*shipped_specs()], 3))
def test_resolved_spec_stands_alone_and_is_the_same(name: str, tmp_path: Path) -> None:
    """Both forms also fit the JSON schema."""
    spec, copy = shipped(name), tmp_path / "spec.yaml"
    resolved = spec.resolved_yaml()
    copy.write_text(resolved)
    again, document = load_spec(copy), yaml.safe_load(resolved)
    assert "extends" not in document
    assert (again.name, again.train, again.decode) == (spec.name, spec.train, spec.decode)
    assert again.graph() == spec.graph()
    assert again.resolved_yaml() == resolved
    for written in (document, yaml.safe_load(shipped_specs()[name].read_text())):
        VALIDATOR.validate(written)


def test_resolved_spec_leaves_out_what_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(
        """\
extends: transformer_base
blocks: {feed_forward: {do: {inner: {linear: {to: d_model}}, active: relu}}}
"""
    )
    resolved = yaml.safe_load(load_spec(path).resolved_yaml())
    assert "d_ff" not in resolved["sizes"] and "activation" not in resolved["choices"]
    assert {"embed", "add_positions", "sublayer", "feed_forward", "attend"} <= resolved["blocks"].keys()
    assert not {"activation", "gru"} & resolved["blocks"].keys()


@pytest.mark.parametrize("word", ["no", "1e-9", "null", "true", "~", "0x10", "12", "a: b", ""])
def test_resolved_spec_keeps_words_words(word: str, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    block = f"{{doc: {word!r}, do: [embedding: d_model]}}"
    path.write_text(f"extends: transformer_base\ntie: []\nblocks: {{embed: {block}}}\n")
    copy = tmp_path / "copy.yaml"
    copy.write_text(load_spec(path).resolved_yaml())
    doc = load_spec(copy).tree.get("blocks", "embed", "doc")
    assert doc is not None and doc.value == word


def test_learned_positions_must_cover_the_training_sentences(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    text = "extends: transformer_base\nchoices: {positions: learned}\nsizes: {max_positions: 100}\n"
    path.write_text(text)
    with pytest.raises(SpecError) as error:
        compile_spec(load_spec(path))
    assert error.value.message == "100 positions are fewer than train.max_length, which is 256"
    assert error.value.place == f"{path}:3:24"
    path.write_text(text + "train: {max_length: 100}\n")
    compile_spec(load_spec(path))


def test_schedule_needs_the_width_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    text = (SHIPPED / "numbers.yaml").read_text() + "inputs: {source: {tokens: vocabulary}}\n"
    path.write_text(text.replace("d_model: 128", "d_model: -128"))
    with pytest.raises(SpecError) as error:
        load_spec(path)
    assert error.value.message == "the learning rate scales with d_model^-0.5, so d_model must be a positive whole size"
    assert error.value.hint == "set schedule.width to a size of the model, or schedule.peak"


NO_WIDTH = """\
task: classification
sizes: {width: 8, vocabulary: 20, labels: 3}
inputs: {text: {tokens: vocabulary}}
model: {label: {from: text, do: [{embedding: width}, {mean: positions}, {linear: {to: labels}}]}}
"""


@pytest.mark.parametrize(
    ("schedule", "written"), [("width: width", {"scale": 1.0, "width": "width"}), ("peak: 7.0e-4", {"peak": 7e-4})]
)
def test_schedule_says_where_its_rate_comes_from(tmp_path: Path, schedule: str, written: dict[str, object]) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(NO_WIDTH)
    with pytest.raises(SpecError, match="d_model must be a positive whole size"):
        load_spec(path)
    path.write_text(f"{NO_WIDTH}train: {{schedule: {{{schedule}}}}}\n")
    resolved = load_spec(path).resolved_yaml()
    assert yaml.safe_load(resolved)["train"]["schedule"] == {"warmup_steps": 4000, "decay": "none", **written}
    path.write_text(resolved)
    assert load_spec(path).resolved_yaml() == resolved


def test_peak_takes_the_place_of_an_inherited_scale(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("extends: multi30k\ntrain: {schedule: {peak: 0.002}}\n")
    spec = load_spec(path)
    assert spec.train.schedule.peak == 0.002
    assert "scale" not in yaml.safe_load(spec.resolved_yaml())["train"]["schedule"]


def test_graph_of_a_spec_survives_its_text_form() -> None:
    graph = compile_spec(load_spec(SHIPPED / "numbers.yaml"))
    assert text.parse(text.format(graph)) == graph


def test_committed_json_schema_is_as_make_docs_writes_it() -> None:
    VALIDATOR.check_schema(VALIDATOR.schema)
    assert (SHIPPED / "schema.json").read_text() == json.dumps(json_schema(), indent=2) + "\n", "run `make docs`"


@pytest.mark.parametrize("path", shipped_specs().values(), ids=shipped_specs())
def test_shipped_spec_names_the_schema_for_editors(path: Path) -> None:
    schema = os.path.relpath(SHIPPED / "schema.json", path.parent)
    assert path.read_text().splitlines()[0] == f"# yaml-language-server: $schema={schema}"


@pytest.mark.parametrize(
    "text",
    [
        "{task: translation, inputs: {}}",
        "{extends: a, sizes: {3x: 1}}",
        "{extends: a, train: {stepps: 3}}",
        "{extends: a, decode: {beam_size: 0}}",
        "{extends: a, model: {logits: {do: [{linear: {too: d_model}}]}}}",
        "{extends: a, model: {logits: {do: [3]}}}",
        "{extends: a, blocks: {b: {do: [], choose: norm}}}",
        "{extends: a, blocks: {b: {takes: {c: blok}, do: []}}}",
    ],
)
def test_json_schema_refuses_what_is_wrong(text: str) -> None:
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_reading_specs_needs_neither_torch_nor_onnx() -> None:
    code = "import sys, xformc.compiler.spec; print({'torch', 'onnx', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


BOTH = """\
extends: transformer_base
choices: {key_value_heads: %s}
"""


@pytest.mark.parametrize(("word", "axes"), [("one", 3), ("otherwise", 4)])
def test_branch_for_every_other_word_can_be_named(word: str, axes: int, tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(BOTH % word)
    values = {node.outputs[0].name: node.outputs[0].type for node in load_spec(path).graph().nodes}
    assert len(values["encoder/0/self_attention/key"].axes) == axes


def test_choice_that_no_branch_is_named_after_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    text = "extends: transformer_base\nblocks: {add_positions: {do: []}}\nchoices: {positions: learned}\n"
    path.write_text(text)
    with pytest.raises(SpecError, match="the choice 'positions' is never used"):
        load_spec(path).graph()


def test_choice_may_be_a_word_of_any_shipped_block(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("extends: transformer_base\nblocks: {add_positions: {do: []}}\n")
    assert load_spec(path).graph().nodes
    path.write_text("extends: transformer_base\nchoices: {score: adtive}\n")
    with pytest.raises(SpecError, match="did you mean 'additive'"):
        load_spec(path).graph()
