"""Blocks that a spec imports from files beside it."""

from pathlib import Path

import pytest

from xformc.compiler import compile_spec
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import SpecError, load_spec
from xformc.errors import UserError

LIBRARY = """\
swish:
  doc: A gated activation.
  do: [gate: {linear: d_model}, active: {sigmoid: {from: gate}}]
residual_swish:
  do: [residual: [squared]]
squared:
  do: {new: {linear: d_model}, old: tanh, both: {times: new}}
unused:
  do: [lstm]
late:
  do: [{convolution: {to: d_model, width: 3}}]
wide:
  do: [sublayer: feed_forward]
"""
SPEC = """\
task: language_model
import: [my_blocks]
sizes: {d_model: 8, vocabulary: 20}
inputs: {text: {tokens: vocabulary}}
model:
  states: {from: text, do: [embedding: d_model, BLOCK]}
  logits: {from: states, do: [linear: vocabulary]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a library of blocks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_blocks.yaml").write_text(LIBRARY)
    return tmp_path


def _write(text: str, name: str = "model.yaml") -> Path:
    Path(name).write_text(text)
    return Path(name)


def _error(text: str) -> str:
    with pytest.raises(SpecError) as error:
        compile_spec(load_spec(_write(text)))
    return str(error.value)


def test_imported_blocks_are_the_specs_own(folder: Path) -> None:
    spec = load_spec(_write(SPEC.replace("BLOCK", "residual_swish")))
    names = [parameter.name for parameter in compile_spec(spec).parameters]
    assert "states/residual_swish/new/weight" in names
    resolved = spec.resolved_yaml()
    assert "squared" in resolved and "swish:\n    do" in resolved and "unused" not in resolved
    (folder / "my_blocks.yaml").unlink()
    assert compile_spec(load_spec(_write(resolved))).parameters == compile_spec(spec).parameters


def test_own_blocks_replace_imported_ones_and_variants_inherit_them() -> None:
    _write(SPEC.replace("BLOCK", "residual_swish") + "blocks: {squared: {do: [tanh]}}\n", "base.yaml")
    names = [item.name for item in compile_spec(load_spec(_write("extends: base\n"))).parameters]
    assert [name for name in names if "swish" in name] == []
    _write(SPEC.replace("BLOCK", "residual_swish"), "base.yaml")
    names = [item.name for item in compile_spec(load_spec(_write("extends: base\n"))).parameters]
    assert "states/residual_swish/new/weight" in names


def test_a_mistake_in_a_shipped_block_names_both_uses() -> None:
    text = _error(SPEC.replace("BLOCK", "wide"))
    assert text.startswith("xformc/specs/blocks/transformer.yaml:")
    assert "\n  used at my_blocks.yaml:13:8\n  used at model.yaml:6:49" in text


def test_a_mistake_of_an_imported_step_names_both() -> None:
    _write("gone:\n  do: {new: tanh, sum: {plus: {by: nwe}}}\n", "my_blocks.yaml")
    assert _error(SPEC.replace("BLOCK", "gone")).splitlines() == [
        "my_blocks.yaml:2:36: unknown value 'nwe'",
        "  2 |   do: {new: tanh, sum: {plus: {by: nwe}}}",
        "    |                                    ^^^",
        "  used at model.yaml:6:49",
        "hint: did you mean 'new'?",
    ]


def test_a_step_that_cannot_be_decoded_names_both() -> None:
    with pytest.raises(UserError) as error:
        compile_engine(load_spec(_write(SPEC.replace("BLOCK", "late"))))
    assert error.value.place == "my_blocks.yaml:11:9 (used at model.yaml:6:49)"


ERRORS = [
    ("other", "2:9", "'import' must list files of blocks, found 'other'"),
    ("[3]", "2:9", "'import' must list files of blocks, found a list"),
    ("[other]", "2:10", "there is no file 'other.yaml'"),
    ("[../my_blocks]", "2:10", "'../my_blocks' is outside the spec's folder"),
    ("[/etc/passwd]", "2:10", "'/etc/passwd' is outside the spec's folder"),
    (f"[{', '.join(['a'] * 17)}]", "2:9", "more than 16 imports"),
]


@pytest.mark.parametrize(("names", "place", "message"), ERRORS)
def test_a_wrong_import_has_a_message(names: str, place: str, message: str) -> None:
    assert _error(SPEC.replace("[my_blocks]", names)).startswith(f"model.yaml:{place}: {message}\n")


def test_a_library_is_a_mapping_of_different_blocks() -> None:
    text = SPEC.replace("BLOCK", "swish")
    _write("squared: {do: [tanh]}\n", "more.yaml")
    assert _error(text.replace("[my_blocks]", "[more, my_blocks]")).startswith(
        "my_blocks.yaml:6:1: the block 'squared' is imported twice"
    )
    _write("[tanh]\n", "more.yaml")
    message = "more.yaml:1:1: a file of blocks must be a mapping from names to blocks, found a list"
    assert _error(text.replace("my_blocks", "more")).startswith(message)


@pytest.mark.parametrize("key", ["import", "extends"])
def test_what_reads_files_is_no_setting(key: str) -> None:
    with pytest.raises(SpecError, match=f"'{key}' is not a setting"):
        load_spec(_write(SPEC.replace("BLOCK", "swish")), [f"{key}=gpt"])
