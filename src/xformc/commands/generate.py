"""`xformc generate`: lines of text in, the same lines continued out."""

import json
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

from typer import Option

from xformc.commands.drafting import DraftName, DraftTokens, opened_draft
from xformc.commands.json_input import JsonInput, json_texts, require_json_output
from xformc.commands.options import (
    Device,
    EngineFolder,
    FrequencyPenalty,
    JsonLines,
    NewTokens,
    NgramSize,
    PresencePenalty,
    RepetitionPenalty,
    Seed,
    Slots,
    SuppressTokens,
    Temperature,
    TextInput,
    TextOutput,
    Threads,
    TopK,
    TopP,
    Window,
    Workers,
    named_tokens,
)
from xformc.commands.steering import Regex, SchemaFile, StopStrings, schema_in
from xformc.commands.streaming import Stream, streams, write_streams
from xformc.commands.text_lines import choose_pace, input_lines, one_line, write_results
from xformc.commands.token_scores import TokenFields, TokenScores, require_json, token_fields_of
from xformc.errors import UserError
from xformc.format.reader import read_manifest
from xformc.runtime.engine import load
from xformc.runtime.generate import Continuation
from xformc.runtime.sampling import PromptArguments, SampleArguments
from xformc.runtime.stream import MAX_BATCH_TOKENS

BATCH_HELP = """Capacity of a batch in tokens: prompts and the tokens to add. More than 16,384 also allow longer
prompts."""


def generate(
    engine: EngineFolder,
    *,
    prompts: TextInput = None,
    output: TextOutput = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    max_new_tokens: NewTokens = None,
    suppress_tokens: SuppressTokens = None,
    no_repeat_ngram_size: NgramSize = None,
    repetition_penalty: RepetitionPenalty = None,
    presence_penalty: PresencePenalty = None,
    frequency_penalty: FrequencyPenalty = None,
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
    streamed = slots is None and streams(stream, manifest, output, as_json=as_json)
    pace, waiting = choose_pace(prompts, window, 1 if streamed else workers, threads), deque[str]()
    sampling: SampleArguments = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "max_new_tokens": max_new_tokens,
        "suppress_tokens": named_tokens(suppress_tokens),
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
    }

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
            options: dict[str, Any] = {"max_batch_tokens": max_batch_tokens, **steering, **sampling}
            return write_streams(loaded, lines, output, seed=seed, truncate=truncate, options=options)
        given: Any = json_texts(lines, PromptArguments) if json_input else remembered(lines)
        results = loaded.generate_stream(
            given,
            seed=seed,
            window=pace.window,
            max_batch_tokens=max_batch_tokens,
            truncate=truncate,
            token_scores=token_scores,
            slots=slots,
            **steering,
            **sampling,
        )
        tokens = token_fields_of(loaded, wanted=token_scores)

        def render(index: int, result: Continuation) -> str:
            prompt = "" if json_input else waiting.popleft()
            return _as_json(index, result, tokens) if as_json else _as_text(prompt, result)

        write_results(results, render, output)


def _as_json(index: int, result: Continuation, tokens: TokenFields) -> str:
    fields = {"line": index + 1, "text": result.text, "score": round(result.score, 6), "tokens": len(result.tokens)}
    return json.dumps({**fields, **tokens(result)}, ensure_ascii=False) + "\n"


def _as_text(prompt: str, result: Continuation) -> str:
    return one_line(result.after(prompt)) + "\n"
