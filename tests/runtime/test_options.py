import pytest

from xformc.errors import UserError
from xformc.runtime import Engine, SearchArguments, SearchOptions
from xformc.runtime.options import check_suppressed, resolve_options
from xformc.runtime.suppressed import checked_tokens, pieces_of

WRONG: list[tuple[SearchArguments, str]] = [
    ({"beam_size": 0}, "beam_size must be an integer from 1 to 40, not 0"),
    ({"beam_size": -1}, "beam_size must be an integer from 1 to 40, not -1"),
    ({"beam_size": 41}, "beam_size must be an integer from 1 to 40, not 41"),
    ({"beam_size": True}, "not True"),
    ({"beam_size": 2.0}, "not 2.0"),  # pyright: ignore[reportAssignmentType]
    ({"n_best": 0}, "n_best must be"),
    ({"n_best": 5}, "n_best must be at most beam_size, which is 4, not 5"),
    ({"beam_size": 2, "n_best": 3}, "n_best must be at most beam_size, which is 2, not 3"),
    ({"length_penalty": float("nan")}, "length_penalty must be a number from -10 to 10, not nan"),
    ({"length_penalty": float("inf")}, "length_penalty must be"),
    ({"max_length_factor": -1.0}, "max_length_factor must be a number from 0 to 100, not -1.0"),
    ({"max_length_factor": float("nan")}, "max_length_factor must be"),
    ({"max_length_offset": -1}, "max_length_offset must be an integer from 0 to 100000, not -1"),
    ({"max_length_offset": 10**9}, "max_length_offset must be"),
    ({"min_length": -1}, "min_length must be an integer from 0 to 100000, not -1"),
    ({"min_length": 1}, "has no min_length"),
    ({"preset": "huggingface"}, "has no length_penalty_kind"),
    ({"repetition_penalty": 0.0}, "repetition_penalty must be a number from 0.01 to 100, not 0.0"),
    ({"suppress_tokens": [5]}, "has no suppress_tokens"),
    ({"suppress_tokens": "one"}, "suppress_tokens must be a list of tokens, not 'one'"),
    ({"suppress_tokens": [5, 80]}, "suppress_tokens must be ids from 0 to 79 or pieces of the vocabulary, not 80"),
    ({"suppress_tokens": ["one"]}, "the engine has no tokenizer for its text, so suppress_tokens must be ids"),
    ({"patience": 0.5}, "patience must be a number from 1 to 100, not 0.5"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[str(arguments) for arguments, _ in WRONG])
def test_options_out_of_range_are_refused(engine: Engine, arguments: SearchArguments, message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve_options(engine.manifest, arguments)
    assert message in caught.value.message


def test_options_left_open_are_the_engines(engine: Engine) -> None:
    assert resolve_options(engine.manifest, {}) == SearchOptions(4, 1, 0.6, 1.0, 50)
    assert resolve_options(engine.manifest, {"beam_size": None, "n_best": 2}).n_best == 2


def test_tokens_are_named_by_their_pieces(engine: Engine) -> None:
    pieces = pieces_of(engine.tokenizer, "target", 80)
    assert pieces is not None
    first = next(one for one in pieces() if one.startswith("\u2581") and one[1:] not in pieces())
    assert checked_tokens("tokens", ["</s>", 7, first, 7], 80, pieces) == (3, 7, list(pieces()).index(first))
    with pytest.raises(UserError, match=f"tokens: the vocabulary has no token '{first[1:]}'") as caught:
        checked_tokens("tokens", [first[1:]], 80, pieces)
    assert caught.value.hint == f"the vocabulary has '{first}', which begins a word"


def test_some_tokens_are_left_to_write(engine: Engine) -> None:
    with pytest.raises(UserError, match="has 73 of the 80 tokens of the vocabulary; at least 8 must be left"):
        check_suppressed(engine.manifest, tuple(range(73)), 8)
    with pytest.raises(UserError, match="suppress_tokens must be ids from 0 to 79, not 80"):
        check_suppressed(engine.manifest, (80,), 8)
