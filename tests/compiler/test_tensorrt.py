"""Models for TensorRT: a builder that needs no GPU accepts those of every spec; profiles, and rejected models."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from command_line import CommandLine
from laws.settings import some
from onnx import TensorProto, helper

from tests.calibration import probe_examples
from tests.small_specs import names, small, small_text
from tests.task_specs import SPECS, write_task
from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.tensorrt.builder import Builder, Network, installed_builders, open_builder
from xformc.compiler.backends.tensorrt.profiles import Tensor, derive_profile, fit_batch, parse_profile, with_made_axes
from xformc.compiler.backends.tensorrt.write_plans import PlanOptions
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.graph.lengths import Length
from xformc.compiler.ops.roundable import linear_weights
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.quantize.calibration import calibrate, calibrated_weights
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.format.manifest import SampleOptions, SearchOptions
from xformc.format.names import MODEL, PREPARE, STEP
from xformc.format.plans import Plan
from xformc.format.precision import Precision
from xformc.format.reader import read_manifest
from xformc.runtime.devices.driver import Gpu, check_plan

SIZES = {"batch": (1, 2, 4), "beam": (1, 4, 4), "source": (1, 8, 16), "room": (1, 8, 16)}
QUICK = "batch=1:2:4,room=1:8:16"


@pytest.fixture(scope="module")
def builder() -> Builder:
    if "tensorrt_rtx" not in installed_builders():
        pytest.skip("tensorrt_rtx is not installed: pip install 'xformc[tensorrt-rtx]'")
    return open_builder("tensorrt_rtx")


def networks(
    spec: Spec, folder: Path, builder: Builder, precision: Precision = "float32", *, calibrated: bool = False
) -> dict[str, Network]:
    """The models of a spec with randomly initialized weights, parsed."""
    precisions = spec.precisions(precision)
    program = compile_engine(spec, "tensorrt", precisions)
    module = TorchModule(program.graph)
    arrays = module.arrays()
    maps = linear_weights(program.graph) if calibrated else frozenset[str]()
    scales = calibrate(module, calibrated_weights(precisions, maps, examples=calibrated), probe_examples(spec))
    weights = Initializers(arrays, precisions, input_scales=scales)
    models = emit_engine(program, weights)
    save_models(models, weights, folder)
    return {name: Network(builder, folder / name, program.places) for name in models}


def axes(network: Network) -> set[str]:
    """The axes of the network's inputs whose sizes are the run's."""
    return {axis for item in network.inputs.values() for axis in item.axes if isinstance(axis, str)}


def sizes(network: Network) -> dict[str, tuple[int, int, int]]:
    """Small ranges for every axis of the network's inputs."""
    return {axis: SIZES.get(axis, (1, 8, 16)) for axis in axes(network)}


REFUSED = {"pointer_generator": "Unsupported reduction type"}
"""What TensorRT has no way to compute: it does not add elements by index."""


@pytest.mark.parametrize("name", some(names(), 3, but=[*REFUSED]))
def test_specs_are_built(name: str, tmp_path: Path, builder: Builder) -> None:
    """One of three, or with LAWS=1 all of them."""
    if name in REFUSED:
        with pytest.raises(UserError, match=REFUSED[name]):
            networks(small(name), tmp_path, builder)
        return
    made = networks(small(name), tmp_path, builder)
    part = made.get(STEP, made[MODEL])
    assert len(part.build(sizes(part), effort=0)) > 1000
    assert (PREPARE in made) == (STEP in made)


@pytest.mark.parametrize("task", SPECS)
def test_every_kind_of_input_is_built(task: str, tmp_path: Path, builder: Builder) -> None:
    for network in networks(write_task(tmp_path, task), tmp_path, builder).values():
        assert network.build(sizes(network), effort=0)


@pytest.mark.parametrize("name", ["graph_attention", "bert", "vit", "conformer", "reformer"])
def test_an_engine_of_labels_has_its_plan(name: str, tmp_path: Path, builder: Builder, xformc: CommandLine) -> None:
    (tmp_path / "small.yaml").write_text(small_text(name), encoding="utf-8")
    arguments = ("--target", "tensorrt", "--builder", builder.name, "--profile", "batch=1:2:4")
    built = xformc("build", tmp_path / "small.yaml", *arguments, "--out", tmp_path / "engine")
    assert built.code == 0
    assert sorted(read_manifest(tmp_path / "engine").plans) == ["model.plan"]


