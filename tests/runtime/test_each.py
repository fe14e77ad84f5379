"""Options with a value for each text: the results are those of each text alone with its values."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, mistake
from tests.runtime.small_engines import TEXTS, SmallEngines
from xformc.errors import UserError
from xformc.format.targets import Target
from xformc.runtime import Engine, load

SEARCHES: dict[str, list[Any]] = {
    "length_penalty": [0.0, 2.0, 0.6, -1.0, 1.0, None],
    "length_penalty_kind": ["average", None, "gnmt", "average", "gnmt", "average"],
    "stop_rule": ["first", "best", "shrink", "complete", None, "shrink"],
    "patience": [1.0, 2.0, 1.0, 1.0, 3.0, None],
    "min_length": [0, 4, 6, 0, 2, 9],
    "max_length_factor": [0.0, 1.0, 0.5, 2.0, 1.0, 0.0],
    "max_length_offset": [4, 9, 6, 1, 0, 12],
    "suppress_tokens": [[], [5, 9, 11], None, list(range(4, 30)), [40], [3]],
    "no_repeat_ngram_size": [0, 1, 2, 3, 0, 40],
    "repetition_penalty": [1.0, 1.5, 1.0, 0.7, 1.0, 2.0],
    "presence_penalty": [0.0, 0.5, 0.0, 0.0, 0.0, -1.0],
    "frequency_penalty": [0.0, 0.0, 0.0, 0.3, 0.0, 0.1],
}
SAMPLES: dict[str, list[Any]] = {
    "temperature": [0.0, 1.0, 0.7, 2.0, None, 0.1],
    "top_k": [0, 5, 20, 1, 3, 500],
    "top_p": [1.0, 0.5, 0.9, 0.3, 0.0, 1.0],
    "max_new_tokens": [1, 12, 7, 20, 3, 9],
    "seed": [5, 0, 9, 2**40, 5, 1],
    **{name: SEARCHES[name] for name in ("suppress_tokens", "no_repeat_ngram_size", "repetition_penalty")},
}


def alone(options: dict[str, list[Any]], row: int) -> dict[str, Any]:
    return {name: values[row] for name, values in options.items() if values[row] is not None}


@pytest.mark.processor
@pytest.mark.parametrize("target", ["portable", "native"])
def test_translations_are_those_of_each_text_alone(small_engines: SmallEngines, target: Target) -> None:
    with load(small_engines("search", target), threads=1) as loaded:
        engine: Any = loaded
        together = engine.translate(TEXTS, **SEARCHES)
        few = {name: SEARCHES[name] for name in ("min_length", "length_penalty")}
        some = engine.translate(TEXTS, **few, repetition_penalty=1.2)
        for row, text in enumerate(TEXTS):
            assert engine.translate([text], **alone(SEARCHES, row)) == [together[row]]
            assert engine.translate([text], **alone(few, row), repetition_penalty=1.2) == [some[row]]
        each = ({name: values[row] for name, values in few.items()} for row in range(len(TEXTS)))
        assert list(engine.translate_stream(iter(TEXTS), each=each, repetition_penalty=1.2)) == some
        assert len({tuple(one[0].tokens for one in found) for found in (together, some)}) == 2


@pytest.mark.processor
@pytest.mark.parametrize("target", ["portable", "native"])
def test_continuations_are_those_of_each_prompt_alone(small_engines: SmallEngines, target: Target) -> None:
    with load(small_engines("sample", target), threads=1) as loaded:
        engine: Any = loaded
        together = engine.generate(TEXTS, **SAMPLES)
        for row, text in enumerate(TEXTS):
            (own,) = engine.generate([text], **alone(SAMPLES, row))
            assert (own.text, own.tokens) == (together[row].text, together[row].tokens)
            assert own.score == pytest.approx(together[row].score, rel=1e-5)  # sums of ONNX Runtime's over a batch
        assert engine.generate(TEXTS, seed=3) == engine.generate(TEXTS, seed=[3, 4, 5, 6, 7, 8])
        with pytest.raises(UserError, match="seed must be an integer") as caught:
            engine.generate(TEXTS[:2], seed=[3, -1])
        assert caught.value.place == "line 2"


def test_wrong_lists_are_named(small_engines: SmallEngines) -> None:
    with load(small_engines("search", "portable"), threads=1) as loaded:
        engine: Any = loaded
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"min_length": [1, 2]}, "line 3: there is no min_length for this text"),
            ({"min_length": [1] * 7}, "there are more values of min_length than texts, which are 6"),
            ({"min_length": [1, 2, -1, 0, 0, 0]}, "line 3: min_length must be an integer from 0 to 100000, not -1"),
            ({"each": [{}] * 5 + [{"beam_size": 2}]}, "line 6: beam_size is one number for all texts"),
            ({"beam_size": [2] * 6}, "beam_size must be an integer"),
        ]
        for options, message in wrong:
            with pytest.raises(UserError) as caught:
                engine.translate(TEXTS, **options)
            assert message in str(caught.value)


def test_an_engine_of_before_refuses_lists(engine: Engine) -> None:
    with pytest.raises(UserError, match="copy takes no options of single texts: length_penalty"):
        engine.translate(["one", "two"], length_penalty=[1.0, 2.0])
    with load(Path(__file__).parents[1] / "conformance" / "engines" / "tales", threads=1) as tales:
        plain = tales.generate(["a", "b"], max_new_tokens=3)
        assert tales.generate(["a", "b"], max_new_tokens=3, each=[{}, {}]) == plain
        with pytest.raises(UserError, match="language_model takes no options of single texts: top_k"):
            tales.generate(["a"], each=[{"top_k": 2}])


def test_lines_of_json_have_options(small_engines: SmallEngines, xformc: CommandLine) -> None:
    lines: list[Any] = [
        {"text": TEXTS[0], "min_length": 4, "suppress_tokens": [5, "\u2581the"]},
        {"text": TEXTS[1], "length_penalty_kind": "average", "preset": "marian"},
        TEXTS[2],
    ]
    given = "".join(json.dumps(line) + "\n" for line in lines)
    run = xformc("translate", small_engines("search", "portable"), "--json-input", "--json", stdin=given)
    found = [json.loads(line)["hypotheses"] for line in run.out.splitlines()]
    with load(small_engines("search", "portable"), threads=1) as loaded:
        engine: Any = loaded
        own: Any = [{k: v for k, v in line.items() if k != "text"} if isinstance(line, dict) else {} for line in lines]
        expected = engine.translate(TEXTS[:3], each=own)
    assert [[one["text"] for one in row] for row in found] == [[one.text for one in row] for row in expected]
    for line, message in (
        ('{"text": "one", "beam_size": 3}', "line 1: beam_size is no option of a text"),
        (
            '{"text": "one", "min_lenght": 3}',
            "line 1: min_lenght is no option of a text\nhint: did you mean 'min_length'?",
        ),
        ('{"text": "one", "min_length": "x"}', "line 1: min_length must be an integer"),
        ('{"prefix": "one"}', "line 1: the line has no text"),
        ('{"text": "one", "prompt": "two"}', "line 1: the line has a text and a prompt"),
    ):
        refused = xformc("translate", small_engines("search", "portable"), "--json-input", "--json", stdin=line)
        assert mistake(refused).startswith(message)
    refused = xformc(
        "translate", small_engines("search", "portable"), "--json-input", "--json", "--mbr", "chrf", stdin=""
    )
    assert mistake(refused).startswith("--json-input and --mbr exclude each other")


def test_texts_with_options_of_their_own_are_aligned(small_engines: SmallEngines) -> None:
    engine = load(small_engines("search", "portable"))
    found = engine.translate(TEXTS[:2], alignment=True, each=[{"min_length": 4}, {}])
    assert found[0] == engine.translate(TEXTS[:1], alignment=True, min_length=4)[0]
    assert all(one.alignment is not None for one in found[0])
