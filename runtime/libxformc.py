"""The C API of libxformc through ctypes, so that both runtimes can be compared (docs/cpp.md); engines run as in C."""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.tasks import RESULTS, SAMPLED, WRITING
from xformc.runtime.generation.generate import Continuation
from xformc.runtime.kinds.ctc import Labelling, Transcript
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.library import find_library
from xformc.runtime.onnx_runtime import onnx_runtime
from xformc.runtime.searching.alignment import Alignment
from xformc.runtime.searching.translate import Hypothesis


@dataclass(frozen=True)
class ResultOfEngine:
    """A result of an engine, as the library describes it."""

    name: str
    kind: str
    positions: str | None
    labels: tuple[str, ...]
    several: bool
    has_tokenizer: bool


@dataclass(frozen=True)
class Pieces:
    """A stream of tokens that has ended: an iterable of its pieces."""

    pieces: Sequence[str]
    continuation: Continuation

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)


class CppEngine:
    """An engine in libxformc. Its methods take and return what those of `Engine` do, and raise the same errors."""

    def __init__(self, directory: Path | str, *, threads: int | None = None, workers: int = 1) -> None:
        """Load the engine in a folder. Raises: UserError as `load`, and if there is no libxformc."""
        self._library = _open()
        self._engine = c_void_p()
        options = _LoadOptions()
        self._library.xformc_load_options_init(byref(options), c_size_t(ctypes.sizeof(options)))
        options.workers, options.onnxruntime = workers, str(onnx_library()).encode()
        if threads is not None:
            options.threads = threads
        self._call("load", str(directory).encode(), byref(options), byref(self._engine))
        self._results_of_engine = [
            self._result(index) for index in range(self._library.xformc_engine_result_count(self._engine))
        ]
        task = _text(self._library.xformc_engine_task(self._engine))
        self._declared, self._samples = task in (WRITING, SAMPLED, RESULTS), task == SAMPLED
        self._continues = task == "language_model"

    def close(self) -> None:
        """Free the engine."""
        self._library.xformc_engine_free(self._engine)
        self._engine = c_void_p()

    def translate(self, texts: Sequence[str], **options: Any) -> list[list[Hypothesis]]:
        """See `Engine.translate`."""
        search, run = self._options(_SearchOptions, options), self._options(_RunOptions, options)
        return self._written("translate", _texts(texts), c_size_t(len(texts)), search, run)

    def search(self, source: NDArray[np.int64], **options: Any) -> list[list[Hypothesis]]:
        """See `Engine.search`; the result has no texts."""
        array = np.ascontiguousarray(source, np.int64)
        search, run = self._options(_SearchOptions, options), self._options(_RunOptions, options)
        return self._written("search", c_void_p(array.ctypes.data), *map(c_size_t, array.shape), search, run)

    def transcribe(
        self, examples: Sequence[str | Sequence[str]] | Mapping[str, NDArray[Any]], **options: Any
    ) -> list[list[Hypothesis]]:
        """See `Engine.transcribe`; arrays are float32, int64 or bool."""
        kind = _SampleOptions if self._samples else _SearchOptions
        chosen, run = self._options(kind, options), self._options(_RunOptions, options)
        method, arguments, _kept = _examples("sample" if self._samples else "transcribe", examples)
        return self._written(method, *arguments, chosen, run)

    def score(
        self, texts: Sequence[str | Sequence[str]], targets: Sequence[str] | None = None, **options: Any
    ) -> list[Hypothesis]:
        """See `Engine.score`."""
        if targets is None or self._continues:
            prompts, whole = (None, texts) if targets is None else (_texts(cast(Any, texts)), targets)
            run = self._options(_RunOptions, options)
            return [
                one for [one] in self._written("score", prompts, _texts(cast(Any, whole)), c_size_t(len(whole)), run)
            ]
        write = self.transcribe if self._declared else self.translate
        given: Any = texts
        return [best for [best] in write(given, prefixes=targets, whole_texts=True, n_best=1, **options)]

    def generate(self, prompts: Sequence[str], **options: Any) -> list[Continuation]:
        """See `Engine.generate`."""
        sampling, run = self._options(_SampleOptions, options), self._options(_RunOptions, options)
        found = self._written("generate", _texts(prompts), c_size_t(len(prompts)), sampling, run)
        return [Continuation(one.text, one.score, one.tokens, one.token_scores) for [one] in found]

    def stream_tokens(self, prompt: str, *, tokens_at_once: int = 1, **options: Any) -> "Pieces":
        """See `Engine.stream_tokens`; the stream has ended when this returns."""
        pieces: list[str] = []

        def take(_: object, piece: _Bytes, __: object) -> int:
            pieces.append(ctypes.string_at(piece.data, piece.size).decode())
            return 0

        sampling = self._options(_SampleOptions, options)
        run = self._options(_RunOptions, {**options, "tokens_at_once": tokens_at_once})
        [[one]] = self._written("stream_tokens", _texts([prompt])[0], _TAKE(take), None, sampling, run)
        return Pieces(pieces, Continuation(one.text, one.score, one.tokens))

    def align(self, sources: Sequence[str], targets: Sequence[str], **options: Any) -> list[Alignment]:
        """See `Engine.align`."""
        run = self._options(_RunOptions, options)
        found = self._written("align", _texts(sources), _texts(targets), c_size_t(len(sources)), run)
        return [cast(Alignment, one.alignment) for [one] in found]

    def predict(
        self, examples: Sequence[str | Sequence[str]] | Mapping[str, NDArray[Any]], **options: Any
    ) -> list[Prediction]:
        """See `Engine.predict`; arrays are float32, int64 or bool."""
        run = self._options(_RunOptions, options)
        method, arguments, _kept = _examples("predict", examples)
        results = self._results(method, *arguments, run)
        count = self._library.xformc_results_count(results)
        found = [self._prediction(self._values(results, index)) for index in range(count)]
        self._library.xformc_results_free(results)
        return found

    def encode(self, name: str, text: str) -> list[int]:
        """Return the ids of a text of the input `name`, with its special tokens."""
        count, data = c_size_t(), _data(text)
        given = (self._engine, name.encode(), _Text(data, len(data)))
        self._call("encode", *given, None, c_size_t(0), byref(count))
        ids = (c_int64 * count.value)()
        self._call("encode", *given, ids, count, byref(count))
        return list(ids)

    def decode(self, name: str, ids: Sequence[int]) -> str:
        """Return the text of ids of the input `name`."""
        size, array = c_size_t(), (c_int64 * len(ids))(*ids)
        self._call("decode", self._engine, name.encode(), array, c_size_t(len(ids)), None, c_size_t(0), byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self._call("decode", self._engine, name.encode(), array, c_size_t(len(ids)), text, size, byref(size))
        return text.raw[: size.value].decode()

    def _options(self, kind: type["_Options"], given: Mapping[str, Any]) -> Any:
        """Return the struct with those of the options that it has; None is an option's default."""
        options = kind()
        getattr(self._library, kind.INIT)(byref(options), c_size_t(ctypes.sizeof(options)))
        for name, value in given.items():
            if name == "prefixes" and value is not None and hasattr(options, name):
                options.texts = _texts([value] if isinstance(value, str) else list(value))
                options.prefixes, options.prefix_count = ctypes.addressof(options.texts), len(options.texts)
            elif name == "stop" and value is not None and hasattr(options, name):
                options.texts = _texts(value)
                options.stop, options.stop_count = ctypes.addressof(options.texts), len(value)
            elif name == "suppress_tokens" and value is not None and hasattr(options, name):
                options.tokens = (_Token * (len(value) + 1))(*map(_token, value))
                options.suppress_tokens, options.suppress_count = ctypes.addressof(options.tokens), len(value)
            elif value is not None and hasattr(options, name):
                setattr(options, name, value.encode() if isinstance(value, str) else value)
        return byref(options)

    def _written(self, method: str, *arguments: Any) -> list[list[Hypothesis]]:
        results, library = self._results(method, *arguments), self._library
        found: list[list[Hypothesis]] = []
        for index in range(library.xformc_results_count(results)):
            count = library.xformc_results_hypothesis_count(results, c_size_t(index))
            values = self._values(results, index) if self._declared else {}
            found.append([self._hypothesis(results, index, rank, values) for rank in range(count)])
        library.xformc_results_free(results)
        return found

    def _hypothesis(self, results: c_void_p, index: int, rank: int, values: Mapping[str, Any]) -> Hypothesis:
        one = _Hypothesis()
        self._library.xformc_results_hypothesis(results, c_size_t(index), c_size_t(rank), byref(one))
        text = ctypes.string_at(one.text.data, one.text.size).decode()
        own = {
            result.name: value
            for which, result in enumerate(self._results_of_engine)
            if (value := self._value("results_text_value", results, index, rank, which)) is not None
        }
        scores = self._library.xformc_results_token_scores(results, c_size_t(index), c_size_t(rank))
        each = tuple(map(float, scores[: one.token_count])) if scores else ()
        tokens = tuple(one.tokens[: one.token_count])
        links = self._links(results, index, rank)
        return Hypothesis(text, float(one.score), tokens, {**values, **own}, token_scores=each, alignment=links)

    def _links(self, results: c_void_p, index: int, rank: int) -> Alignment | None:
        one = _Links(size=ctypes.sizeof(_Links))
        if not self._library.xformc_results_links(results, c_size_t(index), c_size_t(rank), byref(one)):
            return None
        words, tokens = one.words[: 2 * one.word_count], one.tokens[: 2 * one.token_count]
        shape = one.target_count, one.source_count
        weights = np.array(one.attention[: shape[0] * shape[1]], np.float32).reshape(shape)
        pairs = [tuple(zip(flat[::2], flat[1::2], strict=True)) for flat in (words, tokens)]
        return Alignment(pairs[0], pairs[1], weights)

    def _result(self, index: int) -> ResultOfEngine:
        """Return what the library says of a result of the engine."""
        one = _Result(size=ctypes.sizeof(_Result))
        assert self._library.xformc_engine_result(self._engine, c_size_t(index), byref(one))
        names = tuple(
            _text(self._library.xformc_engine_result_label(self._engine, c_size_t(index), c_size_t(label)))
            for label in range(one.label_count)
        )
        positions = None if one.positions is None else _text(one.positions)
        return ResultOfEngine(
            _text(one.name), _text(one.kind), positions, names, bool(one.several), bool(one.has_tokenizer)
        )

    def _values(self, results: c_void_p, index: int) -> dict[str, Any]:
        """Return the results of an example that are no text, by name."""
        found: dict[str, Any] = {}
        for which, result in enumerate(self._results_of_engine):
            if result.kind == "ctc":
                found[result.name] = self._transcript(results, index, which)
            elif (value := self._value("results_value", results, index, which)) is not None:
                found[result.name] = value
        return found

    def _value(self, function: str, results: c_void_p, *at: int) -> Any:
        """Return the value of a result, by this function of the API; None if it has none. `at` ends with its index."""
        one, result = _Value(size=ctypes.sizeof(_Value)), self._results_of_engine[at[-1]]
        if not getattr(self._library, f"xformc_{function}")(results, *map(c_size_t, at), byref(one)):
            return None
        shape: list[int] = one.shape[: one.rank]
        numbers = np.array(one.numbers[: int(np.prod(shape))], np.float32).reshape(shape)
        return numbers if result.kind != "labels" else _labels(result, one, numbers)

    def _transcript(self, results: c_void_p, index: int, which: int) -> Transcript:
        """Return a transcript as `kinds.ctc` does."""
        at, found = (c_size_t(index), c_size_t(which)), list[Labelling]()
        for rank in range(self._library.xformc_results_transcript_count(results, *at)):
            one = _Hypothesis()
            assert self._library.xformc_results_transcript(results, *at, c_size_t(rank), byref(one))
            text = ctypes.string_at(one.text.data, one.text.size).decode()
            spelled = self._results_of_engine[which].has_tokenizer
            found.append(Labelling(tuple(one.tokens[: one.token_count]), float(one.score), text if spelled else None))
        return Transcript(tuple(found))

    def _prediction(self, values: Mapping[str, Any]) -> Prediction:
        nothing = Prediction((), np.zeros((0, 0), np.float32))
        labelled = next((one for one in values.values() if isinstance(one, Prediction)), nothing)
        return replace(labelled, results=values) if self._declared else labelled

    def _results(self, method: str, *arguments: Any) -> c_void_p:
        results = c_void_p()
        self._call(method, self._engine, *arguments, byref(results))
        return results

    def _call(self, method: str, *arguments: Any) -> None:
        """Call a function of the API. Raises: UserError with the message, place and hint of its error."""
        error, library = c_void_p(), self._library
        if getattr(library, f"xformc_{method}")(*arguments, byref(error)) == 0:
            return
        parts = (getattr(library, f"xformc_error_{part}")(error) for part in ("message", "place", "hint"))
        message, place, hint = map(_text, parts)
        library.xformc_error_free(error)
        raise UserError(message, place=place or None, hint=hint or None)


def onnx_library() -> Path:
    """Return the file of ONNX Runtime in its Python package. Raises: UserError if the package has none."""
    folder = Path(onnx_runtime().__file__).parent / "capi"
    found = sorted(folder.glob("libonnxruntime.so*"))
    if not found:
        raise UserError("this package of ONNX Runtime has no libonnxruntime.so", place=str(folder))
    return found[0]


class _Options(Structure):
    INIT = ""


class _LoadOptions(_Options):
    _fields_ = [
        ("size", c_size_t), ("threads", c_int64), ("workers", c_int64), ("verify_hashes", c_bool),
        ("onnxruntime", c_char_p), ("log", c_void_p), ("log_data", c_void_p),
    ]  # fmt: skip


class _RunOptions(_Options):
    INIT = "xformc_run_options_init"
    _fields_ = [
        ("size", c_size_t), ("workers", c_int64), ("max_batch_tokens", c_int64), ("window", c_int64),
        ("truncate", c_bool), ("cancel", c_void_p), ("token_scores", c_bool), ("tokens_at_once", c_int64),
        ("alignment", c_bool),
    ]  # fmt: skip


_EDITS = [
    ("suppress_tokens", c_void_p), ("suppress_count", c_size_t), ("no_repeat_ngram_size", c_int64),
    ("repetition_penalty", c_double), ("presence_penalty", c_double), ("frequency_penalty", c_double),
]  # fmt: skip


class _SearchOptions(_Options):
    INIT = "xformc_search_options_init"
    _fields_ = [
        ("size", c_size_t), ("beam_size", c_int64), ("n_best", c_int64), ("length_penalty", c_double),
        ("max_length_factor", c_double), ("max_length_offset", c_int64), ("min_length", c_int64),
        ("prefixes", c_void_p), ("prefix_count", c_size_t), ("whole_texts", c_bool),
        ("length_penalty_kind", c_char_p), ("stop_rule", c_char_p), ("patience", c_double), ("preset", c_char_p),
        *_EDITS, ("beam_groups", c_int64), ("diversity_penalty", c_double),
        ("coverage_penalty", c_double), ("prefix_bias", c_double),
    ]  # fmt: skip


class _SampleOptions(_Options):
    INIT = "xformc_sample_options_init"
    _fields_ = [
        ("size", c_size_t), ("seed", c_int64), ("temperature", c_double), ("top_k", c_int64), ("top_p", c_double),
        ("max_new_tokens", c_int64), *_EDITS, ("stop", c_void_p), ("stop_count", c_size_t),
    ]  # fmt: skip


class _Text(Structure):
    _fields_ = [("data", c_char_p), ("size", c_size_t)]


class _Token(Structure):
    _fields_ = [("id", c_int64), ("piece", _Text)]


class _Bytes(Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t)]


