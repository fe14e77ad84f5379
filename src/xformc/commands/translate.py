"""`xformc translate`: lines of text in, lines of text out."""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Unpack

from typer import Option

from xformc.commands.alignments import Align, Attention, alignment_fields, check_attention
from xformc.commands.choosing import Choice, Mbr, Rerank, RerankWeight
from xformc.commands.decoding import TranslateOptions
from xformc.commands.json_input import JsonInput, json_texts, require_json_output
from xformc.commands.moses import moses_line
from xformc.commands.options import (
    Device,
    EngineFolder,
    JsonLines,
    PhraseFile,
    PrefixFile,
    PrefixText,
    Seed,
    Slots,
    TextInput,
    TextOutput,
    Threads,
    Truncate,
    Window,
    Workers,
)
from xformc.commands.steering import Regex, SchemaFile, schema_in
from xformc.commands.text_lines import choose_pace, given_phrases, given_prefixes, input_lines, one_line, write_results
from xformc.commands.token_scores import TokenFields, TokenScores, require_json, token_fields_of
from xformc.errors import UserError
from xformc.format.manifest import SearchOptions
from xformc.format.reader import read_manifest
from xformc.runtime.engine import load
from xformc.runtime.methods.loaded import check_method
from xformc.runtime.options import SearchArguments, TranslationArguments, resolve_options
from xformc.runtime.searching.choose import OWN
from xformc.runtime.searching.samples import search_alone
from xformc.runtime.searching.translate import Hypothesis, text_fields
from xformc.runtime.stream import MAX_BATCH_TOKENS

ALTERNATIVES_HELP = """For each of the N most likely tokens after the prefix, print the best translation that goes on
with it."""
SAMPLES_HELP = "Draw this many translations of each line instead of searching."
BATCH_HELP = """Capacity of a batch in tokens: each source, padded, and its hypotheses at their length limit. More than
16,384 also allow longer sources."""


