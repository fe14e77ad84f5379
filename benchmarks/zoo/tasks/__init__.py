"""The tasks of the zoo; each module describes its source and format, and has `write(folder, seed)`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks import digits, graphs, language, listops, memory, numbers, parsing, speech, tagging

Write = Callable[[Path, int], None]

TASKS: dict[str, Write] = {
    "numbers": numbers.write,
    "parsing": parsing.write,
    "tagging": tagging.write,
    "language": language.write,
    "listops": listops.write,
    "listops_long": partial(listops.write, difficulty=listops.LONG),
    "memory": memory.write,
    "digits": digits.write,
    "feature_maps": partial(digits.write, name="features"),
    "speech": speech.write,
    "graphs": graphs.write,
}
"""The function of each task that writes train, valid and test into a folder, the same for the same seed."""