class _Hypothesis(Structure):
    _fields_ = [("text", _Bytes), ("score", c_float), ("tokens", POINTER(c_int64)), ("token_count", c_size_t)]


class _Result(Structure):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("kind", c_char_p), ("positions", c_char_p), ("label_count", c_size_t),
        ("several", c_bool), ("has_tokenizer", c_bool),
    ]  # fmt: skip


class _Value(Structure):
    _fields_ = [
        ("size", c_size_t), ("numbers", POINTER(c_float)), ("shape", POINTER(c_int64)), ("rank", c_size_t),
        ("labels", POINTER(c_int64)), ("labels_per_row", POINTER(c_size_t)), ("label_count", c_size_t),
    ]  # fmt: skip


class _Links(Structure):
    _fields_ = [
        ("size", c_size_t), ("words", POINTER(c_int64)), ("word_count", c_size_t), ("tokens", POINTER(c_int64)),
        ("token_count", c_size_t), ("attention", POINTER(c_float)), ("target_count", c_size_t),
        ("source_count", c_size_t),
    ]  # fmt: skip


_TAKE = ctypes.CFUNCTYPE(c_int, c_void_p, _Bytes, c_void_p)


class _Array(Structure):
    _fields_ = [
        ("name", c_char_p), ("element", c_int), ("data", c_void_p), ("shape", POINTER(c_int64)), ("rank", c_size_t),
    ]  # fmt: skip


