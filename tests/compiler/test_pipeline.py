"""The table of passes: each pass has a golden text and fulfils its contract, and all callers run the same table.

golden/PASS.txt is the output of `xformc ir` for a small model; `UPDATE_GOLDEN=1 pytest` writes the files again.
"""

import ast
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.small_specs import names, small
from xformc.compiler import pipeline
from xformc.compiler.graph import text
from xformc.compiler.graph.rules import RuleError
from xformc.compiler.graph.verify import GraphError
from xformc.compiler.ops.functions import Unary
from xformc.compiler.passes.inference import inference
from xformc.compiler.pipeline import (
    CHECK,
    DERIVED,
    FACTS,
    NAMES,
    PASSES,
    SHARED,
    Pass,
    applied_passes,
    begin,
    compile_engine,
    compile_training,
    print_program,
    run_passes,
)
from xformc.compiler.program import Program
from xformc.compiler.spec import Spec, load_spec
from xformc.errors import UserError
from xformc.format.precision import Precision
from xformc.format.targets import TRAITS, Target

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
SPEC = """\
name: golden
extends: transformer_base
sizes: {layers: 1, d_model: 4, d_ff: 6, heads: 2, vocabulary: 12, dropout: 0.1}
"""
RECURRENT = """\
name: golden
extends: rnn_language_model
sizes: {d_model: 4, vocabulary: 12}
"""
LINEAR = """\
name: golden
extends: state_space
sizes: {layers: 1, d_model: 4, d_state: 2, vocabulary: 12, dropout: 0.0}
"""
SUMMED = """\
name: golden
extends: linear_attention
sizes: {layers: 1, d_model: 4, d_ff: 6, heads: 2, vocabulary: 12, max_positions: 8, dropout: 0.0}
train: {max_length: 8}
"""
COVERING = f"{SPEC}decode: {{coverage_penalty: 0.2}}\n"
OTHER_MODELS = {"hoist": RECURRENT, "scan": LINEAR, "linear_attention": SUMMED, "coverage": COVERING}
"""The models of passes whose golden text would show nothing of `SPEC`."""


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    return write(tmp_path, SPEC)


def write(folder: Path, document: str) -> Spec:
    path = folder / "golden.yaml"
    path.write_text(document)
    return load_spec(path)


def goal(name: str) -> Target | None:
    return (
        None
        if name in ("scan", "linear_attention", "loss")
        else "native"
        if name in ("tabulate", "lower", "candidates")
        else "cuda"
        if name == "narrow"
        else "portable"
    )


