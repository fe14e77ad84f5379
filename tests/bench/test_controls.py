"""The model without the controls of its search computes the same bits."""

from pathlib import Path

import numpy as np

from benchmarks.controls import without_controls
from tests.runtime.kernel_session import kernel_library
from tests.runtime.test_prefix import SOURCES, SPEC, padded
from xformc.compiler.build import build_engine
from xformc.compiler.spec import load_spec
from xformc.format.interfaces import interface
from xformc.format.names import MODEL
from xformc.runtime import load
from xformc.runtime.searching.search import search
from xformc.runtime.whole import whole_session


def test_a_model_without_controls_searches_as_one_that_does_not_use_them(tmp_path: Path) -> None:
    kernel_library()
    (tmp_path / "spec.yaml").write_text(SPEC)
    build_engine(load_spec(tmp_path / "spec.yaml"), None, None, "native", tmp_path / "engine")
    engine, plain = load(tmp_path / "engine", threads=1), tmp_path / "engine" / "plain.onnx"
    plain.write_bytes(without_controls(tmp_path / "engine" / MODEL).SerializeToString())
    assert plain.stat().st_size < (tmp_path / "engine" / MODEL).stat().st_size
    face = interface(engine.manifest.inputs, engine.manifest.results, "search")
    session = whole_session(tmp_path / "engine", face, file=plain.name, threads=1, target="native")
    given = {"source": padded(SOURCES)}
    one, other = (search(each, given, engine.manifest.search) for each in (engine.session, session))
    np.testing.assert_array_equal(one.tokens, other.tokens)
    assert one.scores.tobytes() == other.scores.tobytes()
    forced = (search(each, given, engine.manifest.search, prefixes=[[50]] * 4) for each in (engine.session, session))
    assert [found.tokens[0, 0, 0] == 50 for found in forced] == [True, False], "the plain model reads no prefix"
