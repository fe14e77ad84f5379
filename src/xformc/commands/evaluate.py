"""`xformc evaluate`: an engine's translations against references."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from xformc.commands.translate import ENGINE_HELP
from xformc.errors import UserError
from xformc.runtime.engine import Engine, load
from xformc.runtime.lines import read_text_file
from xformc.runtime.options import SearchArguments


@dataclass(frozen=True)
class Scores:
    """What `evaluate` measured; the scores are from 0 to 100."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact: int
    sentences: int
    tokens: int
    seconds: float


def evaluate(
    engine: Annotated[Path, Argument(help=ENGINE_HELP, metavar="ENGINE")],
    source: Annotated[Path, Argument(help="Text to translate, a sentence a line; .gz is unpacked.", metavar="SRC")],
    references: Annotated[
        list[Path], Argument(help="Its translation, line by line; several are allowed.", metavar="REF...")
    ],
    *,
    tokenize: Annotated[str, Option(help="sacreBLEU's tokenizer; `none` for tokenised text.")] = "13a",
    beam_width: Annotated[int | None, Option(help="Partial translations kept; 1 is greedy.")] = None,
    length_penalty: Annotated[float | None, Option(help="More prefers longer translations.")] = None,
    truncate: Annotated[bool, Option("--truncate", help="Cut lines that are too long.")] = False,
    threads: Annotated[int | None, Option(help="Cores to use; all if left out.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Translate a test set, and print its scores.

    They are BLEU and chrF with their sacreBLEU signatures, exact matches, and the speed.

    \b
    xformc evaluate demo/engine demo/data/test.en demo/data/test.de
    xformc evaluate ENGINE test.tok.en.gz test.tok.de.gz --tokenize none
    """
    bleu = _make_bleu(tokenize)
    texts = read_text_file(source)
    expected = [read_text_file(reference) for reference in references]
    for path, lines in zip(references, expected, strict=True):
        if len(lines) != len(texts):
            raise UserError(
                f"has {len(lines):,} lines and {source} has {len(texts):,}",
                place=str(path),
                hint="line n of a reference must translate line n of the source",
            )
    if not texts:
        raise UserError("holds no text", place=str(source))
    loaded = load(engine, threads=threads)
    options: SearchArguments = {"beam_width": beam_width, "length_penalty": length_penalty}
    scores = _measure(loaded, texts, expected, bleu, truncate, options)
    if as_json:
        print(json.dumps(_as_json(scores)))
        return
    share = 100 * scores.exact / scores.sentences
    print(f"BLEU         {scores.bleu:6.2f}   {scores.bleu_signature}")
    print(f"chrF2        {scores.chrf:6.2f}   {scores.chrf_signature}")
    print(f"exact match  {share:5.1f}%   {scores.exact:,} of {scores.sentences:,} sentences")
    print(
        f"speed        {scores.tokens / scores.seconds:,.0f} tokens/s, "
        f"{scores.sentences / scores.seconds:,.1f} sentences/s"
    )


def _measure(
    engine: Engine, texts: list[str], references: list[list[str]], bleu: Any, truncate: bool, options: SearchArguments
) -> Scores:
    import sacrebleu

    start = time.perf_counter()
    stream = engine.translate_stream(texts, truncate=truncate, **options)
    console = Console(stderr=True)
    found = [
        best
        for best, *_ in track(
            stream, "translating", total=len(texts), console=console, transient=True, disable=not console.is_terminal
        )
    ]
    seconds = time.perf_counter() - start
    outputs = [best.text for best in found]
    chrf = cast(Any, sacrebleu.CHRF())
    return Scores(
        bleu=float(bleu.corpus_score(outputs, references).score),
        bleu_signature=str(bleu.get_signature()),
        chrf=float(chrf.corpus_score(outputs, references).score),
        chrf_signature=str(chrf.get_signature()),
        exact=sum(output in expected for output, *expected in zip(outputs, *references, strict=True)),
        sentences=len(texts),
        tokens=sum(len(best.tokens) for best in found),
        seconds=seconds,
    )


def _make_bleu(tokenizer: str) -> Any:
    """sacreBLEU's metric. Raises: UserError for a tokenizer that it lacks, or that needs what is not there."""
    import sacrebleu

    names = sorted(cast(Any, sacrebleu.BLEU).TOKENIZERS)
    if tokenizer not in names:
        raise UserError(
            f"--tokenize {tokenizer}: sacreBLEU has no such tokenizer", hint=f"there are: {', '.join(names)}"
        )
    try:
        return sacrebleu.BLEU(tokenize=tokenizer)
    except (RuntimeError, ImportError, OSError) as error:
        raise UserError(f"--tokenize {tokenizer}: {' '.join(str(error).split())}") from error


def _as_json(scores: Scores) -> dict[str, object]:
    return {
        "bleu": {"score": scores.bleu, "signature": scores.bleu_signature},
        "chrf": {"score": scores.chrf, "signature": scores.chrf_signature},
        "exact_match": scores.exact / scores.sentences,
        "sentences": scores.sentences,
        "tokens": scores.tokens,
        "seconds": scores.seconds,
        "tokens_per_second": scores.tokens / scores.seconds,
    }
