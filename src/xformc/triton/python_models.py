"""The models that Triton Inference Server runs in its Python backend.

`Tokens` runs an engine on token ids. `Texts` takes and returns text, and calls the model of token ids, in any backend.
Triton's Python backend calls `initialize` and `execute`.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from xformc.errors import UserError
from xformc.format.inputs import vocabularies_of
from xformc.format.interfaces import SAMPLING_OPTIONS, SEARCH_OPTIONS, interface
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions
from xformc.format.reader import read_manifest
from xformc.format.targets import TRAITS
from xformc.format.tasks import NAMED, RESULTS, SAMPLED, WRITING
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.engine import load
from xformc.runtime.generation.generate import Prompt, check_seed, continue_prompts, encode_prompt, sample
from xformc.runtime.kinds.kind import fields_of
from xformc.runtime.predict import encode_example, predict_rows
from xformc.runtime.results import Expected, check_results
from xformc.runtime.rows import Row
from xformc.runtime.searching.search import check_source, search
from xformc.runtime.searching.translate import SEED, Hypothesis, fields_of_text, write_rows
from xformc.runtime.session import Session
from xformc.runtime.text.texts import encode_line, prompt_limit, whole_limit
from xformc.runtime.text.tokenizer import Tokenizer, load_tokenizer

ENGINE = "engine"
"""The folder, in a model's version folder, with the engine or only its manifest and tokenizers."""

CONSTANT = frozenset((*SEARCH_OPTIONS, *SAMPLING_OPTIONS)) - {"prompt", "seed"}
"""Inputs of an engine's model that are constants of the exported model."""

OPTIONS, ASKED = "options", "model"
"""Parameters of the model's configuration: search or sampling options, and the model that `Texts` calls."""

_DECLARED: Mapping[str, str] = {"results": "TYPE_STRING"}
TEXT_OUTPUTS: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys((WRITING, SAMPLED, RESULTS), _DECLARED),
    "translation": {"translation": "TYPE_STRING", "score": "TYPE_FP32"},
    "language_model": {"continuation": "TYPE_STRING", "score": "TYPE_FP32"},
    "tagging": {"labels": "TYPE_STRING"},
    "classification": {"label": "TYPE_STRING", "probability": "TYPE_FP32"},
}
"""The outputs of `Texts` for each text, by task; the labels of words are separated by spaces.

Declared results are JSON, as `xformc predict --json` and `xformc transcribe --json` print them.
"""

Array = NDArray[Any]
Arrays = dict[str, Array]
"""The tensors of a request or response by name; the first axis is its texts or rows of ids."""

Run = Callable[[list[Arrays]], list[Arrays]]


