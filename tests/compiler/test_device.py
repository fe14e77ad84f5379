"""A module computes on its parameters' device: PyTorch's meta device rejects tensors of another device."""

import pytest
import torch

from tests.small_specs import names, small
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.pipeline import compile_engine

BY_VALUE = {"sparse_experts"}
"""Specs whose modules split rows by their values, which the meta device does not have."""


@pytest.mark.parametrize("name", [name for name in names() if name not in BY_VALUE])
def test_nothing_stays_on_another_device(name: str) -> None:
    spec = small(name)
    feeds = make_probes(compile_engine(spec)).feeds
    graph = compile_spec(spec)
    module = TorchModule(graph, seed=1).to("meta")
    found = module(*(torch.tensor(feeds[value.name], device="meta") for value in graph.inputs))
    for result, value in zip(found if isinstance(found, tuple) else (found,), graph.outputs, strict=True):
        assert result.device.type == "meta" and result.shape[-1] == value.type.axes[-1].size
