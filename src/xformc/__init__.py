"""xformc: one YAML spec becomes a PyTorch module to train and an ONNX engine to ship, checked against each other.

The names below are the whole API. They load when they are first used, so that `import xformc` needs none of the
optional packages, and an engine runs without PyTorch.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from xformc.errors import UserError
from xformc.extras import explain_missing

if TYPE_CHECKING:
    from xformc.api import Spec, build, list_specs, load_spec, train
    from xformc.format.certificate import Certificate
    from xformc.runtime import (
        Alignment,
        Continuation,
        Engine,
        Hypothesis,
        Prediction,
        SearchResult,
        load,
        minimum_bayes_risk,
    )
    from xformc.trainer.train import TrainResult
    from xformc.verification import verify

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "Certificate",
    "Continuation",
    "Engine",
    "Hypothesis",
    "Prediction",
    "SearchResult",
    "Spec",
    "TrainResult",
    "UserError",
    "build",
    "list_specs",
    "load",
    "load_spec",
    "minimum_bayes_risk",
    "train",
    "verify",
]

_HOMES = {
    **dict.fromkeys(("Spec", "build", "list_specs", "load_spec", "train"), "xformc.api"),
    **dict.fromkeys(
        (
            *("Alignment", "Continuation", "Engine", "Hypothesis", "Prediction", "SearchResult"),
            *("load", "minimum_bayes_risk"),
        ),
        "xformc.runtime",
    ),
    "Certificate": "xformc.format.certificate",
    "TrainResult": "xformc.trainer.train",
    "verify": "xformc.verification",
}

# ONNX Runtime reads this when it is imported. Unless told not to, it reports the program and its models to its maker.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'xformc' has no attribute {name!r}")
    try:
        value: object = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        raise explain_missing(error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