def translate(
    engine: EngineFolder,
    *,
    source: TextInput = None,
    output: TextOutput = None,
    alternatives: Annotated[int | None, Option(help=ALTERNATIVES_HELP, metavar="N")] = None,
    samples: Annotated[int | None, Option(help=SAMPLES_HELP, metavar="N")] = None,
    seed: Seed = 0,
    rerank: Rerank = None,
    rerank_weight: RerankWeight = None,
    mbr: Mbr = None,
    prefix: PrefixText = None,
    prefixes: PrefixFile = None,
    phrases: PhraseFile = None,
    regex: Regex = None,
    json_schema: SchemaFile = None,
    scores: Annotated[bool, Option("--scores", help="Put the score and a tab before each line.")] = False,
    token_scores: TokenScores = False,
    align: Align = False,
    attention: Attention = False,
    as_json: JsonLines = False,
    json_input: JsonInput = False,
    truncate: Truncate = False,
    slots: Slots = None,
    window: Window = None,
    workers: Workers = None,
    max_batch_tokens: Annotated[int, Option(help=BATCH_HELP, metavar="N")] = MAX_BATCH_TOKENS,
    threads: Threads = None,
    device: Device = None,
    **options: Unpack[TranslateOptions],
) -> None:
    """Translate lines of text.

    \b
    xformc translate demo/engine < in.txt > out.txt
    xformc translate demo/engine -i in.txt.gz -o out.txt
    echo 'forty-two' | xformc translate demo/engine -b 8 --n-best 3

    A line is a sentence in UTF-8. Translations keep the order of the lines, and an empty line stays empty. Defaults
    of the search come from the engine; `xformc inspect ENGINE` shows them. Characters that the engine does not know
    are read as unknown; unknowns are left out of translations.

    With --n-best above 1, lines have Moses' format: `0 ||| text ||| logprob= -2.31 length= 7 ||| -1.51`, with lines
    counted from 0 and the score last. With --json: {"line": 1, "hypotheses": [{"text": "...", "score": -1.5}]}.

    With --slots, texts of different lengths do not wait for each other: the next one joins when a text has ended. It
    needs an engine of target native.

    With --json-input, a line is {"text": "...", "min_length": 5}, with any options but beam_size, n_best and
    beam_groups.

    --align puts the links of words after each text and a tab, after ` ||| ` in Moses' format, and with --json into
    `alignment`: [[0, 0], [1, 2]]. They come from the model's attention: see `xformc align`.

    --alternatives 5 --prefix "The cat" prints 5 translations that begin so and differ in the next token, as --n-best
    does.

    --samples draws translations instead of searching, each with the next seed, and prints all of them; --seed,
    --temperature, --top-k and --top-p are theirs. --samples 16 --mbr chrf prints the one that is most like the others.

    --rerank and --mbr reorder the whole beam; --n-best is the number printed, with new scores. --rerank gives each
    hypothesis (1 - W) * its score + W * that of the second engine, with the length penalty of each. --mbr gives it its
    mean chrF or BLEU against the hypotheses of the beam, weighted by their probabilities. The old scores become
    features of the hypothesis.
    """
    manifest = read_manifest(engine)
    arguments: TranslationArguments = {**options}
    n_best = options["n_best"]
    check_method(manifest, "translate", "translate")
    require_json(token_scores, as_json)
    require_json_output(json_input, as_json, rerank=rerank, mbr=mbr)
    check_attention(attention, as_json)
    aligned = align or attention
    choice = Choice(rerank, rerank_weight, mbr, samples)
    if samples is None:
        shown = resolve_options(manifest, {**search_alone(arguments), "suppress_tokens": None})
        arguments["n_best"] = choice.pool(manifest, shown)
    else:
        count = choice.pool(manifest, manifest.search)
        shown = replace(manifest.search, length_penalty=0.0, n_best=count if n_best is None else n_best)
        arguments["n_best"] = None if choice.chooses else n_best
    if alternatives is not None:
        if choice.chooses:
            raise UserError("--alternatives has no effect with --rerank and --mbr", hint="leave one of them out")
        arguments["n_best"], shown = n_best, replace(shown, n_best=alternatives)
    pace = choose_pace(source, window, workers, threads)
    batching: Any = {"window": pace.window, "max_batch_tokens": max_batch_tokens, "truncate": truncate}
    begun = given_prefixes(prefix, prefixes)
    opened = partial(load, threads=threads, workers=pace.workers, device=device)
    second = nullcontext() if rerank is None else opened(rerank)
    with opened(engine) as loaded, second as judge, input_lines(source) as lines:
        search = partial(
            loaded.translate_stream,
            prefixes=begun,
            phrases=given_phrases(phrases),
            regex=regex,
            json_schema=schema_in(json_schema),
            token_scores=token_scores,
            alignment=aligned,
            alternatives=alternatives,
            samples=samples,
            seed=seed,
            **batching,
            slots=slots,
            **arguments,
        )
        given: Any = (
            json_texts(lines, SearchArguments if samples is None else TranslationArguments) if json_input else lines
        )
        results = choice.apply(given, judge, search, shown.n_best, shown, batching)
        if as_json:
            render = partial(_as_json, tokens=token_fields_of(loaded, wanted=token_scores), attention=attention)
        elif shown.n_best > 1:
            render = partial(_as_n_best, options=shown)
        else:
            render = partial(_as_line, scores=scores)
        write_results(results, render, output)


def _as_json(index: int, hypotheses: list[Hypothesis], *, tokens: TokenFields, attention: bool) -> str:
    found = [
        {**text_fields(one), **tokens(one), **alignment_fields(one.alignment, attention=attention)}
        for one in hypotheses
    ]
    return json.dumps({"line": index + 1, "hypotheses": found}, ensure_ascii=False) + "\n"


def _as_n_best(index: int, hypotheses: list[Hypothesis], *, options: SearchOptions) -> str:
    """Moses' n-best list: the line from 0, the text, features, and the score by which they are ranked.

    A score with a coverage penalty does not tell the log probability.
    """
    lines: list[str] = []
    for one in hypotheses:
        scores = one.score, one.features.get(OWN, one.score)
        line = moses_line(index, one.text, scores, len(one.tokens), options, one.features)
        lines.append(f"{line}{_links(one, ' ||| ')}\n")
    return "".join(lines)


def _as_line(index: int, hypotheses: list[Hypothesis], *, scores: bool) -> str:
    best, tab = hypotheses[0], "\t"
    score = f"{best.score:.4f}\t" if scores else ""
    return f"{score}{one_line(best.text)}{_links(best, tab)}\n"


def _links(one: Hypothesis, before: str) -> str:
    return "" if one.alignment is None else f"{before}{one.alignment}"
