"""Chooses the device and precision for training."""

import os
from typing import Literal, cast, get_args

import torch

from xformc.errors import UserError
from xformc.format.precision import WORDS

TrainPrecision = Literal["float32", "bfloat16"]

VARIABLE = "XFORMC_TRAIN_PRECISION"
"""The environment variable that sets the precision `auto` on this machine."""


def choose_device() -> torch.device:
    """Return the first GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose_precision(wanted: str, device: torch.device) -> TrainPrecision:
    """Return the precision `wanted`; `auto` is the value of `VARIABLE`, or bfloat16 if the hardware multiplies it.

    Raises: UserError if the variable has an invalid value.
    """
    if wanted != "auto":
        return cast(TrainPrecision, wanted)
    said = os.environ.get(VARIABLE)
    if not said:
        return "bfloat16" if _multiplies_bfloat16(device) else "float32"
    named = WORDS.get(said, said)
    names = get_args(TrainPrecision)
    if named not in names:
        raise UserError(f"{VARIABLE} is {said!r}", hint=f"set it to {' or '.join(names)}, or unset it")
    return cast(TrainPrecision, named)


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = getattr(torch.cpu, "get_capabilities", dict[str, bool])()
    return bool(capabilities.get("amx_bf16", False))
