"""`xformc transcribe`: arrays in, or lines of text, and lines of text out."""

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Unpack

from typer import Option

from xformc.commands.choosing import Samples, SamplesMbr, check_samples, chosen_samples
from xformc.commands.decoding import TranscribeOptions
from xformc.commands.json_input import JsonInput, json_texts, require_json_output, require_lines
from xformc.commands.options import (
    Device,
    EngineFolder,
    InputFiles,
    JsonLines,
    PrefixFile,
    PrefixText,
    Seed,
    TextOutput,
    Threads,
    Truncate,
    Window,
    Workers,
)
from xformc.commands.text_lines import (
    choose_pace,
    columns_of,
    file_names,
    files_pace,
    given_prefixes,
    input_lines,
    one_line,
    write_results,
)
from xformc.commands.token_scores import TokenFields, TokenScores, require_json, token_fields_of
from xformc.errors import UserError
from xformc.format.reader import read_manifest
from xformc.runtime.arrays import read_npz
from xformc.runtime.engine import Engine, load
from xformc.runtime.generation.generate import Continuation
from xformc.runtime.generation.sampling import SampleArguments
from xformc.runtime.kinds.kind import kind_of
from xformc.runtime.options import SearchArguments
from xformc.runtime.searching.translate import Hypothesis, fields_of_text
from xformc.runtime.stream import MAX_BATCH_TOKENS

INPUT_HELP = """Read arrays from this .npz file, or lines of text, which may be .gz; `-` is standard input.
[default: -]"""

LANGUAGE_HELP = "Language of the text, such as de, of a model that knows several. [default: the one that it finds]"
TASK_HELP = "What such a model writes: transcribe, or translate for English. [default: transcribe]"
PART_HELP = "Cut longer sounds into parts of this length. [default: the longest that the model reads]"

TIMES_HELP = "With --json, also the parts of the text, with the seconds at which they begin and end, as the model says."


