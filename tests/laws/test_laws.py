"""Laws of every model: steps equal the training form, ONNX equals PyTorch, and rows do not depend on the batch."""

from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from laws.building_blocks import BACKWARD_STEP, CAUSAL_STEPS, DECODER_STEPS, ENCODER_STEPS
from laws.models import assert_causal, assert_close, make_model, random_module, read
from laws.settings import examples
from laws.specs import Sample, Step, samples
from one_op import open_onnx
from steps import onnx_run, run_steps, torch_run
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from xformc.compiler.graph import text
from xformc.compiler.graph.cost import total
from xformc.compiler.graph.graph import Graph
from xformc.compiler.graph.rules import RuleError, cost_of, made_lengths
from xformc.compiler.graph.verify import verify
from xformc.compiler.passes.fuse import fuse_attention
from xformc.compiler.passes.hoist import hoist
from xformc.compiler.passes.inference import inference
from xformc.compiler.passes.linear_attention import fuse_linear_attention
from xformc.compiler.passes.scan import scan
from xformc.compiler.passes.step import derive_step, with_beam

LANGUAGE_MODELS = samples("language_model", CAUSAL_STEPS)
TRANSLATIONS = samples("translation", DECODER_STEPS, ENCODER_STEPS)
DECODED = st.one_of(LANGUAGE_MODELS, TRANSLATIONS)
LABELLED = st.one_of(samples("tagging", ENCODER_STEPS), samples("classification", ENCODER_STEPS))
MODELS = st.one_of(DECODED, LABELLED, samples("frames", ENCODER_STEPS))


@examples(20)
@given(DECODED)
def test_steps_are_the_training_form(tmp_path: Path, sample: Sample) -> None:
    model = make_model(sample, tmp_path)
    inputs = model.inputs()
    *sources, tokens = inputs
    expected, tolerance = model.known(inputs)
    beams, halves = tokens.reshape(2, 2, -1), [source[::2] for source in sources]
    pairs = model.run([*(source.repeat(2, 0) for source in halves), tokens])
    for run, fixed in product((torch_run, onnx_run), (False, True)):
        decoder = derive_step(model.graph, sample.time, fixed=fixed)
        found = run_steps(decoder, run, model.module, tokens, tmp_path, sources)
        assert_close(found, expected, tolerance)
        found = run_steps(with_beam(decoder), run, model.module, beams, tmp_path, halves)
        assert_close(found.reshape(pairs.shape), pairs, tolerance)


@examples(25)
@given(MODELS)
def test_onnx_is_pytorch(tmp_path: Path, sample: Sample) -> None:
    model = make_model(sample, tmp_path)
    inputs = model.inputs()
    expected, tolerance = model.known(inputs)
    for target in ("portable", "cpu"):
        (found,) = open_onnx(model.graph, model.module, tmp_path, target=target)(inputs)
        assert_close(found, expected, tolerance)


@examples(25)
@given(MODELS)
def test_a_row_is_what_it_is_alone(tmp_path: Path, sample: Sample) -> None:
    model = make_model(sample, tmp_path)
    inputs = model.inputs()
    expected, tolerance = model.known(inputs)
    for row in (1, 2):
        found, wanted = model.run(model.alone(inputs, row)), expected[row : row + 1]
        assert_close(found, wanted[:, : found.shape[1]], tolerance)


@examples(25)
@given(DECODED)
def test_a_later_token_changes_nothing(tmp_path: Path, sample: Sample) -> None:
    model = make_model(sample, tmp_path)
    assert_causal(model.run, model.inputs(), *model.known(model.inputs()))


@examples(25)
@given(MODELS)
def test_every_graph_is_legal_and_its_text_reads_back(tmp_path: Path, sample: Sample) -> None:
    raw = read(sample, tmp_path).graph()
    graphs: list[Graph] = [raw, fuse_attention(raw), hoist(raw), hoist(fuse_attention(raw)), scan(hoist(raw))]
    plain = inference(graphs[-2])
    graphs.append(plain)
    if sample.decoded:
        for fixed in (False, True):
            decoder = derive_step(plain, sample.time, fixed=fixed)
            graphs += [decoder.prepare, decoder.step, with_beam(decoder).step]
    for graph in graphs:
        assert text.parse(text.format(verify(graph))) == graph


@examples(25)
@given(MODELS)
def test_fusing_hoisting_and_scanning_change_no_value(tmp_path: Path, sample: Sample) -> None:
    model = make_model(sample, tmp_path)
    inputs = model.inputs()
    expected, tolerance = model.known(inputs)
    raw = inference(model.spec.graph())
    scanned = scan(hoist(fuse_attention(raw)))
    for graph in (raw, fuse_attention(raw), hoist(raw), scan(raw), scanned, fuse_linear_attention(scanned)):
        module = random_module(graph)
        module.load_arrays(model.module.arrays())
        with_torch = torch_run(graph, module, tmp_path)(inputs)
        assert_close(with_torch[0], expected, tolerance)


@examples(25)
@given(LANGUAGE_MODELS, BACKWARD_STEP, st.integers(0, 4))
def test_what_is_not_causal_is_refused_with_its_place(tmp_path: Path, sample: Sample, step: Step, at: int) -> None:
    steps = [*sample.steps]
    steps.insert(at, step)
    model = make_model(sample.with_steps(steps), tmp_path)
    with pytest.raises(RuleError, match="cannot be decoded step by step") as error:
        derive_step(model.graph, sample.time)
    assert error.value.place is not None


@examples(25)
@given(MODELS)
def test_products_are_counted_as_they_are_executed(tmp_path: Path, sample: Sample) -> None:
    model = make_model(sample, tmp_path)
    inputs = [torch.from_numpy(array) for array in model.inputs()]
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.module(*inputs)
    sizes = {
        axis.name: size
        for value, array in zip(model.graph.inputs, inputs, strict=True)
        for axis, size in zip(value.type.axes, array.shape, strict=True)
    }
    for name, made in made_lengths(model.graph.nodes):
        sizes[name] = made.at(sizes)
    assert total(map(cost_of, model.graph.nodes)).products.at(sizes) == counter.get_total_flops()
