"""Errors reach other processes whole."""

import pickle
from pathlib import Path

import pytest

from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.runtime import Engine


def again(error: UserError) -> UserError:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (str(found), found.message, found.place, found.hint) == (str(error), error.message, error.place, error.hint)
    return found


def test_an_error_of_a_text_reaches_another_process(engine: Engine) -> None:
    with pytest.raises(UserError, match=r"tokens; this engine takes at most") as caught:
        engine.translate(["hello " * 5000])
    assert vars(again(caught.value))["budget"] > 5000


def test_an_error_of_a_spec_reaches_another_process(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("extends: gpt\nsizes: {x: 4}\nchoices: {norm: 3}\n")
    with pytest.raises(UserError) as caught:
        load_spec(tmp_path / "wrong.yaml")
    assert len(vars(again(caught.value))["problems"]) == 2
