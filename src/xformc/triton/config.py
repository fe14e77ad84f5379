"""Writes config.pbtxt, Triton's description of a model in protobuf's text format.

The fields are those of the message ModelConfig in Triton's model_config.proto.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["KIND_CPU", "KIND_GPU"]
"""Where the instances of a model run."""

FIRST_LINE = "# Written by `xformc export`."
"""The first line of a config that a later export may replace."""


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model.

    dims: the axes after the batch; -1 is any size. If there are none, clients see one axis of size 1, because Triton
        has no tensors without axes.
    optional: the input may be left out.
    ragged: requests of different shapes may share a batch.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]
    optional: bool = False
    ragged: bool = False

    def lines(self) -> list[str]:
        """Return the fields of the tensor's message."""
        shown = self.dims or (1,)
        return [
            f"name: {json.dumps(self.name)}",
            f"data_type: {self.data_type}",
            f"dims: [ {', '.join(map(str, shown))} ]",
            *(["reshape { shape: [ ] }"] if not self.dims else []),
            *(["optional: true"] if self.optional else []),
            *(["allow_ragged_batch: true"] if self.ragged else []),
        ]


@dataclass(frozen=True)
class ModelConfig:
    """A model of a repository. The first axis of each input and output is the batch.

    queue_delay: microseconds that a request waits for others to share its batch.
    parameters: settings that the backend reads.
    """

    name: str
    backend: str
    max_batch_size: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    kind: Kind
    instances: int = 1
    queue_delay: int = 1000
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])

    def text(self) -> str:
        """Return the content of config.pbtxt."""
        lines = [
            FIRST_LINE,
            f"name: {json.dumps(self.name)}",
            f"backend: {json.dumps(self.backend)}",
            f"max_batch_size: {self.max_batch_size}",
            *(line for tensor in self.inputs for line in _message("input", tensor.lines())),
            *(line for tensor in self.outputs for line in _message("output", tensor.lines())),
            *_message("instance_group", [f"count: {self.instances}", f"kind: {self.kind}"]),
            *_message("dynamic_batching", [f"max_queue_delay_microseconds: {self.queue_delay}"]),
        ]
        for key, value in self.parameters.items():
            entry = [f"key: {json.dumps(key)}", f"value {{ string_value: {json.dumps(value)} }}"]
            lines += _message("parameters", entry)
        return "\n".join(lines) + "\n"


def _message(name: str, fields: list[str]) -> list[str]:
    return [f"{name} {{", *(f"  {line}" for line in fields), "}"]
