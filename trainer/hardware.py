"""Where to train, and in which precision."""

from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]


def choose_device() -> torch.device:
    """The first GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose_precision(wanted: Precision, device: torch.device) -> Literal["float32", "bfloat16"]:
    """`wanted`, where `auto` is bfloat16 if the device multiplies it in hardware."""
    if wanted != "auto":
        return wanted
    return "bfloat16" if _multiplies_bfloat16(device) else "float32"


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = getattr(torch.cpu, "get_capabilities", dict[str, bool])()
    return bool(capabilities.get("amx_bf16", False))
