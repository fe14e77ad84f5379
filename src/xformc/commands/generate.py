"""`xformc generate`: lines of text in, the same lines continued out."""

import json
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any, Unpack, cast

from typer import Option

from xformc.commands.decoding import GenerateOptions
from xformc.commands.drafting import DraftName, DraftTokens, opened_draft
from xformc.commands.json_input import JsonInput, json_texts, require_json_output
from xformc.commands.moses import moses_line
from xformc.commands.options import (
    Device,
    EngineFolder,
    JsonLines,
    Seed,
    Slots,
    TextInput,
    TextOutput,
    Threads,
    Window,
    Workers,
)
from xformc.commands.steering import Regex, SchemaFile, StopStrings, schema_in
from xformc.commands.streaming import Stream, streams, write_streams
from xformc.commands.text_lines import choose_pace, input_lines, one_line, write_results
from xformc.commands.token_scores import TokenFields, TokenScores, require_json, token_fields_of
from xformc.errors import UserError
from xformc.format.manifest import SearchOptions
from xformc.format.reader import read_manifest
from xformc.runtime.engine import load
from xformc.runtime.generation.generate import Continuation
from xformc.runtime.generation.sampling import PromptArguments
from xformc.runtime.methods.loaded import check_method
from xformc.runtime.options import BeamArguments
from xformc.runtime.searching.beams import resolve_beams, sampling_alone, searches
from xformc.runtime.searching.translate import rounded
from xformc.runtime.stream import MAX_BATCH_TOKENS

BATCH_HELP = """Capacity of a batch in tokens: prompts and the tokens to add. More than 16,384 also allow longer
prompts."""


def generate(
    engine: EngineFolder,
    *,
    prompts: TextInput = None,
    output: TextOutput = None,
    stop: StopStrings = None,
    regex: Regex = None,
    json_schema: SchemaFile = None,
    seed: Seed = 0,
    token_scores: TokenScores = False,
    as_json: JsonLines = False,
    json_input: JsonInput = False,
    stream: Stream = None,
    draft: DraftName = None,
    draft_tokens: DraftTokens = None,
    truncate: Annotated[bool, Option("--truncate", help="Keep only the end of lines that are too long.")] = False,
    slots: Slots = None,
    window: Window = None,
    workers: Workers = None,
    max_batch_tokens: Annotated[int, Option(help=BATCH_HELP, metavar="N")] = MAX_BATCH_TOKENS,
    threads: Threads = None,
    device: Device = None,
    **options: Unpack[GenerateOptions],
) -> None:
    """Continue lines of text with a language model.

    \b
    xformc generate ENGINE < prompts.txt > texts.txt
    echo 'Once upon a time' | xformc generate ENGINE --temperature 0.7 --top-p 0.9 --seed 4

    A line is a prompt in UTF-8. Texts keep the order of the lines, and each begins with its prompt. An empty line is a
    prompt too: it starts a text from nothing. Defaults of sampling come from the engine; `xformc inspect ENGINE` shows
    them. The same prompt and seed give the same text, whatever the other lines are.

    With --draft ENGINE2, a smaller engine with the same vocabulary, or --draft lookup, which looks them up in the text
    so far, the next tokens are guessed, and ENGINE checks several in one pass. The texts are the same. Each line is
    continued by itself, so a draft is for few lines.

    With --beam-size, texts are searched for instead of sampled: --beam-size 4 --preset huggingface. With --n-best above
    1, lines have Moses' format, as those of `xformc translate`; --json puts the next best texts into `others`.

    With --stop TEXT, each text ends before the first TEXT that it would have: --stop END --stop $'\\n\\n' (in bash, an
    empty line). Each whole continuation matches --regex or --json-schema (pip install 'xformc[constraints]').

    With --slots, texts of different lengths do not wait for each other: the next prompt joins when a text has ended.

    On a terminal, or with --stream, each text is printed as it is sampled: a line after the other, not in batches.

    With --json: {"line": 1, "text": "...", "score": -1.5, "tokens": 12}, the text without its prompt, its log
    probability, and its number of tokens. With --json-input, a line may have options of its own: {"text": "...",
    "temperature": 0.5, "seed": 7}.
    """
    manifest, schema = read_manifest(engine), schema_in(json_schema)
    require_json(token_scores, as_json)
    require_json_output(json_input, as_json)
    if stream and (workers, window) != (None, None):
        raise UserError("--workers and --window have no effect with --stream", hint="leave them out")
    if slots is not None and stream:
        raise UserError("--slots has no effect with --stream", hint="leave one of them out")
    if stream and options["beam_size"] is not None:
        raise UserError("--stream has no effect with --beam-size", hint="leave one of them out")
    sampled = slots is None and options["beam_size"] is None
    streamed = sampled and streams(stream, manifest, output, as_json=as_json)
    pace, waiting = choose_pace(prompts, window, 1 if streamed else workers, threads), deque[str]()
    beams = cast(BeamArguments, {name: options[name] for name in BeamArguments.__annotations__})
    sampling = sampling_alone(options)
    check_method(manifest, "generate", "generate")
    searched = searches(options, seed)
    shown = resolve_beams(manifest, beams) if searched else None

    def remembered(lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            waiting.append(line)
            yield line

    with (
        load(engine, threads=threads, workers=pace.workers, device=device) as loaded,
        opened_draft(draft, threads=threads, workers=pace.workers) as drafting,
        input_lines(prompts) as lines,
    ):
        steering: dict[str, Any] = {
            "draft": drafting,
            "draft_tokens": draft_tokens,
            "stop": stop,
            "regex": regex,
            "json_schema": schema,
        }
        if streamed:
            given: dict[str, Any] = {"max_batch_tokens": max_batch_tokens, **steering, **sampling}
            return write_streams(loaded, lines, output, seed=seed, truncate=truncate, options=given)
        texts: Any = json_texts(lines, PromptArguments) if json_input else remembered(lines)
        results = loaded.generate_stream(
            texts,
            seed=seed,
            window=pace.window,
            max_batch_tokens=max_batch_tokens,
            truncate=truncate,
            token_scores=token_scores,
            slots=slots,
            **steering,
            **options,
        )
        tokens = token_fields_of(loaded, wanted=token_scores)

        def render(index: int, result: Continuation) -> str:
            prompt = "" if json_input else waiting.popleft()
            if as_json:
                return _as_json(index, result, tokens)
            return (
                _as_text(prompt, result)
                if shown is None or shown.n_best == 1
                else _as_n_best(index, prompt, result, shown)
            )

        write_results(results, render, output)


def _as_json(index: int, result: Continuation, tokens: TokenFields) -> str:
    def fields(one: Continuation) -> dict[str, object]:
        return {"text": one.text, "score": rounded(one.score), "tokens": len(one.tokens), **tokens(one)}

    others = {"others": [fields(one) for one in result.others]} if result.others else {}
    return json.dumps({"line": index + 1, **fields(result), **others}, ensure_ascii=False) + "\n"


def _as_n_best(index: int, prompt: str, result: Continuation, options: SearchOptions) -> str:
    lines = (
        moses_line(index, one.after(prompt), (one.score, one.score), len(one.tokens), options, {})
        for one in (result, *result.others)
    )
    return "".join(f"{line}\n" for line in lines)


def _as_text(prompt: str, result: Continuation) -> str:
    return one_line(result.after(prompt)) + "\n"
