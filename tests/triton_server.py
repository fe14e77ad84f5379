"""A miniature of Triton Inference Server, which serves an exported model repository in this process.

It checks requests against a model's config.pbtxt, runs models of the onnxruntime backend in ONNX Runtime, and those of
the python backend with their model.py, for which it provides Triton's module.
"""

import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

DTYPES = {"TYPE_INT64": np.int64, "TYPE_FP32": np.float32, "TYPE_BOOL": np.bool_, "TYPE_STRING": np.object_}
TOKEN = re.compile(r'\s*(?:#[^\n]*|("(?:[^"\\]|\\.)*")|([\w.+-]+)|([{}\[\]:,]))')
Arrays = Mapping[str, np.ndarray]


class Server:
    """The models of a repository."""

    def __init__(self, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        module = SimpleNamespace(
            Tensor=Tensor,
            InferenceRequest=self._request,
            InferenceResponse=Response,
            TritonError=Error,
            PreferredMemory=lambda *_: None,
            TRITONSERVER_MEMORY_CPU=0,
            get_input_tensor_by_name=lambda request, name: request.get(name),
            get_output_tensor_by_name=lambda response, name: response.named(name),
        )
        monkeypatch.setitem(sys.modules, "triton_python_backend_utils", module)
        self.models = {path.parent.name: Model(path.parent) for path in sorted(repository.glob("*/config.pbtxt"))}

    def infer(self, name: str, *requests: Arrays) -> list[dict[str, np.ndarray] | str]:
        """The outputs of each of these requests, in one batch, or the error that it is answered by."""
        model = self.models[name]
        for request in requests:
            model.check(request, "input")
        responses = model.run(requests)
        for response in responses:
            if not isinstance(response, str):
                model.check(response, "output")
        return responses

    def outputs(self, name: str, *requests: Arrays) -> list[dict[str, np.ndarray]]:
        """The outputs of each of these requests, none of which is answered by an error."""
        outputs = list[dict[str, np.ndarray]]()
        for response in self.infer(name, *requests):
            assert not isinstance(response, str), response
            outputs.append(response)
        return outputs

    def _request(
        self, model_name: str, requested_output_names: list[str], inputs: "list[Tensor]", preferred_memory: object
    ) -> "Call":
        return Call(self, model_name, {tensor.name: tensor.array for tensor in inputs})


class Model:
    """A model of the repository."""

    def __init__(self, folder: Path) -> None:
        self.text = (folder / "config.pbtxt").read_text()
        self.config = parse(self.text)
        self.batch = int(self.config["max_batch_size"][0])
        (version,) = [path for path in folder.iterdir() if path.is_dir()]
        assert (self.config["name"], version.name) == ([folder.name], "1")
        if self.config["backend"] == ["onnxruntime"]:
            self._session = onnxruntime.InferenceSession(version / "model.onnx", providers=["CPUExecutionProvider"])
            self.run = self._run_onnx
            return
        spec = importlib.util.spec_from_file_location("model", version / "model.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        parameters = {one["key"][0]: {"string_value": one["value"][0]["string_value"][0]} for one in self.parameters}
        self._python = module.TritonPythonModel()
        config = json.dumps({"parameters": parameters})
        place = {"model_repository": str(folder), "model_version": "1", "model_instance_kind": "CPU"}
        self._python.initialize({"model_config": config, **place})
        self.run = self._run_python

    @property
    def parameters(self) -> list[Any]:
        return self.config.get("parameters", [])

    def check(self, arrays: Arrays, kind: str) -> None:
        """Hold tensors to what the config declares: names, types, the batch, and the sizes of the other axes."""
        declared = {one["name"][0]: one for one in self.config[kind]}
        optional = {name for name, one in declared.items() if one.get("optional") == ["true"]}
        assert arrays.keys() | optional == declared.keys()
        for name, array in arrays.items():
            assert array.dtype == DTYPES[declared[name]["data_type"][0]], name
            dims = [int(size) for size in declared[name]["dims"]]
            assert len(array.shape) == len(dims) + 1 and len(array) <= self.batch, name
            assert all(wanted in (-1, size) for wanted, size in zip(dims, array.shape[1:], strict=True)), name

    def _run_onnx(self, requests: Sequence[Arrays]) -> list[dict[str, np.ndarray] | str]:
        """The requests must have one shape, as those that Triton puts together."""
        whole = {name: np.concatenate([one[name] for one in requests]) for name in requests[0]}
        flat = {kind: {one["name"][0] for one in self.config[kind] if "reshape" in one} for kind in ("input", "output")}
        feeds = {name: array[:, 0] if name in flat["input"] else array for name, array in whole.items()}
        names = [one["name"][0] for one in self.config["output"]]
        found = dict(zip(names, map(np.asarray, self._session.run(names, feeds)), strict=True))
        shaped = {name: array[:, None] if name in flat["output"] else array for name, array in found.items()}
        counts = np.cumsum([len(next(iter(one.values()))) for one in requests])[:-1]
        parts = {name: np.split(array, counts) for name, array in shaped.items()}
        return [{name: part[index] for name, part in parts.items()} for index in range(len(requests))]

    def _run_python(self, requests: Sequence[Arrays]) -> list[dict[str, np.ndarray] | str]:
        given = [{name: Tensor(name, array) for name, array in one.items()} for one in requests]
        responses = self._python.execute(given)
        assert len(responses) == len(requests)
        return [
            {tensor.name: tensor.array for tensor in one.output_tensors} if one.error is None else one.error.text
            for one in responses
        ]


@dataclass
class Tensor:
    name: str
    array: np.ndarray

    def as_numpy(self) -> np.ndarray:
        return self.array


@dataclass
class Error:
    text: str

    def message(self) -> str:
        return self.text


@dataclass
class Response:
    output_tensors: list[Tensor]
    error: Error | None = None

    def has_error(self) -> bool:
        return self.error is not None

    def named(self, name: str) -> Tensor:
        return next(tensor for tensor in self.output_tensors if tensor.name == name)


@dataclass
class Call:
    server: Server
    model: str
    inputs: Arrays

    def exec(self) -> Response:
        (found,) = self.server.infer(self.model, self.inputs)
        if isinstance(found, str):
            return Response([], Error(found))
        return Response([Tensor(name, array) for name, array in found.items()])


def parse(text: str) -> dict[str, list[Any]]:
    """A message in protobuf's text format: every value of each field, in order."""
    tokens = [match[1] or match[2] or match[3] for match in TOKEN.finditer(text) if match.lastindex]
    message, rest = _message(tokens)
    assert rest == []
    return message


def _message(tokens: list[str]) -> tuple[dict[str, list[Any]], list[str]]:
    fields: dict[str, list[Any]] = {}
    while tokens and tokens[0] != "}":
        name, mark, *tokens = tokens
        found = fields.setdefault(name, [])
        if mark == "{":
            message, tokens = _message(tokens)
            found.append(message)
            tokens = tokens[1:]
        elif tokens[0] == "[":
            end = tokens.index("]")
            found += [_value(token) for token in tokens[1:end] if token != ","]
            tokens = tokens[end + 1 :]
        else:
            found.append(_value(tokens[0]))
            tokens = tokens[1:]
    return fields, tokens


def _value(token: str) -> str:
    return json.loads(token) if token.startswith('"') else token
