"""The inputs and outputs that the model of an engine has, by its task."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.format.manifest import Input


@dataclass(frozen=True)
class Interface:
    """The names of a model's inputs, those with defaults included, and of its outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


RESULTS = ("tokens", "lengths", "scores")
"""The outputs of a model that writes text."""

SEARCH = Interface(
    ("source", "beam_size", "n_best", "length_penalty", "max_length_factor", "max_length_offset"), RESULTS
)
"""The model of a translation engine."""

OLD_NAMES: Mapping[str, str] = {"beam_size": "beam_width"}
"""What inputs are called in models of older engines, by their names of today."""

SAMPLING = Interface(("prompt", "seed", "max_new_tokens", "temperature", "top_k", "top_p"), RESULTS)
"""The model of a language model's engine."""

_FIXED = {"translation": SEARCH, "language_model": SAMPLING}


def interface(task: str, inputs: Mapping[str, Input]) -> Interface:
    """The interface of an engine of this task: one that gives labels has the inputs of its spec."""
    return _FIXED.get(task) or Interface(model_inputs(inputs), ("probabilities",))


def model_inputs(inputs: Mapping[str, Input]) -> tuple[str, ...]:
    """The names of the model's inputs: those of the spec, in order, and the mask after each of vectors."""
    names: list[str] = []
    for name, item in inputs.items():
        names += [name, f"{name}_mask"] if item.kind == "vectors" else [name]
    return tuple(names)
