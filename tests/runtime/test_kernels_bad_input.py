"""Invalid calls of the operators are errors: nothing outside of a tensor is read or written."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import DTypeLike
from onnx import helper

from tests.runtime.kernel_session import Array, kernel_session, new_cache, node, run_node

FLOAT, ID = np.float32, np.int64
FULL = 2**31


def zeros(*shape: int) -> Array:
    return np.zeros(shape, FLOAT)


def ids(*shape: int) -> Array:
    return np.zeros(shape, ID)


def project(outputs: int = 1, weight: Array | None = None, bias: Array | None = None, **changed: Any) -> None:
    attributes: dict[str, Any] = {
        "depth": 1,
        "parts": 1,
        "ranks": [1],
        "sizes": [40],
        "bias": 1,
        "precision": "float32",
    }
    attributes |= {"activation": "none", "norm": "none", "epsilon": 0.0}
    run_node("Project", [zeros(3, 10), None, None, None, weight, bias], [FLOAT] * outputs, **{**attributes, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weight": None}, "a weight is missing|absent"),
        ({"weight": zeros(1, 10, 32)}, "panels do not fit"),
        ({"weight": zeros(2, 9, 32)}, "panels do not fit"),
        ({"bias": None}, "bias is missing|absent"),
        ({"depth": -1}, "depth is negative"),
        ({"ranks": [2], "sizes": [-4, -10]}, "a part has no outputs"),
        ({"sizes": [2**63 - 1]}, "panels do not fit"),
        ({"outputs": 2}, "one output for each part"),
    ],
)
def test_project(changed: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"weight": zeros(2, 10, 32), "bias": zeros(40)}
    project(**right)
    with pytest.raises(Exception, match=message):
        project(**{**right, **changed})


def test_embed_needs_a_scale_where_it_is_left_out() -> None:
    table = np.full((1, 2, 32, 4), 128, np.uint8)
    with pytest.raises(Exception, match="integers need a scale"):
        run_node("Embed", [ids(2), table, None], [FLOAT], precision="int8", width=6, factor=1.0)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [(0, zeros(), "at least two axes"), (2, zeros(), "at least two axes"), (0, zeros(3, 5, 6, 0), "no depth")],
)
def test_attend_needs_its_axes(place: int, value: Array, message: str) -> None:
    inputs = [zeros(3, 5, 6, 8), zeros(3, 7, 2, 8), zeros(3, 7, 2, 8)]
    inputs[place] = value
    with pytest.raises(Exception, match=message):
        run_node("Attend", inputs, [FLOAT], scale=1.0, shared=2, repeated=3, rank=2, causal=0)


@pytest.mark.parametrize(("shared", "repeated"), [(-1, -6), (0, 3), (2, 0), (FULL, FULL), (4, 3)])
def test_attend_refuses_heads_that_it_has_not(shared: int, repeated: int) -> None:
    inputs = [zeros(3, 5, 6, 8), zeros(3, 7, 2, 8), zeros(3, 7, 2, 8)]
    with pytest.raises(Exception, match=r"must be at least 1|do not fit `shared`"):
        run_node("Attend", inputs, [FLOAT], scale=1.0, shared=shared, repeated=repeated, rank=2, causal=0)


def attend_cached(position: Array, slots: Array) -> None:
    inputs = [zeros(2, 3, 2, 8)] * 3 + [new_cache(4, 5, 3, 16), new_cache(4, 5, 3, 16), position, None, slots]
    run_node("AttendCached", inputs, [FLOAT], scale=1.0, shared=2, repeated=1, window=0)


def test_attend_cached_needs_one_position_and_slots_that_differ() -> None:
    attend_cached(np.array(1), np.array([3, 0]))
    with pytest.raises(Exception, match="there must be one position, or one for each sentence"):
        attend_cached(ids(0), np.array([3, 0]))
    with pytest.raises(Exception, match="the cache is full"):
        attend_cached(np.array(-1), np.array([3, 0]))
    with pytest.raises(Exception, match="two sentences have the same slot"):
        attend_cached(np.array(1), np.array([3, 3]))


def extend_cached(position: int, count: int, slots: list[int], beam: int = 3) -> None:
    inputs = [zeros(2, count, 2, 8)] * 3 + [new_cache(4, 5, beam, 16), new_cache(4, 5, beam, 16), np.array(position)]
    run_node("ExtendCached", [*inputs, np.array(slots)], [FLOAT], scale=1.0, shared=2, repeated=1, window=0)


@pytest.mark.parametrize("position", [3, -1, 5, 2**63 - 1, -(2**63)])
def test_extend_cached_needs_room_and_slots_that_differ(position: int) -> None:
    extend_cached(2, 3, [3, 0])
    with pytest.raises(Exception, match="the cache is full"):
        extend_cached(position, 3, [3, 0])
    with pytest.raises(Exception, match="two sentences have the same slot"):
        extend_cached(2, 3, [3, 3])


def test_extend_cached_needs_a_cache_for_one_hypothesis() -> None:
    extend_cached(2, 3, [3, 0], beam=1)
    with pytest.raises(Exception, match="the cache was made for fewer hypotheses"):
        extend_cached(2, 3, [3, 0], beam=0)


@pytest.mark.parametrize("way", [["Reshape", "shape"], ["Identity"], []])
def test_a_constant_is_no_cache_whichever_way_it_comes(way: list[str]) -> None:
    """Nodes that only name it anew leave it in its memory, which may be mapped from a file."""
    nodes = [helper.make_node(way[0], ["constant", *way[1:]], ["cache"])] if way else []
    caches = ["cache" if way else "constant"] * 2
    names = ["query", "key", "value", *caches, "position"]
    nodes.append(node("AttendCached", names, ["y"], scale=1.0, shared=2, repeated=1, window=0))
    types: dict[str, DTypeLike] = {"query": FLOAT, "key": FLOAT, "value": FLOAT, "position": ID, "shape": ID}
    session = cast(Any, kernel_session(nodes, types, {"y": FLOAT}, {"constant": zeros(4, 5, 3, 16)}))
    feeds = {name: np.ones((4, 3, 2, 8), FLOAT) for name in ("query", "key", "value")}
    feeds |= {"position": np.array(1), "shape": np.array([4, 5, 3, 16])}
    with pytest.raises(Exception, match="a cache must be a buffer of Cache"):
        session.run(None, feeds)


@pytest.mark.parametrize("wrong", [[zeros()], [zeros(3, 0, 1, 50)], [zeros(3, 2, 1, 50), zeros(3, 2, 0)]])
def test_candidates_need_logits_and_scores_that_fit(wrong: list[Array]) -> None:
    inputs = [zeros(3, 2, 1, 50), zeros(3, 2), np.array([2])]
    with pytest.raises(Exception, match="logits and scores do not fit"):
        run_node("Candidates", [*wrong, *inputs[len(wrong) :]], [FLOAT, ID, ID])


def candidates(width: Array) -> None:
    run_node("Candidates", [zeros(3, 2, 1, 50), zeros(3, 2), width], [FLOAT, ID, ID])


def advance(width: Array, *more: Array | None) -> list[Array]:
    pairs = [zeros(1, 4), ids(1, 4), ids(1, 4)]
    state = [*pairs, ids(1, 2, 1), ids(1, 2, 0), ids(1, 2, 1), ids(1, 2), zeros(1, 2), ids(1)]
    inputs = [width, np.array(3), np.array(0.6, FLOAT), np.array(0), np.zeros(1, np.bool_), ids(1), *state, *more]
    return run_node("Advance", inputs, [np.bool_, ID, np.bool_, ID, FLOAT, ID, ID, FLOAT, ID, ID])


def test_advance_adds_the_coverage_of_each_hypothesis_to_the_texts_that_end() -> None:
    nothing: list[Array | None] = [None] * 6
    assert advance(np.array([2]), *nothing)[7].tolist() == [[0, 0]], "candidates are no better than the pool"
    assert advance(np.array([2]), *nothing, np.array([[1.5, 9]], FLOAT))[7].tolist() == [[1.5, 1.5]]
    for wrong in (zeros(1, 3), zeros(2, 2), zeros(2)):
        with pytest.raises(Exception, match="input 21 has a wrong shape"):
            advance(np.array([2]), *nothing, wrong)


@pytest.mark.parametrize("search", [candidates, advance])
def test_the_search_needs_one_width(search: Callable[[Array], None]) -> None:
    search(np.array([2]))
    for wrong in (ids(0), np.array([2, 2])):
        with pytest.raises(Exception, match="is not one number"):
            search(wrong)
    for wrong in (0, -1, -(2**63)):
        with pytest.raises(Exception, match="width must be at least 1"):
            search(np.array([wrong]))


def test_sizes_that_no_number_holds_are_refused() -> None:
    """Attributes are any numbers, and a tensor without elements has any axes: no product of them is taken unseen."""
    huge: dict[str, Any] = {"scale": 1.0, "shared": 2**62, "repeated": 1}
    none = zeros(4, 0, 1, 1, 8)
    for search in (candidates, advance):
        with pytest.raises(Exception, match="the sizes are too large"):
            search(np.array([2**62]))
    with pytest.raises(Exception, match="the sizes are too large"):
        run_node("Attend", [none, zeros(4, 7, 1, 8), zeros(4, 7, 1, 8)], [FLOAT], rank=2, causal=0, **huge)
    caches = [new_cache(4, 5, 0, 16)] * 2
    with pytest.raises(Exception, match="the sizes are too large"):
        run_node("AttendCached", [none, *[zeros(4, 0, 1, 8)] * 2, *caches, np.array(1)], [FLOAT], window=0, **huge)


@pytest.mark.parametrize("sizes", [[-1], [2, -3], [2**62, 2**62]])
def test_a_cache_cannot_have_such_sizes(sizes: list[int]) -> None:
    with pytest.raises(Exception, match=r"(?i)size|dim|shape|alloc|overflow"):
        run_node("Cache", [np.array(sizes)], [FLOAT], label="a")