class Tokens:
    """A model of token ids, run by xformc's runtime; the engine is in the model's version folder."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the engine on the device of this instance; Triton starts a process for each instance.

        Raises: UserError if the engine cannot be loaded.
        """
        kind = args["model_instance_kind"]
        if kind == "GPU":
            os.environ["CUDA_VISIBLE_DEVICES"] = _chosen_gpu(args["model_instance_device_id"])
        self._engine = load(_folder(args), device=_DEVICES[kind])
        self._options = _options(args, self._engine.manifest)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return the responses to these requests, whose rows are run as one batch."""
        names = ("source",) if self._engine.manifest.decoding == "search" else ("prompt", "seed")
        return _respond(requests, names, self._run)

    def _run(self, requests: list[Arrays]) -> list[Arrays]:
        session, counts = self._engine.session, [len(next(iter(one.values()))) for one in requests]
        if isinstance(self._options, SearchOptions):
            given = self._engine.manifest.inputs["source"]
            ids = _padded([one["source"] for one in requests], given.special.fill)
            source = check_source(ids, given.pieces, given.special.fill)
            found: Any = search(session, {"source": source}, self._options)
            return _split(counts, {"tokens": found.tokens, "lengths": found.lengths, "scores": found.scores})
        rows = [self._prompt(row) for one in requests for row in one["prompt"]]
        seeds = [check_seed(int(seed)) for one in requests for seed in one["seed"].reshape(-1)]
        prompts = [Prompt(row, seed) for row, seed in zip(rows, seeds, strict=True)]
        assert isinstance(self._options, SampleOptions)
        found = sample(session, prompts, self._options)
        columns = {"lengths": found.lengths[:, None], "scores": found.scores[:, None]}
        return _split(counts, {"tokens": found.tokens, **columns})

    def _prompt(self, row: Array) -> list[int]:
        """The ids of a prompt. Raises: UserError for padding before a token, an id out of range, and too many ids."""
        given = self._engine.manifest.inputs[self._engine.manifest.written]
        filled, most = row != given.special.absent, prompt_limit(given.longest).tokens
        ids: list[int] = row[filled].tolist()
        if (filled[1:] & ~filled[:-1]).any():
            raise UserError(f"each prompt must be tokens, then padding ({given.special.absent}) only")
        if ids and not 0 <= min(ids) <= max(ids) < given.pieces:
            raise UserError(f"the ids of a prompt must be from 0 to {given.pieces - 1}; one of them is not")
        if len(ids) > most:
            raise UserError(f"a prompt has {len(ids)} tokens; this engine takes at most {most}")
        if not ids and given.special.begin is None:
            raise UserError("an empty prompt, and the vocabulary has no begin token")
        return ids


class Texts:
    """Text in, text out, by calling the model of token ids in the same repository."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the tokenizers. Raises: UserError if they cannot be read."""
        folder = _folder(args)
        self._manifest = read_manifest(folder)
        self._tokenizer = cast(Tokenizer, load_tokenizer(folder, self._manifest))
        self._session = cast(Session, _Model(_parameter(args, ASKED), self._manifest))
        self._options = _options(args, self._manifest)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return the responses to these requests, whose texts are run as one batch."""
        decoding, seed = self._manifest.decoding, ["seed"] * (self._manifest.decoding == "sample")
        if self._manifest.task not in NAMED:
            return _respond(requests, (*self._manifest.given, *seed), self._describe)
        names = {"search": ("text",), "sample": ("text", "seed"), "forward": tuple(self._manifest.inputs)}[decoding]
        run = {"search": self._translate, "sample": self._continue, "forward": self._label}[decoding]
        return _respond(requests, names, run)

    def _translate(self, requests: list[Arrays]) -> list[Arrays]:
        counts, texts = [len(one["text"]) for one in requests], _texts(requests, "text")
        limit = whole_limit(self._manifest.inputs["source"].longest)
        encode = partial(self._tokenizer.encode, "source")
        ids = [encode_line(line, text, encode=encode, limit=limit, truncate=False) for line, text in texts]
        rows = [{"source": np.array(row, np.int64)} for row in ids]
        options = self._options
        assert isinstance(options, SearchOptions)
        found = write_rows(self._session, rows, manifest=self._manifest, tokenizer=self._tokenizer, options=options)
        none = Hypothesis("", -np.inf, ())
        found = [[*row, *[none] * (options.n_best - len(row))] for row in found]
        return _split(
            counts,
            {
                "translation": _strings([[one.text for one in row] for row in found]),
                "score": np.array([[one.score for one in row] for row in found], np.float32),
            },
        )

    def _continue(self, requests: list[Arrays]) -> list[Arrays]:
        counts, texts = [len(one["text"]) for one in requests], _texts(requests, "text")
        seeds, name = _seeds(requests, counts), self._manifest.written
        limit = prompt_limit(self._manifest.inputs[name].longest)
        encode = partial(encode_prompt, 1, name=name, tokenizer=self._tokenizer, limit=limit, truncate=False)
        prompts = [encode(text, seed=seed) for (_, text), seed in zip(texts, seeds, strict=True)]
        assert isinstance(self._options, SampleOptions)
        vocabulary = self._manifest.inputs[name].pieces
        found = continue_prompts(
            self._session, prompts, name=name, tokenizer=self._tokenizer, options=self._options, vocabulary=vocabulary
        )
        scores = np.array([[one.score] for one in found], np.float32)
        return _split(counts, {"continuation": _strings([[one.text] for one in found]), "score": scores})

    def _rows(self, requests: list[Arrays]) -> tuple[list[int], list[Row]]:
        """Return the number of examples of each request, and the examples of all."""
        given, words = self._manifest.given, self._manifest.labels_words
        counts = [len(one[next(iter(given))]) for one in requests]
        columns = [[text for _, text in _texts(requests, name)] for name in given]
        encode = partial(encode_example, inputs=given, words=words, tokenizer=self._tokenizer, truncate=False)
        return counts, [encode(line, texts) for line, texts in enumerate(zip(*columns, strict=True), start=1)]

    def _describe(self, requests: list[Arrays]) -> list[Arrays]:
        """Compute declared results."""
        manifest, options, (counts, rows) = self._manifest, self._options, self._rows(requests)
        if options is None:
            predictions = predict_rows(self._session, rows, manifest=manifest, tokenizer=self._tokenizer)
            found = [fields_of(manifest.results, one.results) for one in predictions]
        else:
            seeds = _seeds(requests, counts) if isinstance(options, SampleOptions) else [0] * len(rows)
            rows = [{**row, SEED: np.array(seed)} for row, seed in zip(rows, seeds, strict=True)]
            written = write_rows(self._session, rows, manifest=manifest, tokenizer=self._tokenizer, options=options)
            found = [fields_of_text(manifest.results, hypotheses) for hypotheses in written]
        return _split(counts, {"results": _strings([[json.dumps(one, ensure_ascii=False)] for one in found])})

    def _label(self, requests: list[Arrays]) -> list[Arrays]:
        counts, rows = self._rows(requests)
        found = predict_rows(self._session, rows, manifest=self._manifest)
        if self._manifest.positions is not None:
            return _split(counts, {"labels": _strings([[" ".join(one.labels)] for one in found])})
        label = _strings([[one.label if one.labels else ""] for one in found])
        probabilities = [[one.probability if one.labels else 0.0] for one in found]
        return _split(counts, {"label": label, "probability": np.array(probabilities, np.float32)})


class _Model:
    """The model of token ids with the interface of a session; its options are constants, so they are not sent."""

    of_text = None

    def __init__(self, name: str, manifest: Manifest) -> None:
        own = interface(manifest.inputs, manifest.results, manifest.decoding)
        self._name, self._outputs = name, own.outputs
        written = next((name for name, one in manifest.results.items() if one.kind == "text"), None)
        self.vocabularies = vocabularies_of(manifest.inputs, written)
        self._inputs = tuple(one for one in own.inputs if one not in CONSTANT)
        self._fixed = TRAITS[manifest.target].fixed

    def run(self, feeds: Arrays, expected: Sequence[Expected] = ()) -> list[Array]:
        """Return the outputs in order. Raises: UserError with Triton's message if the model fails, and as a session."""
        triton = _triton()
        arrays = {
            name: array if array.ndim > 1 else array[:, None] for name, array in feeds.items() if name in self._inputs
        }
        inputs = [triton.Tensor(name, array) for name, array in arrays.items()]
        request = triton.InferenceRequest(
            model_name=self._name,
            requested_output_names=list(self._outputs),
            inputs=inputs,
            preferred_memory=triton.PreferredMemory(triton.TRITONSERVER_MEMORY_CPU, 0),
        )
        response = request.exec()
        if response.has_error():
            raise UserError(str(response.error().message()), place=self._name)
        found = [triton.get_output_tensor_by_name(response, name).as_numpy() for name in self._outputs]
        # Triton has no tensors of shape [batch]: they arrive as [batch, 1].
        pairs = zip(found, expected, strict=True)
        found = [one.reshape(-1) if len(wanted.shape) == 1 else one for one, wanted in pairs] if expected else found
        if self._fixed and expected:
            found = [*map(_cut, found, expected)]
        check_results(dict(zip(self._outputs, found, strict=True)), expected, self._name)
        return found


