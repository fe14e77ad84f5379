"""The conformance cases, and how a runtime runs one. `python -m tests.conformance.cases` records the results anew.

cases.json has one object for each case: `engine` is a folder of engines/, `change` what is done to a copy of it first,
`call` a method with its `input` and `options`, and then `result` or `error`. Every runtime must give these.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tests.conformance.engines import FOLDER, SOUND_FILES
from xformc.errors import UserError
from xformc.format.manifest import manifest_checksum
from xformc.runtime import Alignment, Continuation, Hypothesis, Prediction, SearchResult, load
from xformc.runtime.kinds.ctc import Transcript

FILE = Path(__file__).parent / "cases.json"

Case = Mapping[str, Any]


class Runtime(Protocol):
    """What loads engines: `load`, or `CppEngine`."""

    def __call__(self, directory: Path | str, *, threads: int | None = None, workers: int = 1) -> Any:
        """Return the engine in a folder. Raises: UserError."""
        ...


def read_cases() -> list[dict[str, Any]]:
    """Return all cases."""
    return json.loads(FILE.read_text(encoding="utf-8"))["cases"]


def outcome(case: Case, runtime: Runtime, work: Path) -> dict[str, Any]:
    """Run a case, with a copy of its engine in `work` if it changes it; return its `result` or `error`."""
    folder = FOLDER / case["engine"]
    if "change" in case:
        folder = Path(shutil.copytree(folder, work / "engine"))
        _change(folder, case["change"])
    try:
        engine = runtime(folder, threads=1, **case.get("load", {}))
        if case["call"] == "load":
            return {"result": "loaded"}
        if case["call"] == "stream_tokens":
            return {"result": [_streamed(engine, prompt, case.get("options", {})) for prompt in case["input"]]}
        method = getattr(engine, case["call"])
        return {"result": _plain(method(_input(case["input"]), **case.get("options", {})))}
    except UserError as error:
        place = (error.place or "").replace(str(folder.resolve()), "ENGINE").replace(str(folder), "ENGINE")
        place = place.replace(str(SOUND_FILES), "SOUNDS")
        return {"error": {"message": error.message, "place": place}}


def _streamed(engine: Any, prompt: str, options: Mapping[str, Any]) -> dict[str, Any]:
    stream = engine.stream_tokens(prompt, **options)
    pieces = list(stream)
    return {"pieces": pieces, **_plain(stream.continuation)}


def _input(given: Any) -> Any:
    """Return texts, of which an object is one that repeats, and arrays, which are objects of a type and values."""
    if isinstance(given, Mapping):
        arrays: Mapping[str, Mapping[str, Any]] = given
        return {name: np.array(item["values"], item["type"]) for name, item in arrays.items()}
    is_ids = bool(given) and isinstance(given[0], list) and all(isinstance(item, int) for row in given for item in row)
    if is_ids:
        return np.array(given, np.int64)
    return [_text(item) for item in given]


def _text(given: Any) -> Any:
    if isinstance(given, dict):
        return given["text"] * given["times"]
    return given.replace("SOUNDS", str(SOUND_FILES)) if isinstance(given, str) else given


def _plain(found: Any) -> Any:
    """Return results as JSON has them; a search of either runtime gives the same."""
    if isinstance(found, SearchResult):
        return [
            [
                {"tokens": row[:length].tolist(), "score": float(score)}
                for row, length, score in zip(rows, lengths, scores, strict=True)
            ]
            for rows, lengths, scores in zip(found.tokens, found.lengths, found.scores, strict=True)
        ]
    if isinstance(found, Hypothesis | Continuation):
        more = {**_results(found.results), **_links(found.alignment)} if isinstance(found, Hypothesis) else {}
        return {"text": found.text, "tokens": list(found.tokens), "score": found.score, **more}
    if isinstance(found, Prediction):
        labels = {"labels": list(found.labels), "probabilities": found.probabilities.tolist()}
        return _results(found.results) or labels
    if isinstance(found, Transcript):
        return [{"text": one.text, "tokens": list(one.tokens), "score": one.score} for one in found.hypotheses]
    if isinstance(found, np.ndarray):
        return {"shape": list(found.shape), "numbers": found.tolist()}
    return _links(found) if isinstance(found, Alignment) else [_plain(item) for item in found]


def _links(found: Alignment | None) -> dict[str, Any]:
    """Return the alignment of a translation, if it was asked for."""
    if found is None:
        return {}
    pairs = {"words": [*map(list, found.words)], "tokens": [*map(list, found.tokens)]}
    return {"links": {**pairs, "attention": found.attention.tolist()}}


def _results(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of an engine whose spec declares them."""
    return {"results": {name: _plain(value) for name, value in found.items()}} if found else {}


def _change(folder: Path, change: Mapping[str, Any]) -> None:
    """Damage a copy of an engine: set or remove keys of engine.json, with a right checksum unless the case says not."""
    path = folder / "engine.json"
    fields = json.loads(path.read_text())
    for name, value in change.get("set", {}).items():
        *sections, last = name.split("/")
        section = fields
        for key in sections:
            section = section[key]
        section[last] = value
    for name in change.get("remove", []):
        del fields[name]
    fields["checksum"] = change.get("checksum", manifest_checksum(fields))
    path.write_text(json.dumps(fields))
    for name, text in change.get("write", {}).items():
        (folder / name).write_text(text)
    for name in change.get("delete", []):
        (folder / name).unlink()


def drop_text(result: Any) -> Any:
    """Return the result of a search on ids without the texts, which only one of the runtimes has."""
    return [[{key: one[key] for key in ("tokens", "score")} for one in row] for row in result]


def main(run: Callable[..., Any] = load) -> None:
    """Record the outcome of each case with the Python runtime."""
    import tempfile

    cases = read_cases()
    for case in cases:
        for key in ("result", "error"):
            case.pop(key, None)
        with tempfile.TemporaryDirectory() as work:
            case.update(outcome(case, run, Path(work)))
    lines: Sequence[str] = [json.dumps(case) for case in cases]
    FILE.write_text('{"cases": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