@pytest.mark.parametrize("name", ["transformer_base", "gpt", "linear_attention"])
def test_a_whole_search_is_built(name: str, tmp_path: Path, builder: Builder) -> None:
    network = networks(small(name), tmp_path, builder)[MODEL]
    assert network.build({**sizes(network), "beam": (4, 4, 4)}, effort=0)


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "int8", "int4"])
def test_each_precision_is_built_in_its_own_numbers(
    tiny_spec: Spec, tmp_path: Path, builder: Builder, precision: Precision
) -> None:
    step = networks(tiny_spec, tmp_path, builder, precision)[STEP]
    assert step.build(sizes(step), effort=0)
    kinds = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "int8": "INT8", "int4": "INT4"}
    stored = {tensor.name: tensor.data_type for tensor in onnx.load(tmp_path / STEP).graph.initializer}
    assert stored["decoder/0/feed_forward/inner/weight"] == TensorProto.DataType.Value(kinds[precision])


@pytest.mark.parametrize(
    ("name", "precision"),
    [("transformer_base", "int8"), ("transformer_base", "float8"), ("gpt", "int8"), ("llama", "float8"),
     ("seq2seq_attention", "int8"), ("lstm_language_model", "float8")],
)  # fmt: skip
def test_steps_that_multiply_in_8_bits_are_built(
    name: str, tmp_path: Path, builder: Builder, precision: Precision
) -> None:
    made = networks(small(name), tmp_path, builder, precision, calibrated=True)
    assert made[PREPARE].build(sizes(made[PREPARE]), effort=0)
    assert made[STEP].build(sizes(made[STEP]), effort=0)
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(tmp_path / STEP).graph.node}


@pytest.mark.parametrize("precision", ["int8", "float8"])
def test_plans_hold_weights_of_8_bits(tmp_path: Path, builder: Builder, precision: Precision) -> None:
    """What is stored tells what is multiplied: no float32 copies, which products in float32 would need."""
    path = tmp_path / "wide.yaml"
    path.write_text(
        "extends: transformer_base\nsizes: {layers: 1, d_model: 128, d_ff: 8192, heads: 2, vocabulary: 40}\n"
    )
    found = dict[str, int]()
    for kind in ("float32", precision):
        folder = tmp_path / kind
        folder.mkdir()
        step = networks(load_spec(path), folder, builder, kind, calibrated=kind != "float32")[STEP]
        found[kind] = len(step.build(sizes(step), effort=0))
    weights = 2 * 128 * 8192
    assert found["float32"] - found[precision] > 2 * weights


def test_an_engine_has_its_plans_and_says_what_they_are(
    tiny_spec: Spec, tmp_path: Path, builder: Builder, xformc: CommandLine
) -> None:
    options = PlanOptions(f"{QUICK},source=1:8:16", "tensorrt_rtx", effort=0)
    certificate = build_engine(
        tiny_spec, None, None, "tensorrt", tmp_path / "engine", rounding=Rounding("float16"), plans=options
    )
    assert certificate.passed
    plans = read_manifest(tmp_path / "engine").plans
    assert sorted(plans) == ["model.plan", "prepare.plan", "step.plan"]
    assert all((tmp_path / "engine" / name).stat().st_size > 1000 for name in plans)
    step = plans["step.plan"]
    assert (step.builder, step.version, step.device) == ("tensorrt_rtx", builder.version, None)
    assert step.profile["room"] == (1, 8, 16) and plans["model.plan"].profile["beam"] == (4, 4, 4)
    assert step.precision == "float16"
    assert f"step.plan: tensorrt_rtx {builder.version}, for any GPU" in xformc("inspect", tmp_path / "engine").out


