"""The zoo's tasks: their answers agree with independent computations, and splits share no examples."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.zoo.tasks import (
    TASKS,
    facts,
    formulas,
    graphs,
    language,
    listops,
    memory,
    numbers,
    orders,
    pronouns,
    quality,
    shapes,
    speech,
    spoken,
)
from benchmarks.zoo.tasks.grammar import ENGLISH, leaves, read_grammar, sentence
from xformc.runtime.media.wav import read_wav

TEXT = {
    "parsing": 1,
    "tagging": 1,
    "few_tags": 1,
    "listops": 1,
    "listops_long": 1,
    "memory": 2,
    "numbers": 1,
    "aisles": 1,
    "prices": 1,
    "paraphrases": 1,
    "misspelled": 1,
}
"""Task -> the columns that are given, before the answer."""
ARRAYS = {
    "digits": ("image",),
    "feature_maps": ("features",),
    "speech": ("frames",),
    "graphs": ("nodes", "edges"),
    "shapes": ("image",),
    "questions": ("image", "question"),
    "formulas": ("image",),
}
OTHERS = {"language", "masked_text", "facts", "capitals", "answers", "pronouns", "spoken"}
SPLITS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every task's folder, made when it is asked for; with fewer examples to train on if drawing them takes long."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (numbers, quality, shapes, speech):
            patch.setattr(module, "TRAIN", 1_000)
        fewer = replace(listops.LONG, train=10_000)
        patch.setitem(TASKS, "listops_long", partial(listops.write, difficulty=fewer))
        yield tmp_path_factory.mktemp("zoo")


def folder(data: Path, task: str) -> Path:
    if not (data / task).exists():
        if task in ("digits", "feature_maps"):
            pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
        TASKS[task](data / task, 1)
    return data / task


def rows(data: Path, task: str, split: str) -> list[list[str]]:
    lines = (folder(data, task) / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def arrays(data: Path, task: str, split: str) -> dict[str, np.ndarray]:
    with np.load(folder(data, task) / f"{split}.npz", allow_pickle=False) as file:
        return dict(file)


def test_every_task_is_tested() -> None:
    assert TASKS.keys() == {*TEXT, *ARRAYS, *OTHERS}


@pytest.mark.parametrize("task", TEXT)
def test_no_text_is_in_two_splits(data: Path, task: str) -> None:
    given = {split: {tuple(row[: TEXT[task]]) for row in rows(data, task, split)} for split in SPLITS}
    assert not given["train"] & given["valid"] and not given["train"] & given["test"]
    assert not given["valid"] & given["test"]


@pytest.mark.parametrize("task", ARRAYS)
def test_no_array_is_in_two_splits(data: Path, task: str) -> None:
    found = [arrays(data, task, split) for split in SPLITS]
    rows = [
        b"".join(part.tobytes() for part in row)
        for split in found
        for row in zip(*(split[name] for name in ARRAYS[task]), strict=True)
    ]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("task", ["tagging", "memory", "graphs"])
def test_same_seed_gives_the_same_bytes_and_another_does_not(data: Path, tmp_path: Path, task: str) -> None:
    first = folder(data, task)
    TASKS[task](tmp_path / "same", 1)
    TASKS[task](tmp_path / "other", 2)
    for path in first.iterdir():
        assert path.read_bytes() == (tmp_path / "same" / path.name).read_bytes()
        assert path.read_bytes() != (tmp_path / "other" / path.name).read_bytes()


@pytest.mark.parametrize(("task", "difficulty"), [("listops", listops.SHORT), ("listops_long", listops.LONG)])
def test_listops_labels_are_what_a_stack_machine_finds(data: Path, task: str, difficulty: listops.Difficulty) -> None:
    found = rows(data, task, "test")
    for text, label in found:
        assert run_stack(text.split()) == int(label), text
        assert difficulty.words[0] <= len(text.split()) <= difficulty.words[1]
    counts = Counter(label for _, label in rows(data, task, "train"))
    assert len(counts) == 10 and max(counts.values()) < 1.3 * min(counts.values())


@pytest.mark.parametrize(("task", "most"), [("listops", 0.4), ("listops_long", 0.3)])
def test_listops_needs_more_than_the_outer_operator_and_its_own_digits(data: Path, task: str, most: float) -> None:
    seen: dict[tuple[object, ...], Counter[str]] = {}
    for text, label in rows(data, task, "train"):
        seen.setdefault(surface(text.split()), Counter())[label] += 1
    found = rows(data, task, "test")
    guesses = [seen.get(surface(text.split()), Counter("0")).most_common(1)[0][0] for text, _ in found]
    assert 0.2 < sum(guess == label for guess, (_, label) in zip(guesses, found, strict=True)) / len(found) < most


def surface(words: list[str]) -> tuple[object, ...]:
    depth = np.cumsum([word.startswith("[") - (word == "]") for word in words])
    digits = [word for word, level in zip(words, depth, strict=True) if level == 1 and word.isdecimal()]
    return words[0], max(digits, default=""), min(digits, default="")


def run_stack(words: list[str]) -> int:
    stack: list[str | int] = []
    for word in words:
        stack.append(int(word) if word.isdecimal() else word)
        if word == "]":
            stack.pop()
            values: list[int] = []
            while isinstance(top := stack.pop(), int):
                values.append(top)
            stack.append(apply(top, sorted(values)))
    [value] = stack
    assert isinstance(value, int)
    return value


def apply(name: str, values: list[int]) -> int:
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2
    return {"[MIN": values[0], "[MAX": values[-1], "[MED": middle, "[SM": sum(values) % 10}[name]


def test_memory_answers_follow_from_the_last_facts(data: Path) -> None:
    twice = 0
    for story, question, place in rows(data, "memory", "test"):
        facts = [fact.split("-") for fact in reversed(story.split())]
        who = question
        if question in memory.THINGS:
            twice += 1
            who = next(person for person, what in facts if what == question)
        assert next(what for person, what in facts if person == who and what in memory.PLACES) == place
    assert 50 < twice < 250


def test_graph_labels_are_the_most_frequent_colours_along_the_edges(data: Path) -> None:
    found = arrays(data, "graphs", "valid")
    changed = total = 0
    for nodes, edges, labels in zip(found["nodes"], found["edges"], found["labels"], strict=True):
        count = int((nodes > 0).sum())
        assert (edges == edges.T).all() and edges.diagonal()[:count].all() and not edges[count:].any()
        assert (labels[count:] == "").all() and (nodes[:count] > 0).all()
        for node in range(count):
            seen = Counter(int(nodes[other]) for other in np.flatnonzero(edges[node]))
            best = min(seen, key=lambda colour: (-seen[colour], colour))
            assert labels[node] == graphs.COLOURS[best - graphs.FIRST_TOKEN]
            changed, total = changed + (best != nodes[node]), total + 1
    assert changed / total > 0.3


def test_digits_are_small_images_of_ten_kinds(data: Path) -> None:
    found = arrays(data, "digits", "train")
    assert found["image"].shape == (997, 8, 8, 1) and found["image"].dtype == np.float32
    assert (found["image"].min(), found["image"].max()) == (0, 1)
    assert set(found["labels"].tolist()) == set(range(10))


def test_speech_frames_are_ten_milliseconds_apart_and_padded_with_zero(data: Path) -> None:
    found = arrays(data, "speech", "test")
    lengths = found["frames_lengths"]
    assert found["frames"].shape == (500, found["frames"].shape[1], speech.BANDS)
    assert set(found["labels"].tolist()) == set(speech.DIGITS)
    for frames, length in zip(found["frames"], lengths, strict=True):
        assert not frames[length:].any() and abs(float(frames[:length].mean())) < 1e-4
    assert lengths.min() > 8 and lengths.max() < 65


def test_filterbank_finds_the_band_of_a_tone() -> None:
    time = np.arange(4_000) / speech.RATE
    frames = speech.filterbank(np.sin(2 * np.pi * 1_000 * time))
    assert frames.shape == (1 + (4_000 - 200) // 80, speech.BANDS)
    centres = [1 / (row.nonzero()[0] * speech.RATE / speech.SPECTRUM).mean() for row in speech.mel_bands()]
    assert set(frames.argmax(1)) == {int(np.argmin(np.abs(1 / np.array(centres) - 1_000)))}


def test_speech_is_told_apart_by_its_mean_spectrum_far_from_perfectly(data: Path) -> None:
    def means(split: str) -> tuple[np.ndarray, np.ndarray]:
        found = arrays(data, "speech", split)
        return found["frames"].sum(1) / found["frames_lengths"][:, None], found["labels"]

    (train, names), (test, labels) = means("train"), means("test")
    centres = np.stack([train[names == name].mean(0) for name in speech.DIGITS])
    nearest = np.array(list(speech.DIGITS))[((test[:, None] - centres) ** 2).sum(-1).argmin(1)]
    assert 0.3 < (nearest == labels).mean() < 0.95


def test_every_sentence_has_one_tree() -> None:
    source = random.Random(5)
    for _ in range(2_000):
        assert ENGLISH.parses(sentence(ENGLISH.draw(source)))[0] == 1


def test_grammar_refuses_what_disagrees() -> None:
    assert language.is_sentence("the dog that sees many cats sleeps")
    assert not language.is_sentence("the dog that sees many cats sleep")
    assert not language.is_sentence("the dog")
    assert not language.is_sentence("")


def test_tree_of_the_grammar_has_the_tags_that_the_words_need() -> None:
    tree = next(tree for tree in trees(7) if "that" in sentence(tree))
    assert {leaf.label for leaf in leaves(tree) if leaf.word == "that"} <= {"DT", "IN", "WDT"}


def trees(seed: int):
    source = random.Random(seed)
    while True:
        yield ENGLISH.draw(source)


def test_probabilities_of_all_sentences_add_up_to_one() -> None:
    toy = read_grammar("S -> A B 1 | A S 1\n", "A: a b\nB: c\n")
    short = [" ".join(words) for size in range(2, 9) for words in product("abc", repeat=size)]
    assert sum(toy.parses(text.split())[1] for text in short) == pytest.approx(1 - 2**-7)


def test_entropy_is_the_mean_information_of_the_sentences() -> None:
    entropy, length = ENGLISH.entropy_and_length()
    source = random.Random(9)
    found = [sentence(ENGLISH.draw(source)) for _ in range(4_000)]
    information = [-math.log(ENGLISH.parses(words)[1]) for words in found]
    assert np.mean(information) == pytest.approx(entropy, rel=0.02)
    assert np.mean([len(words) for words in found]) == pytest.approx(length, rel=0.02)


def test_best_perplexity_of_the_held_out_text_is_near_the_entropy(data: Path) -> None:
    texts = (folder(data, "language") / "test.txt").read_text().splitlines()
    entropy, length = ENGLISH.entropy_and_length()
    assert language.best_perplexity(texts) == pytest.approx(math.exp(entropy / (length + 1)), rel=0.05)
    assert all(map(language.is_sentence, texts))


def test_language_text_holds_nothing_out_twice(data: Path) -> None:
    found = [set((folder(data, "language") / f"{split}.txt").read_text().splitlines()) for split in SPLITS]
    assert not found[0] & found[1] and not found[0] & found[2] and not found[1] & found[2]


def test_tags_need_more_than_the_word(data: Path) -> None:
    counts: dict[str, Counter[str]] = {}
    for text, tags in rows(data, "tagging", "train"):
        assert len(text.split()) == len(tags.split())
        for word, tag in zip(text.split(), tags.split(), strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    pairs = [
        pair for text, tags in rows(data, "tagging", "test") for pair in zip(text.split(), tags.split(), strict=True)
    ]
    assert 0.8 < np.mean([counts[word].most_common(1)[0][0] == tag for word, tag in pairs]) < 0.9
    assert (len(counts), len({tag for each in counts.values() for tag in each})) == (71, 9)


def test_spoken_digits_are_wavs_that_last_as_long_as_their_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in SPLITS:
        monkeypatch.setattr(spoken, split.upper(), 20)
    spoken.write(tmp_path, 1)
    seconds: dict[int, list[float]] = {}
    for split in SPLITS:
        for line in (tmp_path / f"{split}.tsv").read_text().splitlines():
            name, text = line.split("\t")
            assert set(text.split()) <= set(speech.DIGITS)
            rate, samples = read_wav(tmp_path / name)
            assert rate == speech.RATE and np.abs(samples).max() <= 0.9
            seconds.setdefault(len(text.split()), []).append(len(samples) / rate)
    assert sorted(seconds) == [1, 2, 3, 4]
    assert all(0.25 < np.mean(lengths) / count < 0.5 for count, lengths in seconds.items())


def test_parsing_trees_are_balanced_over_the_words_of_the_sentence(data: Path) -> None:
    found = set[str]()
    for text, tree in rows(data, "parsing", "train")[:2_000]:
        brackets = {word for word in tree.split() if word[0] in "()"}
        assert [word for word in tree.split() if word not in brackets] == text.split()
        assert re.fullmatch(r"\(S .+ \)", tree) and tree.count("(") == tree.count(")")
        found |= brackets
    assert found == {"(S", "(NP", "(VP", "(PP", "(SBAR", ")"}
    assert (folder(data, "parsing") / "test.trees").read_text().splitlines() == [
        tree for _, tree in rows(data, "parsing", "test")
    ]


def test_a_model_that_overlooks_a_word_finds_fewer_aisles_and_another_price(data: Path) -> None:
    hits = total = 0
    for text, wanted in rows(data, "aisles", "test"):
        seen = {aisle for aisle, things in orders.AISLES.items() if set(text.split()) & things.keys()}
        asked = set(wanted.split()) - {"-"}
        assert asked <= seen
        hits, total = hits + len(asked), total + len(seen) + len(asked)
    assert 2 * hits / total < 0.9
    prices = np.array(
        [
            (price(text), price(text.replace("large ", "")), float(wanted))
            for text, wanted in rows(data, "prices", "test")
        ]
    )
    assert (prices[:, 0] == prices[:, 2]).all() and np.abs(prices[:, 1] - prices[:, 2]).mean() > 3
    assert np.abs(prices[:, 2] - np.median(prices[:, 2])).mean() > 8


def price(text: str) -> int:
    total = 0
    for count, *size, thing in (item.split() for item in text.split(" , ")):
        (single,) = (things[thing] for things in orders.AISLES.values() if thing in things)
        total += orders.COUNTS[count] * single * (1 + len(size))
    return total


def test_paraphrases_need_the_order_of_words(data: Path) -> None:
    found = rows(data, "paraphrases", "test")
    bags = Counter(tuple(sorted(active.split())) for active, _ in found)
    assert all(count % 2 == 0 for count in bags.values()) and len(set(map(tuple, found))) == len(found) == 500


def test_answers_need_the_order_of_words(data: Path) -> None:
    found = rows(data, "answers", "test")
    assert 0.4 < np.mean([label == "yes" for *_, label in found]) < 0.6
    same = [label for question, sentence, label in found if bag(question) <= bag(sentence)]
    assert 0.6 < np.mean([label == "yes" for label in same]) < 0.73


def bag(text: str) -> set[str]:
    return {word[:3] for word in text.split()} - {"who", "is", "by", "the"}


def test_facts_of_the_test_questions_are_in_the_text_alone(data: Path) -> None:
    text = (folder(data, "facts") / "train.txt").read_text().splitlines()
    known, asked = rows(data, "capitals", "train"), rows(data, "capitals", "test")
    assert len(known) == 2 * facts.ASKED and len(asked) == 2 * (facts.COUNTRIES - facts.ASKED)
    assert not {question for question, _ in known} & {question for question, _ in asked}
    assert all(f"{question} is {answer}" in text for question, answer in known + asked)
    capitals = [answer for question, answer in known + asked if "capital" in question]
    assert len(set(capitals)) == len(capitals)


def test_pronouns_need_the_sentence_before(data: Path) -> None:
    chosen: dict[str, set[str]] = {}
    for sentence_, german, before in rows(data, "pronouns", "train"):
        pronoun = german.split()[0]
        assert pronouns.PRONOUNS[pronouns.NOUNS[before.split()[1]][1]] == pronoun
        chosen.setdefault(sentence_, set()).add(pronoun)
    assert all(found == {"er", "sie", "es"} for found in chosen.values())


def test_misspelled_words_are_as_many_as_the_quality_says(data: Path) -> None:
    from num2words import num2words

    words = {word for number in range(1_000) for word in num2words(number).split()} | {"thousand", "thousand,"}
    shares = [float(share) for *_, share in rows(data, "misspelled", "test")]
    for text, _, share in rows(data, "misspelled", "test"):
        assert sum(word in words for word in text.split()) / len(text.split()) == pytest.approx(float(share), abs=1e-3)
    assert np.abs(np.array(shares) - np.median(shares)).mean() > 0.2


@pytest.mark.parametrize("task", ["shapes", "formulas"])
def test_a_caption_belongs_to_its_image(data: Path, task: str) -> None:
    """The nearest image of the training data has another caption."""
    train, test = arrays(data, task, "train"), arrays(data, task, "test")
    assert test["image"].min() == 0 and test["image"].max() == 1 and test["image"].dtype == np.float32
    given, asked = (part["image"].reshape(len(part["image"]), -1) for part in (train, test))
    nearest = ((given**2).sum(1) - 2 * asked @ given.T).argmin(1)
    right = (train["caption"][nearest] == test["caption"]).mean()
    assert right == 0 and {*"".join(test["caption"])} <= {*"".join(train["caption"])}


def test_signs_of_formulas_differ() -> None:
    assert len(set(formulas.SIGNS.values())) == len(formulas.SIGNS)
    quiet = np.random.default_rng(0)
    assert formulas.image(quiet, "x^2").shape == (formulas.HEIGHT, formulas.WIDTH, 1)
