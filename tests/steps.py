"""Small models around the steps of a test, their derived steps against the training form, and their padding."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from one_op import open_onnx, run_onnx

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.graph.axes import Axis
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.verify import verify
from xformc.compiler.ops.keys import PAST, ROOM
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.step import Decoder, State, derive_step, with_beam
from xformc.compiler.spec import load_spec

Run = Callable[[list[np.ndarray]], list[np.ndarray]]
_NUMPY = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}


def language_graph(folder: Path, steps: str, sizes: str = "", blocks: str = "{}") -> Graph:
    """The graph of a language model with these steps, written on one line, between its two tables."""
    return _graph(folder, "language_model", "vocabulary", steps, sizes, blocks)


def tagging_graph(folder: Path, steps: str, sizes: str = "", task: str = "tagging") -> Graph:
    """The graph of a model that labels each token, or with another task the whole text."""
    return _graph(folder, task, "labels", steps, f"labels: 3{', ' if sizes else ''}{sizes}", "{}")


def _graph(folder: Path, task: str, result: str, steps: str, sizes: str, blocks: str) -> Graph:
    text = f"""\
task: {task}
sizes: {{d_model: 6, vocabulary: 20{", " if sizes else ""}{sizes}}}
inputs: {{text: {{tokens: vocabulary}}}}
model:
  start: {{from: text, do: [embedding: d_model]}}
  body: {{from: start, do: {steps}}}
  logits: {{from: body, do: [linear: {{to: {result}, bias: false}}]}}
blocks: {blocks}
"""
    if task == "tagging":
        text += "train: {tokenizer: {kind: word}}\n"
    path = folder / "model.yaml"
    path.write_text(text, encoding="utf-8")
    return compile_spec(load_spec(path))


def assert_padding_does_not_matter(graph: Graph, folder: Path) -> None:
    """A text among longer ones gets what it gets alone, in PyTorch and in ONNX Runtime."""
    graph = verify(inference(graph))
    module = TorchModule(graph, seed=3).eval()
    tokens = np.random.default_rng(0).integers(4, 20, (2, 7))
    tokens[0, 4:] = 0
    with torch.no_grad():
        alone, padded = (module(torch.from_numpy(rows)).numpy() for rows in (tokens[:1, :4], tokens))
    (found,) = run_onnx(graph, module, [tokens], folder, target="portable")
    real = 4 if alone.ndim == 3 else None
    np.testing.assert_allclose(padded[0, :real], alone[0], atol=1e-5)
    np.testing.assert_allclose(found[0, :real], alone[0], atol=1e-5)


def assert_steps_are_the_training_form(graph: Graph, folder: Path, time: str = "text", length: int = 7) -> Decoder:
    """So many steps, of one token or of several, give what the graph gives of that many tokens. Returns the decoder."""
    graph = verify(inference(graph))
    module, decoder = TorchModule(graph, seed=3).eval(), derive_step(graph, time)
    fixed = derive_step(graph, time, fixed=True)
    tokens = np.random.default_rng(0).integers(4, 20, (4, length))
    with torch.no_grad():
        expected = module(torch.from_numpy(tokens)).numpy()
    for run in (torch_run, onnx_run):
        for steps in (decoder, fixed):
            found = run_steps(steps, run, module, tokens, folder)
            np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-4)
        for parts in ((length,), (1, length - 1), (length - 2, 1, 1)):
            found = run_parts(decoder, run, module, tokens, folder, parts)
            np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-4)
        found = run_steps(with_beam(decoder), run, module, tokens.reshape(2, 2, length), folder)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-5, rtol=1e-4)
    return decoder


def run_steps(
    decoder: Decoder,
    run: Callable[..., Run],
    module: TorchModule,
    tokens: np.ndarray,
    folder: Path,
    inputs: Sequence[np.ndarray] = (),
) -> np.ndarray:
    """The logits of one step after another, along the time axis. Tokens: [batch, time] or [batch, beam, time].

    `run` is `torch_run` or `onnx_run`; `inputs` are those of `prepare`. Fixed caches have room for two positions more.
    """
    return _run(decoder, decoder.step, run, module, tokens, folder, (1,) * tokens.shape[-1], inputs)


def run_parts(
    decoder: Decoder,
    run: Callable[..., Run],
    module: TorchModule,
    tokens: np.ndarray,
    folder: Path,
    parts: Sequence[int],
) -> np.ndarray:
    """The same for steps of so many tokens each."""
    assert decoder.extend is not None and sum(parts) == tokens.shape[-1]
    return _run(decoder, decoder.extend, run, module, tokens, folder, parts, ())


def _run(  # noqa: PLR0917
    decoder: Decoder,
    graph: Graph,
    run: Callable[..., Run],
    module: TorchModule,
    tokens: np.ndarray,
    folder: Path,
    parts: Sequence[int],
    inputs: Sequence[np.ndarray],
) -> np.ndarray:
    verify(decoder.prepare)
    verify(graph)
    room = tokens.shape[-1] + 2
    if decoder.positions is not None:
        inputs = [*inputs, np.arange(room)]
    prepared = run(decoder.prepare, module, folder / "prepare")([*inputs]) if decoder.prepare.outputs else []
    known = dict(zip((value.name for value in decoder.prepared), prepared, strict=True))
    constants = prepared[: len(decoder.constants)]
    states = [_initial(state, known, tokens.shape, room) for state in decoder.states]
    step, logits, position = run(graph, module, folder / "step"), list[np.ndarray](), 0
    for count in parts:
        token = tokens[..., position : position + count]
        now, *states = step([token, np.array(position), *constants, *states])
        logits.append(now)
        position += count
    return np.concatenate(logits, -2)


def _initial(state: State, known: dict[str, np.ndarray], shape: tuple[int, ...], room: int) -> np.ndarray:
    kind = state.past.type
    rows = dict(zip(("batch", "beam"), shape[:-1], strict=False)) | {ROOM: room}
    sizes = [rows[axis.name] if axis.name in rows else _size(axis) for axis in kind.axes]
    if state.initial is None:
        return np.zeros(sizes, _NUMPY[kind.dtype])
    missing = [index for index, name in enumerate(kind.names) if name not in state.initial.type.names]
    return np.broadcast_to(np.expand_dims(known[state.initial.name], missing), sizes)


def _size(axis: Axis) -> int:
    if axis.size is not None:
        return axis.size
    assert axis.name.startswith(PAST), axis
    return 0


def torch_run(graph: Graph, module: TorchModule, folder: Path) -> Run:
    """The graph's outputs for its inputs in PyTorch, with the parameters of the module."""
    compiled = TorchModule(graph).eval()
    compiled.load_arrays(module.arrays())

    def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            found = compiled(*map(torch.tensor, inputs))
        return [value.numpy() for value in (found if isinstance(found, tuple) else (found,))]

    return run


def onnx_run(graph: Graph, module: TorchModule, folder: Path) -> Run:
    """The same in ONNX Runtime."""
    folder.mkdir(exist_ok=True)
    return open_onnx(graph, module, folder, target="portable")
