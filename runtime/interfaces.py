"""The inputs and outputs that the model of an engine has, by its task."""

from collections.abc import Mapping

from xformc.runtime.generate import SAMPLING
from xformc.runtime.manifest import Input
from xformc.runtime.rows import model_inputs
from xformc.runtime.search import SEARCH
from xformc.runtime.session import Interface

_FIXED = {"translation": SEARCH, "language_model": SAMPLING}


def interface(task: str, inputs: Mapping[str, Input]) -> Interface:
    """The interface of an engine of this task: one that gives labels has the inputs of its spec."""
    return _FIXED.get(task) or Interface(model_inputs(inputs), ("probabilities",))