def test_a_whole_search_that_is_refused_is_said(
    tmp_path: Path, builder: Builder, xformc: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Network.build

    def build(self: Network, *sizes, **options) -> bytes:
        if self.path.name == MODEL:
            raise UserError("cannot build this loop")
        return right(self, *sizes, **options)

    monkeypatch.setattr(Network, "build", build)
    path = tmp_path / "tiny.yaml"
    path.write_text("extends: transformer_base\nsizes: {layers: 1, d_model: 8, d_ff: 8, heads: 1, vocabulary: 20}\n")
    arguments = ("--target", "tensorrt", "--builder", builder.name, "--profile", f"{QUICK},source=1:8:16")
    said = "model.plan: left out, the runtime drives its steps; cannot build this loop"
    built = xformc("build", path, *arguments, "--out", tmp_path / "engine")
    assert built.code == 0 and said in built.out and said in xformc("inspect", tmp_path / "engine").out
    manifest = read_manifest(tmp_path / "engine")
    assert sorted(manifest.plans) == ["prepare.plan", "step.plan"] and sorted(manifest.refused) == ["model.plan"]


def test_a_wrong_profile_is_refused_before_anything_is_built(tiny_spec: Spec, tmp_path: Path, builder: Builder) -> None:
    said: list[str] = []
    options = PlanOptions("width=3", builder.name)
    with pytest.raises(UserError, match="width"):
        build_engine(tiny_spec, None, None, "tensorrt", tmp_path / "engine", said.append, plans=options)
    assert said == ["compile"] and not (tmp_path / "engine").exists()


def test_a_refused_operator_is_named_with_its_place_in_the_spec(tmp_path: Path, builder: Builder) -> None:
    node = helper.make_node("BitwiseXor", ["x", "x"], ["y"], name="decoder/0/mask:BitwiseXor.1")
    info = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch"]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UserError, match="refuses the operator BitwiseXor of decoder/0/mask") as caught:
        Network(builder, tmp_path / "model.onnx", {"decoder/0/mask": "model.yaml:7:3"})
    assert caught.value.place == "model.yaml:7:3"


def test_what_cannot_be_built_is_named_with_its_place(tmp_path: Path, builder: Builder) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], name="decoder/best:TopK.1")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 5000])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4000])
    graph = helper.make_graph([node], "g", [x], [y], [helper.make_tensor("k", TensorProto.INT64, [1], [4000])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), tmp_path / "m.onnx")
    network = Network(builder, tmp_path / "m.onnx", {"decoder/best": "model.yaml:9:3"})
    with pytest.raises(UserError, match=r"model.yaml:9:3: .* cannot build m.onnx of decoder/best: .*K exceeds"):
        network.build(SIZES, effort=0)


def test_a_builder_that_is_missing_is_one_line_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xformc.compiler.backends.tensorrt.builder.find_spec", lambda name: None)
    with pytest.raises(UserError, match="tensorrt and tensorrt_rtx: not installed") as caught:
        open_builder()
    assert caught.value.hint == "pip install 'xformc[tensorrt]' or pip install 'xformc[tensorrt-rtx]'"
    with pytest.raises(UserError, match="tensorrt_rtx: not installed"):
        open_builder("tensorrt_rtx")


TEXT = Input("tokens", vocabulary=100)
SEARCH = SearchOptions(4, 1, 0.6, 1.5, 20)


def test_the_profile_of_a_translation_follows_from_its_spec() -> None:
    profile = derive_profile({"source": TEXT, "target": TEXT}, SEARCH, 256, "target")
    assert profile == {"batch": (1, 32, 128), "source": (1, 32, 256), "beam": (1, 4, 4), "room": (1, 68, 404)}


def test_declared_lengths_bound_the_profile() -> None:
    inputs = {"source": replace(TEXT, longest=20), "target": replace(TEXT, longest=30)}
    profile = derive_profile(inputs, SEARCH, 256, "target")
    assert profile["source"] == (1, 20, 20) and profile["room"] == (1, 30, 30)


