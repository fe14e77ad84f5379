"""The precision of training comes from the spec, the environment, or the hardware, in this order."""

import pytest
import torch

from xformc.errors import UserError
from xformc.trainer.hardware import VARIABLE, choose_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "chosen"), [("amx_bf16", "bfloat16"), ("avx512_bf16", "bfloat16"), ("avx2", "float32")]
)
def test_auto_is_bfloat16_where_the_processor_multiplies_it(
    name: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": False, name: True}, raising=False)
    assert choose_precision("auto", CPU) == chosen


@pytest.mark.parametrize("named", ["float32", "bfloat16"])
def test_the_variable_says_what_auto_is(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, named)
    assert choose_precision("auto", CPU) == named
    assert choose_precision("float32", CPU) == "float32"
    assert choose_precision("bfloat16", CPU) == "bfloat16"


def test_the_variable_takes_short_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "bf16")
    assert choose_precision("auto", CPU) == "bfloat16"


def test_the_variable_refuses_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "half")
    with pytest.raises(UserError, match="XFORMC_TRAIN_PRECISION is 'half'") as caught:
        choose_precision("auto", CPU)
    assert "set it to float32 or bfloat16, or unset it" in str(caught.value)
