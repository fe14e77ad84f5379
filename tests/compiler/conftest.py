"""A model that is small enough for a slow exhaustive search, made from an ordinary spec."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runtime.kernel_session import kernel_library
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.graph import Graph
from xformc.compiler.passes.inference import inference
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.spec import Spec, load_spec
from xformc.format.targets import Target

TINY = """\
extends: transformer_base
sizes: {layers: 2, d_model: 16, d_ff: 24, heads: 2, vocabulary: 40, dropout: 0.1}
train: {schedule: {warmup_steps: 10}, steps: 4}
"""


@pytest.fixture
def tiny_spec(tmp_path: Path) -> Spec:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return load_spec(path)


@pytest.fixture
def tiny_graph(tiny_spec: Spec) -> Graph:
    return inference(compile_spec(tiny_spec))


def eager_to_end(module: TorchModule, rank: int) -> TorchModule:
    """Let the end token be about as likely as the `rank`th best token, so that hypotheses end at many lengths."""
    with torch.no_grad():
        logits = module(torch.tensor([[7, 8, 9, 3]]), torch.tensor([[2, 10]]))[0, -1]
        chosen = logits.argsort(descending=True)[rank]
        for name, parameter in module.named_parameters():
            if name.endswith("embedding.weight"):
                parameter[3] = 1.02 * parameter[chosen]
    return module


@pytest.fixture
def make_subject(tiny_spec: Spec, tiny_graph: Graph, tmp_path: Path) -> Callable[..., Subject]:
    """A subject whose engine is in `tmp_path/engine`; nothing is written there yet."""

    def make(seed: int = 0, *, target: Target = "portable") -> Subject:
        if target == "native":
            kernel_library()
        module = eager_to_end(TorchModule(tiny_graph, seed=seed).eval(), 2 + seed % 2)
        folder = tmp_path / f"engine-{seed}-{target}"
        folder.mkdir(exist_ok=True)
        return Subject(compile_engine(tiny_spec, target), module, folder)

    return make


def random_sources(seed: int, count: int, longest: int, vocabulary: int = 40) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        np.r_[random.integers(4, vocabulary, random.integers(1, longest)), 3].astype(np.int64) for _ in range(count)
    ]
