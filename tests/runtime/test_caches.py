"""Engines that keep keys and values in int8: the same bits by every way of running them, and checks that can fail."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_engine
from tests.command_line import CommandLine, mistake
from tests.runtime.kernel_session import kernel_library
from tests.runtime.small_engines import SAMPLE, SEARCH, TEXTS
from tests.small_specs import small
from xformc import api
from xformc.compiler.build import Rounding, build_engine
from xformc.compiler.certify import subject, verify_engine
from xformc.compiler.spec import load_spec
from xformc.errors import UserError
from xformc.format.manifest import manifest_checksum
from xformc.format.reader import read_manifest
from xformc.runtime import load
from xformc.runtime.checks.agreement import compare_runtimes

pytestmark = pytest.mark.processor
INT8 = Rounding(caches="int8")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a translation engine with int8 weights, whose spec asks for the caches, or of a language model."""
    kernel_library()
    folder = tmp_path_factory.mktemp("caches")
    tokenizer = folder / "tokenizer.model"
    pieces = str(tiny_engine.train_tokenizer(tokenizer))
    asked = f"{SEARCH}precision: {{caches: int8}}\n"
    kinds = {"search": (asked, ("source", "target"), Rounding("int8")), "sample": (SAMPLE, ("text",), INT8)}

    def engine(kind: str) -> Path:
        built = folder / kind
        if not built.exists():
            text, inputs, rounding = kinds[kind]
            (folder / f"{kind}.yaml").write_text(text.replace("PIECES", pieces))
            tokenizers = dict.fromkeys(inputs, tokenizer)
            build_engine(load_spec(folder / f"{kind}.yaml"), None, tokenizers, "native", built, rounding=rounding)
        return built

    return engine


def test_the_engine_says_so_and_verify_repeats_its_stages(engines: Callable[[str], Path], xformc: CommandLine) -> None:
    folder = engines("search")
    recorded = json.loads((folder / "engine.json").read_text())
    assert recorded["caches"] == "int8" == read_manifest(folder).caches
    certificate = json.loads((folder / "certificate.json").read_text())
    names = [stage["name"] for stage in certificate["stages"]]
    assert names[-6:] == ["int8", "caches", "kept", "results", "alone", "texts"]
    stages = {stage["name"]: stage for stage in certificate["stages"]}
    assert stages["caches"]["what"].startswith("2 of 2 attentions") and stages["caches"]["value"] < 1e-5
    assert "quantization changes them by at most" in stages["kept"]["detail"]
    assert stages["step"]["what"].endswith("float32 matrix products and caches")
    again = verify_engine(folder)
    assert again.passed and [stage.value for stage in again.stages] == [
        *(one["value"] for one in certificate["stages"]),
        0,
    ]
    assert ", int8, caches int8, " in xformc("inspect", folder).out


def test_float32_weights_may_have_them_too(engines: Callable[[str], Path]) -> None:
    stages = json.loads((engines("sample") / "certificate.json").read_text())["stages"]
    assert [stage["name"] for stage in stages[-4:]] == ["caches", "kept", "results", "alone"]
    assert read_manifest(engines("sample")).precision == "float32"


def test_translations_are_the_same_alone_together_and_in_slots(engines: Callable[[str], Path]) -> None:
    with load(engines("search"), threads=2) as engine:
        together = engine.translate(TEXTS, n_best=3)
        assert [engine.translate([text], n_best=3)[0] for text in TEXTS] == together
        for (one,) in engine.translate(TEXTS, n_best=1, length_penalty=0.0, token_scores=True):
            assert sum(one.token_scores) == pytest.approx(one.score, abs=1e-4), "read in parts, they are the same"
        with engine.serve(slots=3, n_best=3) as server:
            served = [waiting.result() for waiting in [server.submit(text) for text in TEXTS]]
        assert served == together


