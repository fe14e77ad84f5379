"""Laws of specs that declare their results: they train, are explained, and their engines do what the spec says."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from laws.declared import Declared, declared, losses_of, pretrained, trainable
from laws.models import TOLERANCE, random_module
from laws.settings import examples

from tests.runtime.kernel_session import kernel_library
from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.certify.forward_stages import expected_results
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.explain.cost.spec_cost import report
from xformc.compiler.explain.cost.table import report_text
from xformc.compiler.explain.picture.draw import draw_spec
from xformc.compiler.ops.contract import Contract
from xformc.compiler.ops.convolution import Convolution
from xformc.compiler.ops.functions import Unary
from xformc.compiler.ops.recurrence import Recurrence
from xformc.compiler.pipeline import compile_engine, compile_training
from xformc.compiler.program import Program
from xformc.compiler.spec import Spec, load_spec
from xformc.format.targets import Target
from xformc.runtime import Engine, load
from xformc.runtime.kinds.ctc import Transcript
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.rows import Row
from xformc.runtime.searching.translate import SEED, write_rows
from xformc.trainer.data.batches import make_batch
from xformc.trainer.data.data_schema import data_schema
from xformc.trainer.data.dataset import encode_split, make_tokenizer
from xformc.trainer.data.objectives import Draws, copies_of
from xformc.trainer.data.text_files import Texts

NUDGED = 1e-5
"""Where the last bits of the weights change a result by more, it may differ by more than the bounds of certificates."""

TARGETS: tuple[Target, ...] = ("portable", "native")
PLAIN = ("abc", "a", "hello there", "deaf head", "bad cab", "each hedge", "abcde")
"""Texts of few letters; one is too short for a prefix, and none longer than `train.max_length`."""

ANY = st.one_of(declared(), pretrained())


@pytest.fixture
def kernels() -> None:
    """Skip a test without the kernels of native engines."""
    kernel_library()


@examples(12)
@given(declared())
def test_a_training_step_is_finite(tmp_path: Path, made: Declared) -> None:
    spec = made.read(tmp_path)
    assume(trainable(spec))
    loss, module = losses_of(spec)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert all(one.grad is None or bool(one.grad.isfinite().all()) for one in module.parameters())


@examples(6)
@given(pretrained())
def test_an_objective_makes_the_same_examples_again_for_a_finite_step(tmp_path: Path, made: Declared) -> None:
    spec = made.read(tmp_path)
    schema, split = data_schema(spec), Texts({"text": PLAIN}, range(1, len(PLAIN) + 1), Path("train.txt"), 0, "")
    assert spec.train.objective is not None
    tokenizer, copies = make_tokenizer(split, schema, spec.train.tokenizer), copies_of(spec.train.objective)
    found, again = (
        make_batch(one, np.arange(len(one)))
        for one in (encode_split(split, schema, tokenizer, {}, Draws(copies, 3)) for _ in range(2))
    )
    given, repeated = ([*one.inputs.values(), *one.targets.values()] for one in (found, again))
    assert all(map(torch.equal, given, repeated))
    assert len(PLAIN) * (copies - 1) < len(given[0]) <= len(PLAIN) * copies and found.count > 0
    module = TorchModule(compile_training(spec).graph, seed=1)
    loss, *_ = module(*given)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert all(one.grad is None or bool(one.grad.isfinite().all()) for one in module.parameters())


@examples(8)
@given(ANY)
def test_a_declared_spec_is_read_back_counted_and_drawn(tmp_path: Path, made: Declared) -> None:
    spec = made.read(tmp_path)
    text = spec.resolved_yaml()
    (tmp_path / "again.yaml").write_text(text, encoding="utf-8")
    again = load_spec(tmp_path / "again.yaml")
    assert compile_spec(again) == compile_spec(spec)
    assert again.resolved_yaml() == text
    assert report_text(report(spec, None, 2))
    draw_spec(spec, tmp_path / "model.svg", 2)


@pytest.mark.usefixtures("kernels")
@examples(4)
@given(ANY)
def test_an_engine_is_certified_and_does_not_depend_on_the_batch(tmp_path: Path, made: Declared) -> None:
    spec = made.read(tmp_path)
    rows, weights = probed(spec)
    found: list[list[Any]] = []
    for target in TARGETS:
        shutil.rmtree(tmp_path / target, ignore_errors=True)
        assert build_engine(spec, weights, None, target, tmp_path / target).passed
        with load(tmp_path / target, threads=1) as engine:
            found.append(results(engine, rows))
            alone = [results(engine, [row])[0] for row in rows]
        tolerance = 0.0 if target == "native" and ordered(spec) else TOLERANCE
        for one, other in zip(found[-1], alone, strict=True):
            same(one, other, tolerance)
    for one, other in zip(found[0], found[-1], strict=True):
        same(one, other, TOLERANCE)


def ordered(spec: Spec) -> bool:
    """Whether the last bits of results do not depend on the batch.

    ONNX Runtime's own products depend on the shapes, and its logarithms on the place of a number in its array.
    """
    if any(int(result.settings.get("beam_size", 1)) > 1 for result in spec.results):
        return False
    program = compile_engine(spec, "native")
    nodes = [node for graph in (program.graph, *program.graphs) for node in graph.nodes]
    return not any(
        isinstance(node.op, Contract | Convolution | Recurrence) or node.op == Unary("log") for node in nodes
    )


def probed(spec: Spec) -> tuple[list[Row], dict[str, Any]]:
    """Examples of the engine's inputs, and weights of which none is zero; specs that amplify rounding are left out."""
    program = compile_engine(spec)
    module = random_module(program.graph)
    probes = make_probes(program)
    inputs = [torch.from_numpy(probes.feeds[value.name]) for value in program.graph.inputs]
    arrays, random = module.arrays(), np.random.default_rng(1)
    nudged = TorchModule(program.graph).eval()
    nudged.load_arrays(
        {name: array * (1 + 1e-7 * random.standard_normal(array.shape)) for name, array in arrays.items()}
    )
    with torch.no_grad():
        for one, other in zip(_given(program, module(*inputs)), _given(program, nudged(*inputs)), strict=True):
            assume(np.isfinite(one).all() and float(np.abs(one - other).max()) < NUDGED)
    given: list[Row] = [{name: row[name] for name in program.given} for row in probes.rows]
    return given, arrays