def _cut(array: Array, wanted: Expected) -> Array:
    """The part that a call needs: a model in fixed shapes returns room for the text of the longest source."""
    for axis, size in enumerate(wanted.shape):
        if isinstance(size, range) and array.ndim == len(wanted.shape):
            array = array.take(range(min(array.shape[axis], size[-1])), axis)
    return array


def _respond(requests: Sequence[Any], names: Sequence[str], run: Run) -> list[Any]:
    """Return the response to each request. A bad request gets its error, and the others their results."""
    triton = _triton()
    tensors = [[triton.get_input_tensor_by_name(request, name) for name in names] for request in requests]
    given = [
        {name: tensor.as_numpy() for name, tensor in zip(names, row, strict=True) if tensor is not None}
        for row in tensors
    ]
    answers = _answers(given, run)
    return [
        triton.InferenceResponse(output_tensors=[], error=triton.TritonError(str(answer)))
        if isinstance(answer, Exception)
        else triton.InferenceResponse([triton.Tensor(name, array) for name, array in answer.items()])
        for answer in answers
    ]


def _answers(given: list[Arrays], run: Run) -> list[Arrays | Exception]:
    try:
        return [*run(given)]
    except Exception as error:  # whatever it is, the other requests of the batch have their results
        if len(given) == 1:
            return [error]
    return [answer for one in given for answer in _answers([one], run)]