def test_continuations_are_the_same_streamed_drafted_and_in_slots(engines: Callable[[str], Path]) -> None:
    with load(engines("sample"), threads=2) as engine:
        wanted = engine.generate(TEXTS, seed=3, max_new_tokens=9)
        assert [
            engine.generate([text], seed=3 + place, max_new_tokens=9)[0] for place, text in enumerate(TEXTS)
        ] == wanted
        stream = engine.stream_tokens(TEXTS[2], seed=5, max_new_tokens=9)
        assert "".join(stream) == wanted[2].text
        assert engine.generate(TEXTS, seed=3, max_new_tokens=9, slots=2) == wanted
        assert [one.text for one in engine.generate(TEXTS, seed=3, max_new_tokens=9, draft="lookup")] == [
            one.text for one in wanted
        ]


@pytest.mark.parametrize("kind", ["search", "sample"])
def test_libxformc_gives_the_same_bits(engines: Callable[[str], Path], kind: str) -> None:
    stages = compare_runtimes(engines(kind)).stages
    assert stages and all(stage.value == 0 for stage in stages)


def test_verify_refuses_an_engine_that_keeps_something_else(engines: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(engines("sample"), tmp_path / "engine"))
    content = json.loads((folder / "engine.json").read_text())
    del content["caches"]
    content["checksum"] = manifest_checksum(content)
    (folder / "engine.json").write_text(json.dumps(content))
    with pytest.raises(
        UserError, match=r"the model keeps some keys and values in int8, but caches are auto by engine\.json"
    ):
        verify_engine(folder)


def test_wrong_rows_fail_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition and the kernels would differ by half of a scale."""
    kernel_library()
    monkeypatch.setattr("xformc.compiler.certify.cache_stages.rounded_rows", lambda x: x)
    with pytest.raises(UserError, match="FAIL caches"):
        build_engine(small("gpt", 1), None, None, "native", tmp_path / "engine", rounding=INT8)


def test_wrong_keys_and_values_fail_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training form that the step is compared with does not quantize them."""
    kernel_library()
    monkeypatch.setattr(subject, "rounded_rows", lambda x: x)
    with pytest.raises(UserError, match="FAIL kept"):
        build_engine(small("gpt", 1), None, None, "native", tmp_path / "engine", rounding=INT8)


def test_what_has_no_such_caches_refuses_them(tmp_path: Path, xformc: CommandLine) -> None:
    ask = ("-o", tmp_path / "engine", "--caches", "int8")
    wrong = mistake(xformc("build", "transformer_base", *ask, "--target", "cpu"))
    assert "--caches int8: --target cpu has no caches in int8" in wrong and "build with --target native" in wrong
    kernel_library()
    wrong = mistake(xformc("build", "bilstm_tagger", *ask, "--target", "native"))
    assert "--caches int8: a model of tagging is not decoded, so it keeps no caches" in wrong
    wrong = mistake(xformc("build", "lstm_language_model", *ask, "--target", "native"))
    assert "no attention of lstm_language_model keeps keys and values that a kernel reads" in wrong
    with pytest.raises(UserError, match="caches is 'int4'") as found:
        api.build("gpt", tmp_path / "engine", caches="int4")  # pyright: ignore[reportArgumentType]
    assert found.value.hint == "use auto or int8"


def test_a_spec_that_asks_for_them_is_marked(tmp_path: Path, xformc: CommandLine) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("extends: gpt\nprecision: {caches: int8}\n")
    wrong = mistake(xformc("build", path, "-o", tmp_path / "engine", "--target", "portable"))
    assert "model.yaml:2:13" in wrong and "--target portable has no caches in int8" in wrong
    path.write_text("extends: gpt\nprecision: {caches: bf16}\n")
    wrong = mistake(xformc("check", path))
    assert "model.yaml:2:21" in wrong and "caches are int8 or left out, found" in wrong
    path.write_text("extends: bilstm_tagger\nprecision: {caches: int8}\n")
    assert "a model of tagging is not decoded, so it keeps no caches" in mistake(xformc("check", path))