def transcribe(
    engine: EngineFolder,
    files: InputFiles = None,
    *,
    examples: Annotated[Path | None, Option("--input", "-i", help=INPUT_HELP, metavar="FILE")] = None,
    output: TextOutput = None,
    prefix: PrefixText = None,
    prefixes: PrefixFile = None,
    seed: Seed = 0,
    samples: Samples = 1,
    mbr: SamplesMbr = None,
    token_scores: TokenScores = False,
    language: Annotated[str | None, Option(help=LANGUAGE_HELP, metavar="CODE")] = None,
    task: Annotated[str | None, Option(help=TASK_HELP, metavar="NAME")] = None,
    part: Annotated[float | None, Option(help=PART_HELP, metavar="SECONDS")] = None,
    timestamps: Annotated[bool, Option("--timestamps", help=TIMES_HELP)] = False,
    as_json: JsonLines = False,
    json_input: JsonInput = False,
    truncate: Truncate = False,
    window: Window = None,
    workers: Workers = None,
    max_batch_tokens: Annotated[
        int, Option(help="Capacity of a batch: positions and written tokens.", metavar="N")
    ] = MAX_BATCH_TOKENS,
    threads: Threads = None,
    device: Device = None,
    **options: Unpack[TranscribeOptions],
) -> None:
    """Write text for frames of speech, images, several texts, or whatever the engine's spec takes.

    \b
    xformc transcribe recognizer/engine one.wav two.wav
    xformc transcribe captioner/engine photo.jpg --json
    xformc transcribe recognizer/engine -i speech.npz > out.txt

    The rows of an .npz file are examples: vectors [rows, longest, size] and NAME_lengths [rows], values [rows, ...],
    tokens [rows, longest], edges [rows, longest, longest]. A line has the texts of an engine that reads only text,
    separated by tabs; the text of a sound or an image is the path of its .wav, .png or .jpg file. `xformc inspect
    ENGINE` shows the engine's inputs.

    Each line of the output has the best text, or its token ids if the engine has no tokenizer; further results of the
    engine follow after tabs. With --json:
    {"line": 1, "hypotheses": [{"text": "...", "score": -1.5}]}, with an object for each further result: in each
    hypothesis, if the result depends on its text.

    Sounds that are longer than a model of speech reads are cut into parts, whose texts are joined; with --json, each
    hypothesis has them, and the language if the model found it.

    An engine searches, or samples if its spec has `decode: {sample: ...}`. --temperature, --top-k, --top-p,
    --max-new-tokens, --seed and --samples are for engines that sample. With --json, all samples are printed; --mbr puts
    the one first that is most like the others.
    """
    require_json(token_scores, as_json)
    require_json_output(json_input, as_json)
    require_lines(json_input, files, examples)
    if timestamps and not as_json:
        raise UserError("--timestamps needs --json", hint="each hypothesis then has `parts`")
    check_samples(mbr, samples)
    if files is None and examples is not None and examples.suffix == ".npz":
        with load(engine, threads=threads, workers=1 if workers is None else workers, device=device) as loaded:
            begun = given_prefixes(prefix, prefixes)
            found = loaded.transcribe(
                read_npz(examples),
                prefixes=begun,
                max_batch_tokens=max_batch_tokens,
                seed=seed,
                samples=samples,
                token_scores=token_scores,
                language=language,
                task=task,
                part=part,
                timestamps=timestamps,
                **options,
            )
            write_results(chosen_samples(found, mbr), _renderer(loaded, token_scores, as_json), output)
        return
    manifest = read_manifest(engine)
    given, kind = manifest.given, SearchArguments if manifest.decoding == "search" else SampleArguments
    pace = choose_pace(examples, window, workers, threads) if files is None else files_pace(files, window, workers)
    lines_of = input_lines(examples) if files is None else file_names(files, examples, given)
    with load(engine, threads=threads, workers=pace.workers, device=device) as loaded, lines_of as lines:
        texts: Any = json_texts(lines, kind, list(given)) if json_input else columns_of(lines, given)
        results = loaded.transcribe_stream(
            texts,
            prefixes=given_prefixes(prefix, prefixes),
            window=pace.window,
            max_batch_tokens=max_batch_tokens,
            truncate=truncate,
            seed=seed,
            samples=samples,
            token_scores=token_scores,
            language=language,
            task=task,
            part=part,
            timestamps=timestamps,
            **options,
        )
        with closing(results):
            write_results(chosen_samples(results, mbr), _renderer(loaded, token_scores, as_json), output)


def _renderer(engine: Engine, token_scores: bool, as_json: bool) -> Callable[[int, list[Hypothesis]], str]:
    if not as_json:
        return partial(_as_line, engine)
    return partial(_as_json, engine, token_fields_of(engine, wanted=token_scores))


def _lacks_text(engine: Engine) -> bool:
    """Whether the engine has no tokenizer for what it writes, so that token ids are shown."""
    return engine.tokenizer is None or engine.manifest.written not in engine.tokenizer.vocabularies


def _as_line(engine: Engine, index: int, hypotheses: list[Hypothesis]) -> str:
    results, best = engine.manifest.results, hypotheses[0]
    lines = [kind_of(results[name]).line(value) for name, value in best.results.items()]
    text = " ".join(map(str, best.tokens)) if _lacks_text(engine) else one_line(best.text)
    return "\t".join([text, *lines]) + "\n"


def _as_json(engine: Engine, tokens: TokenFields, index: int, hypotheses: list[Hypothesis]) -> str:
    ids = _lacks_text(engine)

    def more(one: Hypothesis | Continuation) -> dict[str, object]:
        return {**({"tokens": list(one.tokens)} if ids else {}), **tokens(one)}

    fields = {"line": index + 1, **fields_of_text(engine.manifest.results, hypotheses, more)}
    return json.dumps(fields, ensure_ascii=False) + "\n"