def _split(counts: Sequence[int], found: Arrays) -> list[Arrays]:
    """Split arrays of all rows into those of each request, which has `counts` rows."""
    ends = np.cumsum(counts)[:-1]
    parts = {name: np.split(array, ends) for name, array in found.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(len(counts))]


def _padded(arrays: Sequence[Array], fill: int) -> Array:
    """Stack arrays of ids [rows, length], padded with `fill` at the end."""
    longest = max(array.shape[1] for array in arrays)
    wide = [np.pad(one, ((0, 0), (0, longest - one.shape[1])), constant_values=fill) for one in arrays]
    return np.concatenate(wide)


def _texts(requests: Sequence[Arrays], name: str) -> list[tuple[int, str]]:
    """Return the texts of the input `name`, [rows, 1] UTF-8 in each request, with their numbers from 1.

    Raises: UserError for a text that is not UTF-8.
    """
    found: list[tuple[int, str]] = []
    for line, content in enumerate((content for one in requests for content in one[name].reshape(-1)), start=1):
        try:
            found.append((line, content.decode() if isinstance(content, bytes) else str(content)))
        except UnicodeDecodeError as error:
            raise UserError("not valid UTF-8", place=f"{name} {line}") from error
    return found


def _seeds(requests: Sequence[Arrays], counts: Sequence[int]) -> list[int]:
    """Return the seed of each text; 0 where a request has none. Raises: UserError for one out of range."""
    given = (one.get("seed", np.zeros(count, np.int64)) for one, count in zip(requests, counts, strict=True))
    return [check_seed(int(seed)) for seeds in given for seed in seeds.reshape(-1)]


def _strings(rows: Sequence[Sequence[str]]) -> Array:
    return np.array([[text.encode() for text in row] for row in rows], np.object_)


_DEVICES: Mapping[str, DeviceName] = {"CPU": "cpu", "GPU": "cuda"}
"""The runtime's device for each kind of Triton instance."""


def _chosen_gpu(number: str) -> str:
    """Return the CUDA name of the GPU that the server counts as `number`."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return seen.split(",")[int(number)] if seen else number


def _folder(args: Mapping[str, str]) -> Path:
    return Path(args["model_repository"], args["model_version"], ENGINE)


def _parameter(args: Mapping[str, str], name: str) -> str:
    return json.loads(args["model_config"])["parameters"][name]["string_value"]


def _options(args: Mapping[str, str], manifest: Manifest) -> SearchOptions | SampleOptions | None:
    """Return the options chosen at export."""
    options: dict[str, Any] | None = json.loads(_parameter(args, OPTIONS))
    kinds: Mapping[str, Any] = {"search": SearchOptions, "sample": SampleOptions}
    if options is None:
        return None
    given = {name: tuple(cast(Any, value)) if isinstance(value, list) else value for name, value in options.items()}
    return kinds[manifest.decoding](**given)


def _triton() -> Any:
    """Import the module that exists only in Triton's Python backend."""
    return import_module("triton_python_backend_utils")
