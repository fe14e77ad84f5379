"""`xformc score`: how likely given texts are, by an engine."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from xformc.commands.json_input import json_alone
from xformc.commands.options import Device, EngineFolder, JsonLines, TextOutput, Threads, Truncate, Workers
from xformc.commands.text_lines import choose_pace, columns_of, write_results
from xformc.commands.token_scores import TokenFields, token_fields_of
from xformc.format.inputs import Input
from xformc.format.reader import read_manifest
from xformc.runtime.engine import load
from xformc.runtime.searching.search import length_divisor
from xformc.runtime.searching.translate import Hypothesis, rounded
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.text.lines import read_file_lines

SOURCE_HELP = """The sources, line by line; may be .gz. Of a language model: the texts, or with TARGET what precedes
them."""
TARGET_HELP = "The text of each source, line by line; may be .gz."
TOKENS_HELP = """Also the log probability of each token: after a tab, separated by spaces, or with --json, which has the
tokens as well."""
JSON_HELP = 'Lines are JSON, so that texts may have line breaks: "a text", or {"text": "..."}.'
BEAM_HELP = """The width of the beam whose scores these are to the last bit, with target native; no other effect."""
ScoredBeam = Annotated[int | None, Option("--beam-size", "--beam", "-b", help=BEAM_HELP, metavar="N")]
PENALTY_HELP = """Length penalty of the scores, as in `xformc translate`.  [default: the engine's]"""


def score(
    engine: EngineFolder,
    source: Annotated[Path, Argument(help=SOURCE_HELP, metavar="SOURCE")],
    target: Annotated[Path | None, Argument(help=TARGET_HELP, metavar="TARGET")] = None,
    *,
    output: TextOutput = None,
    length_penalty: Annotated[float | None, Option(help=PENALTY_HELP, metavar="ALPHA")] = None,
    beam_size: ScoredBeam = None,
    token_scores: Annotated[bool, Option("--token-scores", help=TOKENS_HELP)] = False,
    as_json: JsonLines = False,
    json_input: Annotated[bool, Option("--json-input", help=JSON_HELP)] = False,
    truncate: Truncate = False,
    workers: Workers = None,
    max_batch_tokens: Annotated[int, Option(help="Capacity of a batch in tokens.", metavar="N")] = MAX_BATCH_TOKENS,
    threads: Threads = None,
    device: Device = None,
) -> None:
    """Score given texts: the log probability of each.

    \b
    xformc score demo/engine test.en test.de
    xformc score demo/engine test.en test.de --length-penalty 0 --json
    xformc score LANGUAGE_MODEL texts.txt --token-scores

    Each line of the output is the score of a target. An engine that searches for its text has the score of the search,
    which is the log probability with the length penalty. A language model scores the lines of SOURCE or, after these,
    those of TARGET; its score is the log probability. The end token of a text counts.

    With --json: {"line": 1, "score": -0.31, "log_probability": -0.47, "tokens": 4}. Both numbers are null for a text
    that is impossible, as every text but the empty one is for an empty source. A line of SOURCE has the texts of an
    engine with several inputs, separated by tabs.
    """
    manifest = read_manifest(engine)
    pace = choose_pace(source, None, workers, threads)

    def texts_of(path: Path, inputs: Mapping[str, Input]) -> Iterator[Any]:
        lines = read_file_lines(path)
        return json_alone(lines, list(inputs)) if json_input else columns_of(lines, inputs)

    with load(engine, threads=threads, workers=pace.workers, device=device) as loaded:
        found = loaded.score_stream(
            texts_of(source, manifest.given),
            None if target is None else texts_of(target, {}),
            max_batch_tokens=max_batch_tokens,
            truncate=truncate,
            beam_size=beam_size,
            length_penalty=length_penalty,
            token_scores=token_scores,
        )
        divisor = partial(length_divisor, alpha=0.0)
        if manifest.decoding == "search":
            alpha = manifest.search.length_penalty if length_penalty is None else length_penalty
            divisor = partial(length_divisor, alpha=alpha, kind=manifest.search.length_penalty_kind)
        tokens = token_fields_of(loaded, wanted=token_scores)
        render = partial(_as_json, divisor=divisor, tokens=tokens) if as_json else partial(_as_line, each=token_scores)
        write_results(found, render, output)


def _as_line(index: int, one: Hypothesis, *, each: bool) -> str:
    scores = "\t" + " ".join(f"{score:.4f}" for score in one.token_scores) if each else ""
    return f"{one.score:.4f}{scores}\n"


def _as_json(index: int, one: Hypothesis, *, divisor: Callable[[int], float], tokens: TokenFields) -> str:
    numbers = {"score": one.score, "log_probability": one.score * divisor(len(one.tokens))}
    finite = {name: rounded(number) for name, number in numbers.items()}
    fields = {"line": index + 1, **finite, "tokens": len(one.tokens), **tokens(one)}
    return json.dumps(fields, ensure_ascii=False) + "\n"
