"""The coverage penalty: by hand, as the reference search has it, for each text, and what is refused by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.compiler.conftest import TINY, eager_to_end, random_sources
from tests.runtime.kernel_session import kernel_library
from tests.small_specs import small
from xformc.compiler import compile_spec
from xformc.compiler.backends.onnx.initializers import save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.build import build_engine
from xformc.compiler.certify.reference_coverage import LEAST, coverage_of
from xformc.compiler.certify.reference_search import search
from xformc.compiler.certify.subject import Subject
from xformc.compiler.passes.coverage import COVERAGE
from xformc.compiler.passes.inference import inference
from xformc.compiler.pipeline import begin, compile_engine, run_passes
from xformc.compiler.spec import SpecError, load_spec
from xformc.errors import UserError
from xformc.format.interfaces import PREFIX
from xformc.format.manifest import SearchOptions
from xformc.format.names import ADVANCE, JOIN, SCORES
from xformc.format.targets import Target
from xformc.format.tokens import BEGIN
from xformc.runtime.rows import pad

pytestmark = pytest.mark.processor

WEIGHTS = "decoder/0/cross_attention/mixed/weights"
OPTIONS = SearchOptions(4, 4, 0.6, 0.0, 7, 0, "gnmt", "first", 1.0, (), 0, 1.0, 0.0, 0.0, 0.0, 1, 0.0, 1.5)


@pytest.fixture(scope="module", params=["portable", "native"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    target: Target = request.param
    if target == "native":
        kernel_library()
    folder = tmp_path_factory.mktemp(f"coverage-{target}")
    (folder / "tiny.yaml").write_text(f"{TINY}decode: {{coverage: decoder/0/cross_attention}}\n")
    spec = load_spec(folder / "tiny.yaml")
    module = eager_to_end(TorchModule(inference(compile_spec(spec)), seed=1).eval(), 2)
    made = Subject(compile_engine(spec, target), module, folder / "engine")
    made.engine.mkdir()
    initializers = made.initializers()
    models = emit_engine(made.program, initializers)
    assert ADVANCE not in models and JOIN not in models
    assert "coverage_penalty" not in {value.name for value in models[SCORES].graph.input}
    save_models(models, initializers, made.engine)
    return made


def attention_of(subject: Subject) -> Callable[[np.ndarray, list[int]], np.ndarray]:
    """A function from a source and what was read of a text to the attention of the decoder's first layer, [target,
    heads, source]."""
    graph = inference(subject.program.spec.graph())
    weights = next(value for node in graph.nodes for value in node.outputs if value.name == WEIGHTS)
    module = TorchModule(replace(graph, outputs=(weights,))).eval()
    module.load_arrays({name: array for name, array in subject.module.arrays().items() if name in module.arrays()})
    order = [weights.type.names.index(axis) - 1 for axis in ("target", "heads", "source_keys")]

    def attention(source: np.ndarray, read: list[int]) -> np.ndarray:
        with torch.inference_mode():
            return module(torch.tensor(source)[None], torch.tensor([read]))[0].numpy().transpose(order)

    return attention


def test_the_penalty_is_that_of_the_formula(subject: Subject) -> None:
    """Each hypothesis of a wide beam has the score without a penalty, and beta times what its attention covers."""
    sources, attention = random_sources(3, 3, 6), attention_of(subject)
    wide = replace(OPTIONS, beam_size=12, n_best=12, stop_rule="complete")
    free = subject.search({"source": pad(sources)}, replace(wide, coverage_penalty=0.0))
    found = subject.search({"source": pad(sources)}, wide)
    compared = 0
    for row, source in enumerate(sources):
        plain = {free.text(row, rank): float(free.scores[row, rank]) for rank in range(12)}
        for rank in range(12):
            text = found.text(row, rank)
            if text not in plain:
                continue
            rows = attention(source, [BEGIN, *text[:-1]]).mean(1)
            penalty = sum(np.log(min(sum(float(one[place]) for one in rows), 1.0)) for place in range(len(source)))
            assert found.scores[row, rank] == pytest.approx(plain[text] + 1.5 * penalty, abs=1e-4)
            compared += 1
    assert compared > 12, "the test shows little"


CASES: dict[str, dict[str, Any]] = {
    "paper": {},
    "average, best": {"length_penalty_kind": "average", "stop_rule": "best", "min_length": 3},
    "shrink": {"stop_rule": "shrink", "coverage_penalty": 2.0},
    "groups": {"beam_groups": 2, "diversity_penalty": 0.5},
    "edits": {"suppress_tokens": (31,), "repetition_penalty": 1.3},
    "greedy": {"beam_size": 1, "n_best": 1},
}


def test_searches_find_what_the_reference_finds(subject: Subject) -> None:
    """Sources of different lengths in a batch; one has a prefix, and one a penalty of its own."""
    sources, prefix, compared, changed = random_sources(5, 4, 9), np.array([9, 8], np.int64), 0, 0
    for name, changes in CASES.items():
        options = replace(OPTIONS, **changes)
        rows: list[dict[str, Any]] = [{"source": source} for source in sources]
        rows[1][PREFIX] = prefix
        rows[2]["coverage_penalty"] = np.array(0.1, np.float32)
        result = subject.search_rows(rows, options)
        free = subject.search_rows([{"source": source} for source in sources], replace(options, coverage_penalty=0.0))
        for row, source in enumerate(sources):
            given = {"source": source}
            own = replace(options, coverage_penalty=0.1) if row == 2 else options
            begun = prefix.tolist() if row == 1 else []
            found = search(subject.scorer(given), len(source), own, prefix=begun, coverage=subject.coverage(given))
            if found.margin < 1e-5:
                continue
            texts = [result.text(row, rank) for rank in range(own.n_best) if np.isfinite(result.scores[row, rank])]
            assert texts == [one.tokens for one in found.hypotheses], name
            scores = [one.score for one in found.hypotheses]
            assert result.scores[row, : len(texts)] == pytest.approx(scores, abs=1e-4)
            compared, changed = compared + 1, changed + (row != 1 and texts != free.texts()[row])
    assert compared > 16 and changed > 3, "the test shows little"


def test_coverage_counts_up_to_one_and_leaves_padding_out() -> None:
    weights = np.array([[0.5, 0.25, 0.25, 0.0], [0.75, 0.25, 0.0, 0.0]], np.float32)
    real = np.array([True, True, True, False])
    assert coverage_of(weights, real) == pytest.approx(np.log(1.0) + np.log(0.5) + np.log(0.25))
    assert coverage_of(np.zeros((1, 1), np.float32), np.array([True])) == pytest.approx(np.log(LEAST))


def test_only_searches_with_coverage_carry_it(tmp_path: Path) -> None:
    """The step for scores and samples has no such state, and without the setting nothing has."""
    plain, path = small("transformer_base"), tmp_path / "covering.yaml"
    path.write_text("extends: transformer_base\nsizes: {layers: 2, d_model: 16}\ndecode: {coverage_penalty: 0.2}\n")
    spec = load_spec(path)

    def states(program: Any) -> set[str]:
        return {state.past.name for state in program.decoder.states}

    compiled = compile_engine(spec, "native")
    assert compiled.covering == "decoder/0/cross_attention/mixed/weights", "that of the last layer but one"
    assert COVERAGE not in states(compiled) and COVERAGE in states(run_passes(compiled))

    assert run_passes(begin(plain, "native")).search.coverage_penalty is None
    assert COVERAGE not in states(run_passes(begin(plain, "native")))
    assert compiled.search.coverage_penalty == 0.2 and not compiled.refills_searches


@pytest.mark.parametrize(
    ("base", "decode", "message", "hint"),
    [
        (
            "transformer_base",
            "coverage: decoder/7/x",
            "'decoder/7/x' is no attention of 'target' to 'source'",
            "choose",
        ),
        ("transformer_base", "coverage: decoder", "'decoder' is more than one attention of 'target'", "choose one of"),
        ("transformer_base", "coverage_penalty: -1", "greater than or equal to 0", None),
        ("captioner", "coverage_penalty: 0.2", "decode.coverage_penalty has no effect", "only translation"),
    ],
)
def test_settings_without_coverage_are_refused(
    tmp_path: Path, base: str, decode: str, message: str, hint: str | None
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(f"extends: {base}\ndecode: {{{decode}}}\n")
    with pytest.raises(SpecError) as error:
        load_spec(path).graph()
    assert message in str(error.value)
    assert hint is None or hint in str(error.value)


def test_targets_of_fixed_shapes_refuse_coverage(tmp_path: Path) -> None:
    for setting, what in (
        ("coverage: decoder/0/cross_attention", "coverage"),
        ("coverage_penalty: 0.2", "coverage_penalty"),
    ):
        (tmp_path / "fixed.yaml").write_text(f"{TINY}decode: {{{setting}}}\n")
        with pytest.raises(UserError, match=rf"--target cuda has no search with decode\.{what}\b"):
            build_engine(load_spec(tmp_path / "fixed.yaml"), None, None, "cuda", tmp_path / "engine")
