"""Functions that allow tokens in a beam search: what the reference search finds with the same mask at each step."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import engine_parameters
from xformc.compiler.certify.reference_search import search
from xformc.compiler.certify.subject import Subject
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.names import MODEL, SPEC
from xformc.format.targets import Target
from xformc.runtime import Engine, load
from xformc.runtime.options import resolve_options

pytestmark = pytest.mark.processor

END = 3


def some(tokens: Sequence[int], pieces: int) -> np.ndarray:
    """A random half of the vocabulary, which depends on the tokens so far; the end token after three of them."""
    mask = np.random.default_rng([7, *tokens]).random(pieces) < 0.5
    mask[END] = len(tokens) >= 3 and sum(tokens) % 2 == 0
    return mask


def out_of_range(tokens: Sequence[int]) -> list[int]:
    return [-1]


@dataclass(frozen=True)
class Allowing:
    """The language of a function, as the reference search takes it."""

    pieces: int
    room: int = 1

    def allowed(self, tokens: Sequence[int], left: int) -> np.ndarray:
        mask = some(tokens, self.pieces).copy()
        mask[[0, 2]] = False
        return mask


@pytest.fixture(scope="module", params=["portable", "native"])
def folder(request: pytest.FixtureRequest, small_engines: SmallEngines) -> Path:
    target: Target = request.param
    return small_engines("covering", target)


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(folder, threads=1)


@pytest.fixture(scope="module")
def subject(folder: Path, engine: Engine) -> Subject:
    program = compile_engine(load_spec(folder / SPEC), engine.manifest.target)
    module = TorchModule(program.graph).eval()
    module.load_arrays(engine_parameters(program.graph, folder / MODEL))
    return Subject(program, module, folder)


CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "without coverage": {"coverage_penalty": 0.0},
    "greedy": {"beam_size": 1, "n_best": 1},
    "best": {"stop_rule": "best", "length_penalty_kind": "average", "length_penalty": 1.0},
    "complete": {"stop_rule": "complete", "beam_size": 4, "n_best": 4, "min_length": 5},
    "patience": {"patience": 2.0, "repetition_penalty": 1.2},
    "long": {"max_length_offset": 14, "beam_size": 2, "n_best": 2},
}


@pytest.mark.parametrize("name", CASES)
def test_texts_are_those_of_the_reference_search(engine: Engine, subject: Subject, name: str) -> None:
    pieces, tokenizer = engine.manifest.inputs["target"].pieces, engine.tokenizer
    options: Any = CASES[name]
    language: Any = Allowing(pieces)
    assert tokenizer is not None
    texts, prefixes = TEXTS[:3], [(), (9, 8), ()]
    found = engine.translate(texts, prefixes=prefixes, allowed=lambda tokens: some(tokens, pieces), **options)
    resolved, compared = resolve_options(engine.manifest, options), 0
    for text, prefix, hypotheses in zip(texts, prefixes, found, strict=True):
        source = {"source": np.array(tokenizer.encode("source", text), np.int64)}
        wanted = search(
            subject.scorer(source),
            len(source["source"]),
            resolved,
            subject.program.longest,
            subject.special,
            prefix,
            language=language,
            coverage=subject.coverage(source),
        )
        if wanted.margin < 1e-5:
            continue
        assert [one.tokens for one in hypotheses] == [one.tokens for one in wanted.hypotheses][: resolved.n_best]
        scores = [one.score for one in wanted.hypotheses][: resolved.n_best]
        assert [one.score for one in hypotheses] == pytest.approx(scores, abs=1e-4)
        compared += 1
        for one in hypotheses:
            own = one.tokens[len(prefix) :]
            assert all(some(own[:place], pieces)[token] for place, token in enumerate(own))
    assert compared


def test_a_function_is_asked_once_for_each_text(engine: Engine) -> None:
    asked = Counter[tuple[int, ...]]()

    def allowed(tokens: Sequence[int]) -> list[int]:
        asked[tuple(tokens)] += 1
        return [5, 6, 7, 8, END]

    engine.translate([TEXTS[0]], allowed=allowed, stop_rule="best")
    assert set(asked.values()) == {1} and len(asked) > 10
    assert {text[:-1] for text in asked if text} <= set(asked), "and for all that it begins with before"


@pytest.mark.parametrize("rule", ["first", "best"])
def test_searches_that_are_done_ask_no_more(engine: Engine, monkeypatch: pytest.MonkeyPatch, rule: Any) -> None:
    """Texts repeat a token until they end. The results are those of asking up to the limit."""
    longest: dict[int, set[int]] = {}
    results: dict[int, Any] = {}
    for checked in (3, 1000):
        monkeypatch.setattr("xformc.runtime.searching.allow.CHECKED", checked)
        for token in (5, 9):
            asked: list[int] = []

            def allowed(tokens: Sequence[int], token: int = token, asked: list[int] = asked) -> list[int]:
                asked.append(len(tokens))
                return [token, END]

            options: Any = {"max_length_offset": 10, "beam_size": 2, "n_best": 2, "stop_rule": rule}
            found = engine.translate(TEXTS[1:2], allowed=allowed, coverage_penalty=0.0, **options)
            longest.setdefault(checked, set()).add(max(asked))
            assert results.setdefault(token, found) == found
    assert min(longest[3]) < min(longest[1000]), "no search stops early"


def test_a_text_that_nothing_may_follow_is_an_error(engine: Engine) -> None:
    with pytest.raises(UserError, match="allowed leaves a text without tokens that may follow"):
        engine.translate(TEXTS[:2], allowed=lambda tokens: [5] if len(tokens) < 2 else [])
    (some_left,) = engine.translate(TEXTS[:1], allowed=lambda tokens: [] if tokens[:1] == [5] else [5, 6, END])
    assert all(5 not in one.tokens for one in some_left), "only such hypotheses die"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regex": "a*"}, "regex and allowed exclude each other"),
        ({"phrases": [["a"]]}, "allowed and phrases exclude each other"),
        ({"samples": 2}, "allowed and samples exclude each other"),
        ({"slots": 2}, "allowed and slots exclude each other"),
        ({"alternatives": 2}, "alternatives and allowed exclude each other"),
        ({"beam_groups": 3}, "allowed and beam_groups exclude each other"),
        ({"prefix_bias": 0.5}, "allowed and prefix_bias exclude each other"),
        ({"prefix_bias": [0.5]}, "allowed and prefix_bias exclude each other"),
        ({"stop_rule": "shrink"}, "allowed has no search with the stop rule shrink"),
        ({"each": [{"preset": "marian"}]}, "allowed has no search with the stop rule shrink"),
        ({"allowed": [5]}, "allowed must be a function"),
        ({"allowed": out_of_range}, "allowed must return ids from 0 to"),
    ],
)
def test_what_does_not_go_with_functions_is_refused(engine: Engine, options: dict[str, Any], message: str) -> None:
    def allowed(tokens: Sequence[int]) -> list[int]:
        return [5, END]

    given: Any = {"allowed": allowed, **options}
    with pytest.raises(UserError, match=message):
        engine.translate(TEXTS[:1], **given)


def test_functions_for_too_many_texts_are_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xformc.runtime.searching.allow.MAX_CELLS", 1000)
    with pytest.raises(UserError, match=r"allowed was asked for \d+ texts at once"):
        engine.translate(TEXTS[:1], allowed=lambda _: [5, 6, 7, 8, END])
