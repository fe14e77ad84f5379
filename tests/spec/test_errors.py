"""Every error in a spec has a line and column, a message and a hint.

errors.txt has specs, each with the error that the command line prints for it.
"""

from pathlib import Path

import pytest

from xformc.compiler import compile_spec
from xformc.compiler.spec import SpecError, load_spec
from xformc.compiler.spec.tree import MAX_BYTES
from xformc.errors import UserError
from xformc.specs import SHIPPED

from .conftest import Build, Problems

BASE = (SHIPPED / "transformer_base.yaml").read_text()
E = "extends: transformer_base\n"
CASES = [tuple(case.split("~~~\n")) for case in Path(__file__).with_name("errors.txt").read_text().split("======\n")]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text.split("\n", 1)[1][:50] for text, _ in CASES])
def test_error_is_rendered_as_in_the_list(build: Build, text: str, expected: str) -> None:
    with pytest.raises(SpecError) as error:
        build(text)
    assert f"error: {error.value}\n" == expected


def test_control_character_is_refused(problems: Problems) -> None:
    (problem,) = problems(E + "a: \x07\n")
    assert problem.span.place == "model.yaml:2:4"
    assert problem.message == "a character that YAML does not allow"


def test_key_in_brackets_is_an_unknown_key(problems: Problems) -> None:
    (problem,) = problems(E + "'[key]': 1\n")
    assert problem.message == "unknown key '[key]'"


def test_errors_are_all_reported_in_the_order_of_the_file(problems: Problems) -> None:
    found = problems(
        E + "sizes: {3x: 1}\nchoices: {norm: [a]}\nmodel: {logits: {do: [lnear, scle: 2]}}\ntrain: {seed: -1}\n"
    )
    assert [(problem.span.line, problem.span.column, problem.message) for problem in found] == [
        (2, 9, "'3x' is not a name"),
        (3, 17, "must be a word, found a list"),
        (4, 23, "unknown block 'lnear'"),
        (4, 30, "unknown block 'scle'"),
        (5, 15, "must be greater than or equal to 0, found -1"),
    ]


def test_error_in_a_shipped_block_says_which_step_used_it(problems: Problems) -> None:
    (problem,) = problems(BASE.replace("  d_ff: 2048\n", ""))
    assert problem.message == "unknown size 'd_ff'"
    assert problem.span.place == "xformc/specs/blocks/transformer.yaml:67:26"
    assert problem.user is not None and problem.user.place == "model.yaml:31:23"
    assert "\n  used at model.yaml:31:23\n" in str(problem)


def test_learned_positions_without_a_limit_say_what_to_add(problems: Problems) -> None:
    (problem,) = problems(E + "choices: {positions: learned}\n")
    assert (problem.message, problem.hint) == ("unknown size 'max_positions'", "add 'max_positions' to sizes")


def test_choice_that_is_not_made_lists_its_words(problems: Problems) -> None:
    (problem,) = problems(BASE.replace("  activation: relu\n", ""))
    assert problem.message == "the choice 'activation' is not set"
    assert problem.hint == "set 'activation' under choices to 'relu', 'gelu', 'gelu_tanh', 'silu' or 'sigmoid'"


def test_shared_tokenizer_of_two_vocabularies_is_refused(problems: Problems) -> None:
    (problem,) = problems(E + "sizes: {small: 90}\ninputs: {target: {tokens: small}}\n")
    assert problem.message == "a shared tokenizer needs one vocabulary, found vocabulary=37000, small=90"


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "a/../../b", "a\\b", "", "."])
def test_extends_stays_in_the_tree(problems: Problems, name: str) -> None:
    (problem,) = problems(f'extends: "{name}"\n'.replace("\\", "\\\\"))
    assert problem.message == f"'{name}' is outside the spec's folder"
    assert problem.span.place == "model.yaml:1:10"


