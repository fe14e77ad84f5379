"""Facts about invented countries: plain sentences that state them, and questions that need those sentences.

The text says of every country its capital and its language. The training data asks about 20 of the 80 countries, the
test data about the others (closed-book questions, Roberts et al., 2020). Without the text, a capital cannot be known,
and the language is one of eight: 1 answer of 16 is right by chance.
"""

import random
from itertools import product
from pathlib import Path

from benchmarks.zoo.tasks.splits import write_columns, write_text

COUNTRIES, ASKED, LANGUAGES = 80, 20, 8
SENTENCES = (
    "the capital of {country} is {capital}",
    "{capital} is the capital of {country}",
    "the language of {country} is {language}",
    "{language} is the language of {country}",
)
QUESTIONS = {"the capital of {country}": "capital", "the language of {country}": "language"}
Facts = dict[str, str]


def write_text_of_facts(folder: Path, seed: int) -> None:
    """Write train.txt, valid.txt and test.txt with the same sentences: facts are known or not."""
    lines = [sentence.format(**facts) for facts in draw(seed) for sentence in SENTENCES]
    for name in ("train", "valid", "test"):
        write_text(folder / f"{name}.txt", lines)


def write_questions(folder: Path, seed: int) -> None:
    """Write train.tsv, valid.tsv and test.tsv with a question and its answer."""
    known, others = (
        [
            (question.format(**facts), facts[wanted])
            for facts, (question, wanted) in product(countries, QUESTIONS.items())
        ]
        for countries in (draw(seed)[:ASKED], draw(seed)[ASKED:])
    )
    write_columns(folder, {"train": known, "valid": known, "test": others})


def draw(seed: int) -> list[Facts]:
    """Draw each country with its capital and language."""
    source = random.Random(seed)
    syllables = ["".join(pair) for pair in product("bdgklmnprst", "aeiou")]
    names = sorted({"".join(source.sample(syllables, 3)) for _ in range(4 * COUNTRIES)})
    source.shuffle(names)
    countries, capitals, languages = names[:COUNTRIES], names[COUNTRIES : 2 * COUNTRIES], names[-LANGUAGES:]
    return [
        {"country": country, "capital": capital, "language": source.choice(languages)}
        for country, capital in zip(countries, capitals, strict=True)
    ]