@pytest.mark.parametrize("name", NAMES)
def test_pass_gives_its_golden_text(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = write(tmp_path, OTHER_MODELS.get(name, SPEC))
    found = print_program(begin(spec, goal(name), spec.precisions("float16" if name == "narrow" else None)), name)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(found)
    assert found == path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_printed_graphs_can_be_parsed(tmp_path: Path, name: str) -> None:
    spec = write(tmp_path, COVERING if name == "coverage" else SPEC)
    for part in print_program(begin(spec, goal(name)), name).split("\n\n"):
        assert text.format(text.parse(part)).strip() == part.strip()


@pytest.mark.parametrize("target", [None, "cpu", "native", "tensorrt"])
@pytest.mark.parametrize("name", names())
def test_every_spec_goes_through_its_passes(name: str, target: Target | None) -> None:
    applied = [item.name for item, _ in applied_passes(begin(small(name), target))]
    assert applied == [one for one in NAMES if one in applied]
    assert ("loss" in applied) == (target is None) and ("inference" in applied) == (target is not None)
    assert ("lower" in applied) == (target is not None and TRAITS[target].kernels)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_what_is_printed_is_what_is_built(spec: Spec, precision: Precision) -> None:
    precisions = spec.precisions(precision)
    whole = run_passes(compile_engine(spec, "native", precisions))
    printed = print_program(begin(spec, "native", precisions), NAMES[-1])
    assert printed == "\n".join(text.format(graph) for graph in whole.graphs)
    assert ("narrow" in printed) == (precision == "int8"), "keys and values of 8-bit products are kept in float16"
    unused = ("scan", "linear_attention", "loss", "coverage", "narrow")
    assert whole.passed == tuple(name for name in NAMES if name not in unused)


def test_training_and_engines_share_their_first_passes(spec: Spec) -> None:
    shared = run_passes(begin(spec), after=SHARED)
    assert run_passes(shared) == compile_training(spec)
    assert run_passes(shared.for_engine("cpu"), after=DERIVED) == compile_engine(spec, "cpu")


def test_a_pass_may_be_left_out(spec: Spec) -> None:
    program = run_passes(compile_engine(spec, "native"), without=("beam", "candidates"))
    assert "beam" not in program.passed and "lower" in program.passed
    assert "beam" not in program.decoder.token.type.names
    assert run_passes(program) == program, "it is not run later either"
    with pytest.raises(AssertionError, match="no pass is called stepp"):
        run_passes(program, after="stepp")


def test_a_program_of_one_target_is_not_that_of_another_once_its_step_is_derived(spec: Spec) -> None:
    with pytest.raises(AssertionError, match="depends on the target"):
        compile_engine(spec, "cpu").for_engine("cuda")
    with pytest.raises(AssertionError, match="attention is fused differently"):
        run_passes(begin(spec), after=SHARED).for_engine("native")


def test_passes_before_a_refusal_can_be_printed(tmp_path: Path) -> None:
    """A model that looks ahead has no step; what comes before that is what its author wants to see."""
    path = tmp_path / "ahead.yaml"
    path.write_text(
        "extends: gpt\nsizes: {layers: 1, vocabulary: 60}\nblocks: {causal_self_attention: {do: [self_attention]}}\n"
    )
    program = begin(load_spec(path), "portable")
    assert print_program(program, "hoist").startswith("graph ahead\n")
    with pytest.raises(RuleError, match="every position sees the ones after it"):
        print_program(program, "step")


def test_unknown_pass_names_those_that_are_run(spec: Spec) -> None:
    with pytest.raises(UserError) as error:
        print_program(begin(spec, "portable"), "stepp")
    assert error.value.message == "there is no pass 'stepp'"
    assert error.value.hint == f"the passes are {', '.join(NAMES)}"


def test_pass_that_is_not_run_says_so() -> None:
    spec = small("vit")
    hints = {"step": "no target of a classification model needs it"}
    hints |= {"scan": "add --training", "loss": "add --training", "lower": "add --target native"}
    for name, hint in hints.items():
        with pytest.raises(UserError) as error:
            print_program(begin(spec, "cpu"), name)
        assert error.value.message == f"the pass {name} is not used for classification and target cpu"
        assert error.value.hint == hint


def test_facts_are_named_in_the_table() -> None:
    assert {fact for item in PASSES for fact in (*item.requires, *item.ensures)} == set(FACTS)
    assert len(set(NAMES)) == len(NAMES)


def add(monkeypatch: pytest.MonkeyPatch, item: Pass, after: str) -> None:
    index = NAMES.index(after) + 1
    monkeypatch.setattr(pipeline, "PASSES", (*PASSES[:index], item, *PASSES[index:]))


def test_a_new_pass_is_a_row_in_the_table(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy: every ReLU becomes a sigmoid. Nothing but the table knows of it."""

    def smooth(program: Program) -> Program:
        nodes = tuple(
            replace(node, op=Unary("sigmoid")) if node.op == Unary("relu") else node for node in program.graph.nodes
        )
        return replace(program, graph=replace(program.graph, nodes=nodes))

    monkeypatch.setattr(pipeline, "NAMES", (*NAMES, "smooth"))
    add(monkeypatch, Pass("smooth", "Replace ReLU by a sigmoid.", smooth), "share")
    assert "smooth" in [item.name for item, _ in applied_passes(begin(spec, "cpu"))]
    assert "sigmoid" in print_program(begin(spec), "smooth") and "sigmoid" in print_program(begin(spec, "cpu"), "beam")
    assert "relu" not in text.format(compile_training(spec).graph)


def test_pass_that_breaks_a_graph_is_found(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(program: Program) -> Program:
        return replace(program, graph=replace(program.graph, nodes=program.graph.nodes[1:]))

    add(monkeypatch, Pass("cut", "Lose a node.", cut), "share")
    monkeypatch.setattr(pipeline, "SHARED", "cut")
    with pytest.raises(GraphError, match="is used before it is made"):
        run_passes(begin(spec), after="cut")
    monkeypatch.setenv(CHECK, "0")
    assert run_passes(begin(spec), after="cut").passed == ("elaborate", "share", "cut")


def test_pass_that_breaks_its_word_is_found(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, Pass("idle", "Do nothing.", lambda program: program, ensures=("decoder",)), "share")
    with pytest.raises(GraphError, match="the pass idle ensures decoder: after elaborate, share, idle"):
        compile_training(spec)
    add(monkeypatch, Pass("early", "Do nothing.", inference_of, requires=("decoder",)), "share")
    with pytest.raises(GraphError, match="the pass early requires decoder: after elaborate, share"):
        compile_training(spec)


def inference_of(program: Program) -> Program:
    return replace(program, graph=inference(program.graph))


def test_no_pass_runs_anywhere_but_in_the_pipeline() -> None:
    """Others may name the types of `passes`, and the functions there are called by the pipeline alone."""
    callers = {
        f"{path.relative_to(ROOT)}: {alias.name}"
        for folder in ("compiler", "runtime", "trainer", "benchmarks", "src/xformc/commands")
        for path in (ROOT / folder).rglob("*.py")
        if path != ROOT / "compiler" / "pipeline.py" and path.parent.name != "passes"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("xformc.compiler.passes")
        for alias in node.names
        if alias.name[0].islower()
    }
    assert callers == set()
