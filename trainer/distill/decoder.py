"""Decodes chunks of text with an engine; processes that run it import no PyTorch."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xformc.runtime.devices.device import DeviceName
from xformc.runtime.engine import Engine, load
from xformc.runtime.generation.generate import Continuation
from xformc.runtime.searching.translate import Hypothesis
from xformc.runtime.stream import MAX_BATCH_TOKENS
from xformc.runtime.text.texts import TooLongError

Written = Hypothesis | Continuation
LONG, EMPTY, NOTHING = "too long for the engine", "without text", "with an empty result"


@dataclass(frozen=True)
class Decoding:
    """How texts become rows of training data.

    options: those of the search or of sampling. samples, seed: texts drawn for each line, and the seed of the first;
    each text has the next seed. Without samples, translations are searched for, and a language model draws one text.
    back: the engine's texts are the sources, and the given ones the targets. tag: what stands before every source, and
    a space.
    """

    engine: Path
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    samples: int | None = None
    seed: int = 0
    back: bool = False
    tag: str | None = None
    max_batch_tokens: int = MAX_BATCH_TOKENS
    device: DeviceName | None = None


@dataclass(frozen=True)
class Lines:
    """Lines of text, of which the first has the number `first`, from 0; `text` is the hash of all lines up to here, and
    `size` their bytes."""

    first: int
    lines: Sequence[str]
    text: str
    size: int


@dataclass(frozen=True)
class Rows:
    """Rows as JSON lines, their number, the tokens that were written, and the lines dropped for each reason."""

    content: bytes
    count: int
    tokens: int
    dropped: Mapping[str, int]


class Decoder:
    """An engine that makes rows from lines, on one core."""

    def __init__(self, job: Decoding) -> None:
        self._job = job
        self._engine: Engine = load(job.engine, threads=1, device=job.device, verify_hashes=False)
        self._continues = self._engine.manifest.task == "language_model"

    def __call__(self, chunk: Lines) -> Rows:
        """Return the rows of these lines, in their order."""
        lines = chunk.lines
        numbers = [index for index, line in enumerate(lines) if self._continues or line.strip()]
        long, nothing, rows, tokens = 0, 0, list[dict[str, object]](), 0
        # A text that is too long is found by the engine: it is left out, and the engine goes on behind it.
        each = self._job.samples or 1
        repeated = [number for number in numbers for _ in range(each)] if self._continues else numbers
        done = 0
        while done < len(repeated):
            try:
                for result in self._decoded(chunk, repeated[done:], done):
                    made = list(self._rows(lines[repeated[done]], result))
                    rows += made
                    nothing += not made
                    tokens += sum(len(one.tokens) for one in result)
                    done += 1
            except TooLongError:
                long, number = long + 1, repeated[done]
                while done < len(repeated) and repeated[done] == number:
                    done += 1
        dropped = {EMPTY: len(lines) - len(numbers), LONG: long, NOTHING: nothing}
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return Rows(content.encode(), len(rows), tokens, {reason: count for reason, count in dropped.items() if count})

    def _decoded(self, chunk: Lines, numbers: Sequence[int], done: int) -> Iterator[Sequence[Written]]:
        job, texts = self._job, [chunk.lines[number] for number in numbers]
        batching: Any = {"max_batch_tokens": job.max_batch_tokens, **job.options}
        each = job.samples or 1
        if not self._continues:
            seed = job.seed + (chunk.first + done) * each if job.samples else 0
            yield from self._engine.translate_stream(texts, samples=job.samples, seed=seed, **batching)
            return
        seed = job.seed + chunk.first * each + done
        for continuation in self._engine.generate_stream(texts, seed=seed, **batching):
            yield [continuation]

    def _rows(self, line: str, results: Sequence[Written]) -> Iterator[dict[str, object]]:
        for result in results:
            score = round(result.score, 4)
            if isinstance(result, Continuation):
                if text := result.after(line).strip():
                    yield {"text": text, "score": score}
            elif written := result.text.strip():
                source, target = (written, line.strip()) if self._job.back else (line.strip(), written)
                tagged = source if self._job.tag is None else f"{self._job.tag} {source}"
                yield {"source": tagged, "target": target, "score": score}
