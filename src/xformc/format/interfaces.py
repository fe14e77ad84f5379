"""The inputs and outputs of an engine's model, by task."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.format.manifest import Input


@dataclass(frozen=True)
class Interface:
    """The names of a model's inputs, those with defaults included, and of its outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


RESULTS = ("tokens", "lengths", "scores")
"""The outputs of a model that generates text."""

SEARCH = Interface(
    ("source", "beam_size", "n_best", "length_penalty", "max_length_factor", "max_length_offset"), RESULTS
)
"""The interface of a translation model."""

OLD_NAMES: Mapping[str, str] = {"beam_size": "beam_width"}
"""Current input names, and the names of the same inputs in the models of older engines."""

SAMPLING = Interface(("prompt", "seed", "max_new_tokens", "temperature", "top_k", "top_p"), RESULTS)
"""The interface of a language model."""

_FIXED = {"translation": SEARCH, "language_model": SAMPLING}


def interface(task: str, inputs: Mapping[str, Input]) -> Interface:
    """Return the interface of an engine of this task; `inputs` are those of its spec.

    An engine that predicts labels takes the inputs of its spec.
    """
    return _FIXED.get(task) or Interface(model_inputs(inputs), ("probabilities",))


def model_inputs(inputs: Mapping[str, Input]) -> tuple[str, ...]:
    """Return the names of the model's inputs: the spec's, in order, with a mask after each input of vectors."""
    names: list[str] = []
    for name, item in inputs.items():
        names += [name, f"{name}_mask"] if item.kind == "vectors" else [name]
    return tuple(names)
