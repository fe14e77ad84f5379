"""The section `precision`: the weights that a pattern matches, and the place of each error."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xformc.compiler.spec import Spec, SpecError, load_spec
from xformc.compiler.spec.weight_precision import fits

BASE = "extends: transformer_base\nsizes: {layers: 2, d_model: 16, d_ff: 24, heads: 2, vocabulary: 40}\n"


def spec(folder: Path, precision: str, base: str = BASE) -> Spec:
    path = folder / "model.yaml"
    path.write_text(f"{base}precision: {precision}\n")
    return load_spec(path)


def test_without_the_section_every_weight_is_float32(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(BASE)
    chosen = load_spec(path).precisions()
    assert set(chosen.values()) == {"float32"}
    assert "encoder/0/feed_forward/inner/weight" in chosen and "encoder/embed/embedding/weight" in chosen
    assert not any(name.endswith(("bias", "gain", "offset")) for name in chosen)


def test_the_last_pattern_that_fits_wins_and_the_default_has_the_rest(tmp_path: Path) -> None:
    loaded = spec(
        tmp_path, '{default: int8, encoder: fp16, "*/0/feed_forward": bf16, encoder/0/feed_forward/inner: fp32}'
    )
    chosen = loaded.precisions()
    assert chosen["encoder/0/feed_forward/inner/weight"] == "float32"
    assert chosen["encoder/0/feed_forward/output/weight"] == "bfloat16"
    assert chosen["decoder/0/feed_forward/output/weight"] == "bfloat16"
    assert chosen["encoder/1/feed_forward/output/weight"] == "float16"
    assert chosen["decoder/1/feed_forward/output/weight"] == "int8"
    assert loaded.precisions("int4")["decoder/1/feed_forward/output/weight"] == "int4"


def test_a_tied_weight_has_all_its_paths(tmp_path: Path) -> None:
    chosen = spec(tmp_path, "{default: int8, logits: fp32}").precisions()
    assert [name for name, precision in chosen.items() if precision == "float32"] == ["encoder/embed/embedding/weight"]


def test_learned_positions_are_not_rounded(tmp_path: Path) -> None:
    base = BASE.replace("40}", "40, max_positions: 9}") + "choices: {positions: learned}\ntrain: {max_length: 9}\n"
    chosen = spec(tmp_path, "{default: int8}", base).precisions()
    tables = [name for name in chosen if "embed" in name]
    assert tables == ["encoder/embed/embedding/weight"]


def test_the_weights_of_a_recurrence_are_rounded() -> None:
    from xformc.specs import SHIPPED

    chosen = load_spec(SHIPPED / "seq2seq.yaml").precisions("int8")
    assert any("lstm" in name or "gru" in name or "cell" in name for name in chosen), list(chosen)


def test_the_resolved_spec_says_the_same(tmp_path: Path) -> None:
    first = spec(tmp_path, '{default: int8, encoder: fp16, "*/0": bf16}')
    again = tmp_path / "again.yaml"
    again.write_text(first.resolved_yaml())
    assert load_spec(again).precisions() == first.precisions()


@pytest.mark.parametrize(
    ("precision", "column", "message", "hint"),
    [
        ("{decoderr: int8}", 13, "'decoderr' matches no weight of a linear layer and no embedding table", "'decoder'?"),
        (
            "{encoder/7: int8}",
            13,
            "'encoder/7' matches no weight of a linear layer and no embedding table",
            "mean 'enc",
        ),
        (
            "{encoder/0/feed_forward/inner/bias: int8}",
            13,
            "'encoder/0/feed_forward/inner/bias' matches no weight",
            "mean",
        ),
        ("{zzz: int8}", 13, "'zzz' matches no weight", "these weights are under decoder, encoder, logits"),
        ("{encoder: in8}", 22, "must be 'float32', 'float16', 'bfloat16', 'int8', 'int4', 'float8'", "mean 'int8'?"),
        ("{encoder: 8}", 22, "found 8", None),
        ('{"a b": int8}', 13, "'a b' is not a path", "a path is names with / between them"),
        ('{"": int8}', 13, "'' is not a path", "a path is names"),
        ('{"encoder/": int8}', 13, "'encoder/' is not a path", "a path is names"),
        ("int8", 12, "must be a mapping, found 'int8'", None),
    ],
)
def test_a_mistake_is_shown_at_its_place(
    tmp_path: Path, precision: str, column: int, message: str, hint: str | None
) -> None:
    with pytest.raises(SpecError) as error:
        spec(tmp_path, precision).graph()
    (problem,) = error.value.problems
    assert message in problem.message and (problem.span.line, problem.span.column) == (3, column)
    assert hint is None or (problem.hint is not None and hint in problem.hint)


def test_patterns_that_a_base_wrote_may_fit_nothing(tmp_path: Path) -> None:
    spec(tmp_path, "{default: int8, encoder/1: fp16}")
    (tmp_path / "one.yaml").write_text("extends: model\nsizes: {layers: 1}\n")
    assert set(load_spec(tmp_path / "one.yaml").precisions().values()) == {"int8"}


WORD = st.sampled_from(["a", "b", "0", "1"])


@given(
    path=st.lists(WORD, min_size=1, max_size=5),
    stars=st.lists(st.booleans(), min_size=5, max_size=5),
    count=st.integers(1, 6),
)
def test_a_beginning_with_stars_fits(path: list[str], stars: list[bool], count: int) -> None:
    beginning = ["*" if star else name for name, star in zip(path, stars, strict=False)][:count]
    assert fits("/".join(beginning), "/".join(path))
    assert not fits("/".join([*path, "*"]), "/".join(path))
    assert not fits("/".join(["c", *beginning[1:]]), "/".join(path))


@given(key=st.text(max_size=30), word=st.one_of(st.text(max_size=10), st.integers(), st.none(), st.booleans()))
def test_any_key_and_word_is_taken_or_refused_once(key: str, word: object, tmp_path_factory) -> None:
    import yaml

    path = tmp_path_factory.mktemp("fuzz") / "model.yaml"
    path.write_text(BASE + yaml.safe_dump({"precision": {key: word}}), encoding="utf-8")
    try:
        load_spec(path).graph()
    except SpecError as error:
        assert 1 <= len(error.problems) <= 2 and all(problem.span.line >= 3 for problem in error.problems)


def test_short_and_long_names_mean_the_same(tmp_path: Path) -> None:
    short = spec(tmp_path, "{default: bf16, logits: fp32}").precisions()
    assert spec(tmp_path, "{default: bfloat16, logits: float32}").precisions() == short
    base = f"{BASE}train: {{precision: bf16}}\n"
    assert spec(tmp_path, "{default: int8}", base).train.precision == "bfloat16"
