"""Fixed caches: their entries as keys of a beam, the mask of ancestors, and writing single entries."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from one_op import Case, assert_same_everywhere

from tests.small_specs import small
from xformc.compiler.ops.keys import BeamKeys, Write
from xformc.compiler.ops.masks import Reached
from xformc.compiler.passes.step import Decoder
from xformc.compiler.pipeline import compile_engine, run_passes

FLOATS = ("float32", "float32")
CASES = {
    "keys of a beam": Case(BeamKeys("m", "r", "k"), (("a", "d", "m", "r", "v"), ("m",)), dtypes=("float32", "int64")),
    "keys that a beam shares": Case(BeamKeys("m", "r", "k"), (("r", "v"), ("m",)), dtypes=("float32", "int64")),
    "positions of a beam": Case(BeamKeys("m", "r", "k"), (("r",), ("m",)), dtypes=("int64", "int64")),
    "entries that are seen": Case(
        Reached("k"), (("r",), (), ("a", "m", "r"), ("m",)), dtypes=("int64", "int64", "int64", "int64")
    ),
    "the last entries that are seen": Case(
        Reached("k", 2), (("r",), (), ("a", "m", "r"), ("m",)), dtypes=("int64", "int64", "int64", "int64")
    ),
    "an entry in another order": Case(
        Write("h", "r"),
        (("a", "d", "m", "r"), ("m", "a", "h", "d"), ("r",), ()),
        dtypes=("float32", "float32", "int64", "int64"),
    ),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_op_is_the_same_in_torch_and_onnx(name: str, data: st.DataObject, tmp_path_factory) -> None:
    assert_same_everywhere(CASES[name], data, tmp_path_factory.mktemp("op"), {"d": 5, "v": 4, "h": 1})


def decoder(name: str, precision: str) -> Decoder:
    spec = small(name)
    return run_passes(compile_engine(spec, "cuda", spec.precisions(precision))).decoder


@pytest.mark.parametrize(
    "name", ["transformer_base", "t5", "local_attention", "positions/alibi", "universal_transformer"]
)
def test_caches_of_a_beam_stay_and_are_narrow_beside_narrow_products(name: str) -> None:
    for precision, dtype in (
        ("float32", "float32"),
        ("float16", "float16"),
        ("bfloat16", "float16"),
        ("int8", "float32"),
    ):
        made = decoder(name, precision)
        assert made.lineage is not None
        caches = [state.past for state in made.states if state.past.name in made.lineage.caches]
        assert caches and {value.type.dtype for value in caches} == {dtype}
        assert all(value.type.names[-3:-1] == ("beam", "room") for value in caches)


def test_states_of_a_recurrence_move_with_their_hypotheses() -> None:
    made = decoder("seq2seq_attention", "float16")
    assert made.lineage is not None and not made.lineage.caches
