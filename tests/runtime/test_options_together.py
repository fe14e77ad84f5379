"""Options drawn together: engines with kernels find what engines of ONNX's operators alone find."""

from typing import Any

import numpy as np
import pytest

from tests.laws.settings import TIMES
from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.runtime import load

DRAWS = 80 * max(1, TIMES)
TOKENS = range(4, 60)
"""Those that prefixes and phrases are drawn of."""


def tokens(random: np.random.Generator, most: int) -> list[int]:
    return [int(one) for one in random.choice(TOKENS, random.integers(1, most + 1))]


def drawn(random: np.random.Generator) -> tuple[list[str], dict[str, Any]]:
    """Texts, and arguments of `translate`, each of which is there in a third of all calls."""

    def several(draw: Any) -> list[Any]:
        return [draw() for _ in texts]

    texts = [TEXTS[place] for place in random.choice(len(TEXTS), random.integers(1, 5))]
    beam = int(random.integers(1, 6))
    choices: dict[str, Any] = {
        "length_penalty": lambda: float(random.choice([-10.0, -1.0, 0.0, 0.6, 1.0, 10.0])),
        "length_penalty_kind": lambda: str(random.choice(["gnmt", "average"])),
        "stop_rule": lambda: str(random.choice(["first", "best", "complete", "shrink"])),
        "patience": lambda: float(random.choice([1.0, 1.5, 3.0])),
        "min_length": lambda: int(random.integers(0, 8)),
        "max_length_offset": lambda: int(random.integers(0, 12)),
        "suppress_tokens": lambda: tokens(random, 9),
        "no_repeat_ngram_size": lambda: int(random.integers(0, 4)),
        "repetition_penalty": lambda: float(random.choice([0.8, 1.2, 2.0])),
        "presence_penalty": lambda: float(random.choice([-0.5, 0.5, 1.0])),
        "frequency_penalty": lambda: float(random.choice([-0.2, 0.3])),
        "prefixes": lambda: several(lambda: tokens(random, 3) if random.random() < 0.7 else []),
        "prefix_bias": lambda: float(random.choice([0.0, 0.3, 0.9])),
    }
    given = {name: draw() for name, draw in choices.items() if random.random() < 1 / 3}
    if "prefixes" not in given:
        given.pop("prefix_bias", None)
    if random.random() < 1 / 3:
        given["phrases"] = several(lambda: [tokens(random, 3) for _ in range(random.integers(0, 3))])
    elif random.random() < 1 / 4:
        groups = int(random.choice([one for one in range(1, beam + 1) if beam % one == 0]))
        given |= {"beam_groups": groups, "diversity_penalty": float(random.choice([0.0, 0.5, 2.0]))}
    return texts, {"beam_size": beam, "n_best": int(random.integers(1, beam + 1)), **given}


@pytest.mark.processor
def test_they_find_what_plain_operators_find(small_engines: SmallEngines) -> None:
    with (
        load(small_engines("search", "native"), threads=1) as native,
        load(small_engines("search", "portable"), threads=1) as portable,
    ):
        for seed in range(DRAWS):
            texts, options = drawn(np.random.default_rng(seed))
            for one, found, wanted in zip(
                texts, native.translate(texts, **options), portable.translate(texts, **options), strict=True
            ):
                assert [text.tokens for text in found] == [text.tokens for text in wanted], (seed, one, options)
                scores = [text.score for text in wanted]
                assert [text.score for text in found] == pytest.approx(scores, rel=1e-6, abs=1e-4), (seed, one, options)