def test_the_profiles_of_other_tasks_have_their_own_axes() -> None:
    sampling = derive_profile({"text": TEXT}, SampleOptions(1.0, 0, 1.0, 50), 200, "text")
    assert sampling == {"batch": (1, 32, 128), "room": (1, 82, 250)}
    image, frames = Input("values", axes={"height": 3}), Input("vectors", axes={"size": 4}, longest=50)
    captions = derive_profile({"image": image, "caption": TEXT}, replace(SEARCH, max_length_offset=9), 256, "caption")
    assert captions == {"batch": (1, 32, 128), "beam": (1, 4, 4), "room": (1, 9, 9)}
    several = derive_profile({"text": TEXT, "frames": frames, "words": TEXT}, SEARCH, 64, "text")
    assert several["frames"] == (1, 32, 50) and several["words"] == (1, 32, 64) and "text" not in several
    inputs = {"words": TEXT, "links": Input("edges", of="words"), "image": Input("values", axes={"height": 3})}
    profile = {"batch": (1, 32, 128), "words": (1, 32, 64), "words_keys": (1, 32, 64)}
    assert derive_profile(inputs, None, 64) == profile


def test_the_keys_of_a_profile_are_as_many_as_the_positions() -> None:
    profile = derive_profile({"words": TEXT, "links": Input("edges", of="words")}, None, 64)
    changed = parse_profile("words=1:2:8", profile)
    assert changed["words"] == changed["words_keys"] == (1, 2, 8)
    with pytest.raises(UserError, match="no axis 'words_keys'\nhint: the axes are batch, words"):
        parse_profile("words_keys=1:2:8", profile)


def test_a_profile_has_the_axes_that_are_made_of_its_axes() -> None:
    made = [("half", Length(("source",), 2)), ("both", Length(("source", "half"), more=1)), ("other", Length(("z",)))]
    found = with_made_axes({"source": (1, 5, 8)}, made)
    assert found == {"source": (1, 5, 8), "half": (1, 3, 4), "both": (3, 9, 13)}


def test_a_profile_that_the_user_gives_replaces_axes() -> None:
    assert parse_profile("batch=1:2:4, room=64", SIZES) == {**SIZES, "batch": (1, 2, 4), "room": (64, 64, 64)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch", "'batch' is not AXIS=LEAST:OFTEN:MOST"),
        ("depth=1:2:3", "there is no axis 'depth'\nhint: the axes are batch, beam, source, room"),
        ("room=4:2:8", "must have 1 <= LEAST <= OFTEN <= MOST"),
        ("room=0:2:8", "must have 1 <= LEAST <= OFTEN <= MOST"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_profile(text, SIZES)
    assert message in str(caught.value)


def test_the_batch_is_halved_until_states_fit() -> None:
    cache = Tensor(("batch", "beam", 8, "room", 64), 4)
    profile = {"batch": (1, 32, 128), "beam": (1, 4, 4), "room": (1, 64, 256)}
    row = 4 * 8 * 256 * 64 * 4
    assert fit_batch(profile, [cache], 4 * 128 * row)["batch"] == (1, 32, 128)
    assert fit_batch(profile, [cache], 4 * 127 * row)["batch"] == (1, 32, 64)
    assert fit_batch(profile, [cache], 4 * 16 * row)["batch"] == (1, 16, 16)
    with pytest.raises(UserError, match="do not fit in half of"):
        fit_batch(profile, [cache], 3 * row)


PLAN = Plan("tensorrt", "10.1", "NVIDIA L4", "8.9", "float16", SIZES)


@pytest.mark.parametrize(
    ("version", "device", "message"),
    [
        ("10.2", Gpu("NVIDIA L4", "8.9", 1), "built by tensorrt 10.1, but 10.2 is installed"),
        ("10.1", Gpu("NVIDIA A10", "8.6", 1), r"built for NVIDIA L4 \(compute capability 8.9\), but the GPU is NVIDIA"),
        ("10.1", None, "but there is no GPU"),
    ],
)
def test_a_plan_for_another_machine_says_what_to_rebuild(version: str, device: Gpu | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_plan(PLAN, version, device, "engine/step.plan")


def test_a_plan_fits_the_machine_that_it_is_for() -> None:
    check_plan(PLAN, "10.1", Gpu("NVIDIA L40", "8.9", 1), "engine/step.plan")
    check_plan(replace(PLAN, device=None, capability=None), "10.1", None, "engine/step.plan")
