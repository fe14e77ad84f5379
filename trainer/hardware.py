"""Chooses the device and precision for training."""

import os
from typing import Literal, cast, get_args

import torch

from xformc.errors import UserError
from xformc.format.precision import WORDS
from xformc.trainer.processes import local_rank

TrainPrecision = Literal["float32", "bfloat16"]

VARIABLE = "XFORMC_TRAIN_PRECISION"
"""The environment variable that sets the precision `auto` on this machine."""


def choose_device() -> torch.device:
    """Return this process's GPU, the first one for a single process, else the CPU.

    Raises: UserError if there are fewer GPUs than processes.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    number, count = local_rank(), torch.cuda.device_count()
    if number >= count:
        hint = "start as many processes as GPUs, or hide the GPUs with CUDA_VISIBLE_DEVICES="
        raise UserError(f"process {number} has no GPU: this machine has {count}", hint=hint)
    torch.cuda.set_device(number)
    return torch.device("cuda", number) if number else torch.device("cuda")


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
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))