def _given(program: Program, found: Any) -> list[Any]:
    """The values of the training form as an engine returns them; those that a search reads as they are."""
    values = [value.numpy() for value in (found if isinstance(found, tuple) else (found,))]
    return [*values, *expected_results(program, values).values()]


def results(engine: Engine, rows: list[Row]) -> list[Any]:
    """What the engine gives for rows of its inputs, by example."""
    if engine.manifest.decoding == "forward":
        return engine.predict_rows(rows)
    seeded = [{SEED: np.array(sum(row[name].size for name in row)), **row} for row in rows]
    short = replace(engine.manifest.sampling, max_new_tokens=8) if engine.manifest.decoding == "sample" else None
    options = short or replace(engine.manifest.search, beam_size=2, n_best=2, max_length_factor=0.5)
    return write_rows(engine.session, seeded, manifest=engine.manifest, tokenizer=None, options=options)


def same(one: Any, other: Any, tolerance: float) -> None:
    """Fail where results of an example differ."""
    if isinstance(one, list):
        if tolerance and [item.tokens for item in one] != [item.tokens for item in other]:
            return  # two candidates are closer than rounding; the certificate judges these
        assert [item.tokens for item in one] == [item.tokens for item in other]
        close([item.score for item in one], [item.score for item in other], tolerance)
        one, other = one[0], other[0]
    for name, value in one.results.items():
        for left, right in zip(_numbers(value), _numbers(other.results[name]), strict=True):
            close(left, right, tolerance)


def _numbers(value: Any) -> list[Any]:
    """The numbers of a result of any kind."""
    if isinstance(value, Prediction):
        return [value.probabilities]
    if isinstance(value, Transcript):
        return [[item.score for item in value.hypotheses]]
    return [value]


def close(found: Any, expected: Any, tolerance: float) -> None:
    left, right = np.asarray(found), np.asarray(expected)
    np.testing.assert_allclose(left, right, rtol=0, atol=tolerance * max(1.0, float(np.abs(right).max(initial=0))))
