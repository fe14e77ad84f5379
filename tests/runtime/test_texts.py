"""The maximum number of tokens of a text."""

import pytest

from xformc.errors import UserError
from xformc.runtime.text.texts import Limit, TooLongError, encode_line, prompt_limit, whole_limit


def test_a_models_own_bound_is_the_limit() -> None:
    assert whole_limit(512, 100_000) == Limit(512)
    assert prompt_limit(512, 100_000) == Limit(511), "one position is left for a token"


@pytest.mark.parametrize(("max_batch_tokens", "limit"), [(1, 16_384), (16_384, 16_384), (100_000, 100_000)])
def test_the_batch_is_the_limit_of_a_model_without_a_bound(max_batch_tokens: int, limit: int) -> None:
    assert prompt_limit(None, max_batch_tokens).tokens == limit
    assert whole_limit(None, max_batch_tokens).tokens == limit // 4


def test_the_hint_names_the_callers_options_and_the_batch_that_is_needed() -> None:
    error = TooLongError(1, 5000, whole_limit(None, 2048))
    assert error.hint == "split it into shorter texts"
    assert error.advised("--truncate").hint == "split it into shorter texts, or cut it with --truncate"
    assert "; with enough memory, --max-batch-tokens 20000 " in str(error.advised("-t", "--max-batch-tokens ").hint)
    taken = whole_limit(None, error.budget or 0).tokens
    assert taken == 5000, "the number in the hint is enough"


def test_no_batch_is_large_enough_for_a_models_own_bound() -> None:
    assert "--max-batch-tokens" not in str(TooLongError(1, 600, Limit(512)).advised("-t", "--max-batch-tokens ").hint)


def test_a_text_that_is_cut_keeps_its_last_tokens() -> None:
    def cut(tail: int) -> list[int]:
        return encode_line(1, "", encode=lambda _: [5, 6, 7, 8, 3], limit=Limit(3), truncate=True, tail=tail)

    assert (cut(0), cut(1), cut(3)) == ([5, 6, 7], [5, 6, 3], [7, 8, 3])
    with pytest.raises(UserError, match="line 7: 5 tokens; this engine takes at most 3"):
        encode_line(7, "", encode=lambda _: [5, 6, 7, 8, 3], limit=Limit(3), truncate=False)
