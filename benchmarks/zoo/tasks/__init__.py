"""The tasks of the zoo; each module describes its source and format, and has `write(folder, seed)`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.zoo.tasks import (
    digits,
    facts,
    formulas,
    graphs,
    language,
    listops,
    memory,
    numbers,
    orders,
    parsing,
    pronouns,
    quality,
    questions,
    roles,
    shapes,
    speech,
    spoken,
    tagging,
)

Write = Callable[[Path, int], None]

TASKS: dict[str, Write] = {
    "numbers": numbers.write,
    "parsing": parsing.write,
    "tagging": tagging.write,
    "few_tags": partial(tagging.write, train=tagging.FEW),
    "language": language.write,
    "listops": listops.write,
    "listops_long": partial(listops.write, difficulty=listops.LONG),
    "memory": memory.write,
    "digits": digits.write,
    "feature_maps": partial(digits.write, name="features"),
    "speech": speech.write,
    "spoken": spoken.write,
    "graphs": graphs.write,
    "aisles": orders.write_aisles,
    "prices": orders.write_prices,
    "paraphrases": roles.write_paraphrases,
    "answers": roles.write_answers,
    "facts": facts.write_text_of_facts,
    "capitals": facts.write_questions,
    "masked_text": language.write,
    "shapes": shapes.write,
    "questions": questions.write,
    "formulas": formulas.write,
    "pronouns": pronouns.write,
    "misspelled": quality.write,
}
"""The function of each task that writes train, valid and test into a folder, the same for the same seed."""