def test_extends_through_a_link_out_of_the_folder_is_refused(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to(SHIPPED / "numbers.yaml")
    (problem,) = problems("extends: link\n")
    assert problem.message == "'link' is outside the spec's folder"


def test_extends_of_nothing_suggests_a_shipped_spec(problems: Problems) -> None:
    (problem,) = problems("extends: transformer_bse\n")
    assert problem.message == "there is no spec 'transformer_bse', here or among the shipped ones"
    assert problem.hint == "did you mean 'transformer_base'?"


@pytest.mark.parametrize("name", ["positions/rotary", "rotary", "rotary.yaml"])
def test_extends_takes_the_name_of_a_shipped_spec(build: Build, name: str) -> None:
    assert build(f"extends: {name}\n").nodes == build("extends: transformer_base\nchoices: {positions: rotary}\n").nodes


def test_extends_of_a_name_that_two_specs_have_is_refused(problems: Problems) -> None:
    (problem,) = problems("extends: none\n")
    assert problem.message == "'none' is the name of 2 shipped specs"
    assert problem.hint == "write positions/none or tying/none"


def test_extends_in_a_circle_is_refused(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("extends: model\n")
    (problem,) = problems("extends: other\n")
    assert problem.span.place == "other.yaml:1:10"
    assert problem.message == "a spec extends itself: model -> other -> model"


def test_alias_bomb_is_refused(problems: Problems) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (problem,) = problems("\n".join(lines))
    assert problem.message == "the file has more than 100,000 values once its aliases are expanded"
    assert problem.span.line == 5


def test_aliases_cannot_nest_deeper_than_what_is_written(problems: Problems) -> None:
    lines = ["a0: &a0 x"] + [f"a{n}: &a{n} [[[*a{n - 1}]]]" for n in range(1, 1000)]
    (problem,) = problems("\n".join(lines))
    assert problem.message == "nested deeper than 64 levels"
    assert problem.span.place == "model.yaml:22:14"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sizes: {layers: 1000000000}", "the model has more than 100,000 steps"),
        ("sizes: {d_model: 1000000000}", "the model has more than 100,000,000,000 parameters"),
        (
            "blocks:\n  feed_forward: {do: [b0]}\n"
            + "\n".join(f"  b{n}: {{do: [b{n + 1}, b{n + 1}]}}" for n in range(30))
            + "\n  b30: {do: []}",
            "the model has more than 100,000 steps",
        ),
        (
            "blocks:\n  feed_forward: {do: [b0]}\n"
            + "\n".join(f"  b{n}: {{do: [b{n + 1}]}}" for n in range(200))
            + "\n  b200: {do: []}",
            "blocks nested deeper than 64 levels",
        ),
        ("sizes:\n  s0: 1\n" + "\n".join(f"  s{n}: s{n - 1} + 1" for n in range(100, 0, -1)),
         "sizes depend on each other more than 64 levels deep"),
    ],
    ids=["repeat", "parameters", "doubling", "nesting", "sizes"],
)  # fmt: skip
def test_expansion_is_bounded(problems: Problems, text: str, message: str) -> None:
    assert problems(E + text + "\n")[0].message == message


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"", "1:1", "the file is empty"),
        (b"# nothing\n", "1:1", "the file is empty"),
        (b"hello", "1:1", "a spec must be a mapping, found 'hello'"),
        (b"- a\n", "1:1", "a spec must be a mapping, found a list"),
        (b"name: x\nb: \xff\xfe\n", "2:4", "not UTF-8 text"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "1:1", "a character that YAML does not allow"),
        (b"#" * (MAX_BYTES + 1), "1:1", "larger than 256 KiB, the limit for a spec"),
    ],
    ids=["empty", "comment", "scalar", "list", "latin", "binary", "large"],
)
def test_content_that_is_no_spec_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, place: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_bytes(content)
    with pytest.raises(SpecError) as error:
        load_spec(Path("model.yaml"))
    assert (error.value.place, error.value.message) == (f"model.yaml:{place}", message)


@pytest.mark.parametrize(("name", "reason"), [("none.yaml", "there is no such file"), (".", "it is a folder")])
def test_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        load_spec(Path(name))
    assert str(error.value) == f"{name}: cannot read the spec: {reason}"


def test_windows_line_ends_and_byte_order_mark_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert compile_spec(load_spec(path)).parameter_count() == 63_082_496