_ELEMENTS = {"float32": 1, "int64": 7, "bool": 9}


def _open() -> ctypes.CDLL:
    library = ctypes.CDLL(str(find_library().path))
    for name in ("error_message", "error_place", "error_hint", "engine_task", "engine_result_label"):
        getattr(library, f"xformc_{name}").restype = c_char_p
    for name in ("results_count", "results_hypothesis_count", "engine_result_count", "results_transcript_count"):
        getattr(library, f"xformc_{name}").restype = c_size_t
    for name in ("engine_result", "results_value", "results_text_value", "results_transcript", "results_links"):
        getattr(library, f"xformc_{name}").restype = c_bool
    library.xformc_results_token_scores.restype = POINTER(c_float)
    return library


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _texts(texts: Sequence[str]) -> Any:
    encoded = [_data(text) for text in texts]
    return (_Text * len(texts))(*(_Text(data, len(data)) for data in encoded))


def _token(given: int | str) -> "_Token":
    data = _data(given) if isinstance(given, str) else b""
    return _Token(0, _Text(data, len(data))) if isinstance(given, str) else _Token(given, _Text(None, 0))


def _examples(
    method: str, examples: Sequence[str | Sequence[str]] | Mapping[str, NDArray[Any]]
) -> tuple[str, tuple[Any, ...], Any]:
    """Return the method for texts or for arrays, its arguments, and what must live as long as they do."""
    if isinstance(examples, Mapping):
        arrays, kept = _arrays(examples)
        return f"{method}_arrays", (arrays, c_size_t(len(kept))), kept
    texts = [text for example in examples for text in ([example] if isinstance(example, str) else example)]
    return method, (_texts(texts), c_size_t(len(examples))), texts


def _labels(result: ResultOfEngine, value: _Value, probabilities: NDArray[np.float32]) -> Prediction:
    """Return labels as `kinds.labels` does."""
    found: list[int] = value.labels[: value.label_count]
    counts: list[int] = value.labels_per_row[: len(probabilities)]
    labels = iter([result.labels[label] for label in found])
    rows = [[next(labels) for _ in range(count)] for count in counts]
    if result.several and result.positions is not None:
        return Prediction(tuple(map(",".join, rows)), probabilities)
    return Prediction(tuple(label for row in rows for label in row), probabilities)


def _arrays(given: Mapping[str, NDArray[Any]]) -> tuple[Any, list[Any]]:
    """Return the structs of arrays, and what must live as long as they do."""
    kept: list[Any] = []
    structs = (_Array * len(given))()
    for struct, (name, array) in zip(structs, given.items(), strict=True):
        whole = np.ascontiguousarray(array)
        shape = (c_int64 * whole.ndim)(*whole.shape)
        kept.append((whole, shape))
        struct.name, struct.element, struct.data = name.encode(), _ELEMENTS[str(whole.dtype)], whole.ctypes.data
        struct.shape, struct.rank = shape, whole.ndim
    return structs, kept
