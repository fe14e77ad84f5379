"""Candidates and Advance of runtime/kernels/ against standard operators, numpy and the plain search."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.runtime.kernel_session import Array, kernel_session, node
from xformc.compiler.certify import reference_search as reference
from xformc.format.manifest import SearchOptions
from xformc.format.tokens import BEGIN, END

Run = Callable[[Sequence[Array]], list[Array]]
NEVER = -np.inf
CARRIED = ["position", "done", "tokens", "scores", "pool_tokens", "pool_lengths", "pool_scores", "found", "ancestors"]


@dataclass(frozen=True)
class State:
    """What Advance is given, in its order; see docs/kernels.md."""

    width: Array
    end_token: Array
    length_penalty: Array
    position: Array
    done: Array
    limit: Array
    scores: Array
    next_tokens: Array
    parents: Array
    tokens: Array
    ancestors: Array
    pool_tokens: Array
    pool_lengths: Array
    pool_scores: Array
    found: Array


def runner(operator: str, inputs: Sequence[type], outputs: Sequence[type], threads: int = 1, **attributes: int) -> Run:
    """A function from the inputs of one operator to its outputs."""
    names = {f"x{i}": kind for i, kind in enumerate(inputs)}
    results = {f"y{i}": kind for i, kind in enumerate(outputs)}
    session = cast(
        Any, kernel_session([node(operator, list(names), list(results), **attributes)], names, results, threads=threads)
    )
    return lambda values: session.run(list(results), dict(zip(names, values, strict=True)))


def candidates_kernel(threads: int = 1, **attributes: int) -> Run:
    kinds = [np.float32, np.float32, np.int64], [np.float32, np.int64, np.int64]
    return runner("Candidates", *kinds, threads, **attributes)


@pytest.fixture(scope="module")
def advance_kernel() -> Run:
    ids, floats, flags = np.int64, np.float32, np.bool_
    inputs = [ids, ids, floats, ids, flags, ids, floats, ids, ids, ids, ids, ids, ids, floats, ids]
    return runner("Advance", inputs, [flags, ids, flags, ids, floats, ids, ids, floats, ids, ids])


def standard_candidates(choices: int) -> Run:
    """The same in ONNX's own operators, as compiler/search/beam.py writes it, with so many choices of a hypothesis."""
    lines: list[tuple[str, list[str], list[str], dict[str, int]]] = [
        ("Mul", ["width", "choices"], ["count"], {}),
        ("TopK", ["logits", "count"], ["best", "ids"], {}),
        ("ReduceLogSumExp", ["logits", "last"], ["normalizer"], {}),
        ("Unsqueeze", ["scores", "inner"], ["before"], {}),
        ("Sub", ["best", "normalizer"], ["normalized"], {}),
        ("Add", ["normalized", "before"], ["total"], {}),
        ("Reshape", ["total", "flat"], ["flat_total"], {}),
        ("Reshape", ["ids", "flat"], ["flat_ids"], {}),
        ("TopK", ["flat_total", "count"], ["y0", "chosen"], {}),
        ("GatherElements", ["flat_ids", "chosen"], ["y1"], {"axis": -1}),
        ("Div", ["chosen", "count"], ["y2"], {}),
    ]
    constants = {"choices": [choices], "last": [-1], "inner": [2, 3], "flat": [0, -1]}
    kinds = {"logits": TensorProto.FLOAT, "scores": TensorProto.FLOAT, "width": TensorProto.INT64}
    results = {"y0": TensorProto.FLOAT, "y1": TensorProto.INT64, "y2": TensorProto.INT64}
    graph = helper.make_graph(
        [
            cast(Any, helper).make_node(kind, inputs, outputs, **attributes)
            for kind, inputs, outputs, attributes in lines
        ],
        "candidates",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in results.items()],
        [onnx.numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = cast(Any, onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]))
    return lambda values: session.run(list(results), dict(zip(kinds, values, strict=True)))


def random_logits(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Logits of some random kind: wide or narrow, with many equal ones, with impossible tokens."""
    logits = rng.normal(rng.choice([0, -50, 80]), rng.choice([0.1, 1, 8]), shape)
    if rng.random() < 0.4:
        logits = np.round(logits)
    if rng.random() < 0.3:
        logits[rng.random(shape) < 0.3] = NEVER
        logits[..., -2 * 6 :] = np.where(np.isinf(logits[..., -2 * 6 :]), -60, logits[..., -2 * 6 :])
    return logits.astype(np.float32)


def random_scores(rng: np.random.Generator, batch: int, width: int) -> NDArray[np.float32]:
    """Log probabilities of hypotheses, in order; sometimes those of the first step, sometimes equal ones."""
    scores = -np.sort(rng.exponential(5, (batch, width)), axis=-1)
    if rng.random() < 0.2:
        scores[:, 1:] = NEVER
    if rng.random() < 0.2:
        scores[:] = -1.5
    return scores.astype(np.float32)


def test_candidates_are_those_of_standard_operators(isa: str) -> None:
    """The scores of ONNX Runtime differ the more, since its ReduceLogSumExp adds up one by one."""
    several = [(candidates_kernel(), standard_candidates(2)), (candidates_kernel(ends=3), standard_candidates(4))]
    for seed in range(150):
        rng = np.random.default_rng(seed)
        kernel, standard = several[seed % 5 == 0]
        batch, width = int(rng.integers(1, 5)), int(rng.integers(1, 4 if seed % 5 == 0 else 7))
        vocabulary = int(rng.choice([12, 13, 31, 64, 100, 1000, 5000, 17001]))
        logits = random_logits(rng, batch, width, 1, vocabulary)
        if rng.random() < 0.2:
            logits[:] = logits[:, :1]
        inputs = [logits, random_scores(rng, batch, width), np.array([width])]
        scores, tokens, parents = kernel(inputs)
        expected_scores, expected_tokens, expected_parents = standard(inputs)
        np.testing.assert_allclose(scores, expected_scores, rtol=0, atol=2e-4)
        np.testing.assert_array_equal(tokens, expected_tokens, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(parents, expected_parents, err_msg=f"seed {seed}")


def test_candidates_normalize_to_a_millionth(isa: str) -> None:
    rng = np.random.default_rng(0)
    for spread in (0.01, 1, 10):
        logits = rng.normal(0, spread, (2, 1, 1, 37_000)).astype(np.float32)
        scores, tokens, _ = candidates_kernel()([logits, np.zeros((2, 1), np.float32), np.array([1])])
        exact = logits[:, 0, 0].astype(np.float64)
        normalizer = np.log(np.exp(exact).sum(-1, keepdims=True))
        expected = np.take_along_axis(exact, tokens, -1) - normalizer
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-7 * normalizer.max())


def test_candidates_of_a_sentence_depend_on_nothing_else(isa: str) -> None:
    rng = np.random.default_rng(1)
    logits, scores = random_logits(rng, 33, 3, 1, 20_011), random_scores(rng, 33, 3)
    together = candidates_kernel(threads=2)([logits, scores, np.array([3])])
    for i in (0, 7, 32):
        alone = candidates_kernel()([logits[i : i + 1], scores[i : i + 1], np.array([3])])
        for one, row in zip(alone, together, strict=True):
            assert one[0].tobytes() == row[i].tobytes()


def test_candidates_of_one_sentence_do_not_depend_on_threads(isa: str) -> None:
    rng = np.random.default_rng(2)
    inputs = [random_logits(rng, 1, 4, 1, 32_000), random_scores(rng, 1, 4), np.array([4])]
    for one, two in zip(candidates_kernel(1)(inputs), candidates_kernel(2)(inputs), strict=True):
        assert one.tobytes() == two.tobytes()


def test_the_first_step_continues_the_first_hypothesis_only(isa: str) -> None:
    logits = np.zeros((1, 3, 1, 50), np.float32)
    logits[0, :, 0, 40] = 1
    scores, tokens, parents = candidates_kernel()([logits, np.array([[0, NEVER, NEVER]], np.float32), np.array([3])])
    assert tokens.tolist() == [[40, 0, 1, 2, 3, 4]]
    assert parents.tolist() == [[0] * 6]
    assert np.isfinite(scores).all()


def test_candidates_need_a_vocabulary_of_as_many_tokens() -> None:
    logits, scores = np.zeros((1, 3, 1, 5), np.float32), np.zeros((1, 3), np.float32)
    with pytest.raises(Exception, match="the beam's width needs a vocabulary of 6 tokens"):
        candidates_kernel()([logits, scores, np.array([3])])
    with pytest.raises(Exception, match="there must be at least 1 end token"):
        candidates_kernel(ends=0)


def random_state(rng: np.random.Generator) -> State:
    batch, width = int(rng.integers(1, 20)), int(rng.integers(1, 7))
    position = int(rng.integers(0, 9))
    length, vocabulary = position + 1, int(rng.choice([5, 30]))
    end = END if rng.random() < 0.7 else [END, 1]
    candidates = (1 + np.size(end)) * width
    scores = -np.sort(rng.exponential(3, (batch, candidates)), axis=-1)
    pool_scores = -np.sort(rng.exponential(2, (batch, width)), axis=-1)
    if rng.random() < 0.3:
        scores, pool_scores = np.round(scores), np.round(pool_scores)
    scores[:, int(rng.integers(1, candidates + 1)) :] = NEVER
    pool_scores[rng.random((batch, width)) < 0.4] = NEVER
    pool_scores = -np.sort(-pool_scores, axis=-1)
    return State(
        width=np.array([width]),
        end_token=np.array(end),
        length_penalty=np.array(rng.choice([0, 0.6, 1, 1.7]), np.float32),
        position=np.array(position),
        done=rng.random(batch) < 0.2,
        limit=rng.integers(1, 12, batch),
        scores=scores.astype(np.float32),
        next_tokens=rng.integers(0, vocabulary, (batch, candidates)),
        parents=rng.integers(0, width, (batch, candidates)),
        tokens=rng.integers(0, vocabulary, (batch, width, length)),
        ancestors=rng.integers(0, width, (batch, width, position)),
        pool_tokens=rng.integers(0, vocabulary, (batch, width, length)),
        pool_lengths=rng.integers(0, length, (batch, width)),
        pool_scores=pool_scores.astype(np.float32),
        found=rng.integers(0, width + 1, batch),
    )


def best(scores: Array, count: int) -> NDArray[np.int64]:
    """The places of the best along the last axis, best first; of equal ones the first."""
    return np.argsort(-scores, axis=-1, kind="stable")[..., :count]


def plain_advance(state: State) -> list[Array]:
    """Advance in numpy, line by line as compiler/search/beam.py has it."""
    width, length = int(state.width[0]), int(state.position) + 1
    every = np.arange(len(state.done))[:, None]
    ended = np.isin(state.next_tokens, state.end_token)
    last = state.limit <= length

    ends = (ended[:, :width] | last[:, None]) & ~state.done[:, None]
    penalty = np.power(np.float32((np.float32(length) + np.float32(5)) / np.float32(6)), state.length_penalty)
    offered = np.where(ends, state.scores[:, :width] / penalty, np.float32(NEVER))
    both_scores = np.concatenate([state.pool_scores, offered], -1)
    chosen = best(both_scores, width)
    both_lengths = np.concatenate([state.pool_lengths, np.full_like(state.pool_lengths, length)], -1)
    finished = np.concatenate([state.tokens[every, state.parents], state.next_tokens[..., None]], -1)
    both_tokens = np.concatenate([np.pad(state.pool_tokens, ((0, 0), (0, 0), (0, 1))), finished[:, :width]], 1)
    found = state.found + (ends & (state.scores[:, :width] > NEVER)).sum(-1)

    open_scores = np.where(ended, np.float32(NEVER), state.scores)
    going_on = best(open_scores, width)
    done = state.done | last | (found >= width) | (open_scores[every, going_on][:, 0] == NEVER)
    parents = state.parents[every, going_on]
    return [
        np.array(8 * done.sum() < len(done)),
        np.array(length),
        done,
        finished[every, going_on],
        open_scores[every, going_on],
        both_tokens[every, chosen],
        both_lengths[every, chosen],
        both_scores[every, chosen],
        found,
        np.concatenate([state.ancestors[every, parents], parents[..., None]], -1),
    ]


def test_advance_is_what_numpy_says(advance_kernel: Run) -> None:
    for seed in range(500):
        state = random_state(np.random.default_rng(seed))
        results, expected = advance_kernel(astuple(state)), plain_advance(state)
        for name, result, right in zip(["go_on", *CARRIED], results, expected, strict=True):
            assert (result.dtype, result.shape) == (right.dtype, right.shape), name
            if name == "pool_scores":
                np.testing.assert_allclose(result, right, rtol=4e-7)
            else:
                np.testing.assert_array_equal(result, right, err_msg=f"{name}, seed {seed}")


def test_sentences_at_positions_of_their_own_advance_as_each_alone(advance_kernel: Run) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        state = random_state(rng)
        past = int(state.position)
        positions = rng.integers(0, past + 1, len(state.done))
        written = np.arange(past + 1) <= positions[:, None, None]
        state = replace(state, pool_tokens=np.where(written, state.pool_tokens, 0))
        results = advance_kernel(astuple(replace(state, position=positions)))
        named = dict(zip(CARRIED, results[1:], strict=True))
        assert bool(results[0]) == (8 * named["done"].sum() < len(positions))
        for row, position in enumerate(positions):
            length, here = position + 1, slice(row, row + 1)
            each = {name: value for name, value in vars(state).items() if name not in ("width", "end_token")}
            rows = {name: value[here] for name, value in each.items() if np.ndim(value)}
            lengths = {name: rows[name][..., :length] for name in ("tokens", "pool_tokens")}
            lengths["ancestors"] = rows["ancestors"][..., :position]
            alone = advance_kernel(astuple(replace(state, **{**rows, **lengths}, position=np.array(position))))
            right = dict(zip(CARRIED, alone[1:], strict=True))
            if state.done[row]:
                assert named["position"][row] == position and named["done"][row]
                np.testing.assert_array_equal(
                    named["pool_tokens"][row, :, : state.tokens.shape[2]], rows["pool_tokens"][0]
                )
                continue
            assert named["position"][row] == position + (not right["done"][0])
            for name in CARRIED[1:]:
                found = named[name][row][..., : right[name].shape[-1]] if right[name].ndim == 3 else named[name][row]
                np.testing.assert_array_equal(found, right[name][0], err_msg=f"{name}, seed {seed}")


def test_advance_takes_one_open_hypothesis_as_the_first_of_a_beam(advance_kernel: Run) -> None:
    for seed in range(20):
        state = random_state(np.random.default_rng(seed))
        state = replace(state, parents=np.zeros_like(state.parents))
        one = replace(state, tokens=state.tokens[:, :1], ancestors=state.ancestors[:, :1])
        for result, right in zip(advance_kernel(astuple(one)), advance_kernel(astuple(state)), strict=True):
            np.testing.assert_array_equal(result, right, err_msg=f"seed {seed}")


def test_a_done_sentence_keeps_its_pool(advance_kernel: Run) -> None:
    state = random_state(np.random.default_rng(3))
    state = replace(state, done=np.ones_like(state.done))
    results = advance_kernel(astuple(state))
    np.testing.assert_array_equal(results[5][..., :-1], state.pool_tokens)
    np.testing.assert_array_equal(results[7], state.pool_scores)
    np.testing.assert_array_equal(results[8], state.found)
    assert not results[0]


def test_a_count_of_found_hypotheses_stays_in_its_range(advance_kernel: Run) -> None:
    state = random_state(np.random.default_rng(5))
    ended = np.full_like(state.next_tokens, END)
    most = np.full_like(state.found, np.iinfo(np.int64).max)
    results = advance_kernel(astuple(replace(state, next_tokens=ended, done=np.zeros_like(state.done), found=most)))
    assert (results[8] >= state.width).all()
    assert results[2].all()


def test_tokens_of_a_prompt_end_nothing_and_are_not_counted() -> None:
    """The first sentence goes on in its prompt, the others are behind theirs."""
    ids, floats, flags = np.int64, np.float32, np.bool_
    kinds = [ids, ids, floats, ids, flags, ids, floats, ids, ids, ids, ids, ids, ids, floats, ids]
    names = {f"x{i}": kind for i, kind in enumerate(kinds)}
    results = dict(zip(("go_on", *CARRIED), [flags, ids, flags, ids, floats, ids, ids, floats, ids, ids], strict=True))
    absent = ["", *(f"x{i}" for i in range(15)), *[""] * 7, "given"][1:]
    graph = [node("Advance", absent, list(results))]
    session = cast(Any, kernel_session(graph, {**names, "given": ids}, results))
    ended = 0
    for seed in range(60):
        state = random_state(np.random.default_rng(seed))
        position, rows = int(state.position), len(state.done)
        given = np.array([position + 1, *[min(row, position) for row in range(1, rows)]])
        state = replace(state, done=np.zeros(rows, np.bool_), limit=np.full(rows, position + 9))
        feeds = dict(zip(names, astuple(state), strict=True))
        found = dict(zip(results, session.run(list(results), {**feeds, "given": given}), strict=True))
        plain = dict(zip(results, session.run(list(results), {**feeds, "given": np.array([0])}), strict=True))
        assert (found["scores"][0] == np.where(found["scores"][0] > NEVER, 0, NEVER)).all()
        assert found["found"][0] == state.found[0], "no token of a prompt ends a text"
        np.testing.assert_array_equal(found["pool_scores"][0], state.pool_scores[0])
        for row in range(1, rows):
            np.testing.assert_array_equal(found["scores"][row], plain["scores"][row])
            np.testing.assert_array_equal(found["found"][row], plain["found"][row])
            length, counted = position + 1, max(1, position + 1 - int(given[row]))
            ratio = ((5 + length) / (5 + counted)) ** 0.6
            new = [
                score for score in plain["pool_scores"][row] if score not in state.pool_scores[row] and score > NEVER
            ]
            own = found["pool_scores"][row]
            for score in new:
                scaled = score * ratio ** (float(state.length_penalty) / 0.6)
                ended += 1
                assert np.isclose(own, scaled, rtol=1e-5).any() or scaled <= own[-1]
    assert ended


def test_advance_says_which_input_does_not_fit(advance_kernel: Run) -> None:
    state = random_state(np.random.default_rng(4))
    with pytest.raises(Exception, match="input 10 has a wrong shape"):
        advance_kernel(astuple(replace(state, position=np.array(int(state.position) + 1))))
    with pytest.raises(Exception, match="no such parent"):
        advance_kernel(astuple(replace(state, parents=state.parents + 9)))


def logits_of(source: int, prefix: Sequence[int], vocabulary: int) -> NDArray[np.float32]:
    """Logits that any prefix has of its own; the end is likely, and some tokens are equally likely."""
    rng = np.random.default_rng(zlib.crc32(repr((source, tuple(int(token) for token in prefix))).encode()))
    logits = np.round(rng.normal(0, 1.5, vocabulary), 1).astype(np.float32)
    logits[END] += 1.5
    return logits


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_a_search_of_both_kernels_is_the_plain_search(advance_kernel: Run, width: int) -> None:
    vocabulary, sources, candidates = 23, list(range(12)), candidates_kernel()
    options = SearchOptions(beam_size=width, n_best=width, length_penalty=0.6, max_length_factor=0, max_length_offset=9)
    batch = len(sources)
    state = State(
        width=np.array([width]),
        end_token=np.array(END),
        length_penalty=np.array(0.6, np.float32),
        position=np.array(0),
        done=np.zeros(batch, np.bool_),
        limit=np.full(batch, 9),
        scores=np.tile(np.array([0, *[NEVER] * (width - 1)], np.float32), (batch, 1)),
        next_tokens=np.zeros(0),
        parents=np.zeros(0),
        tokens=np.full((batch, width, 1), BEGIN),
        ancestors=np.zeros((batch, width, 0), np.int64),
        pool_tokens=np.zeros((batch, width, 1), np.int64),
        pool_lengths=np.zeros((batch, width), np.int64),
        pool_scores=np.full((batch, width), NEVER, np.float32),
        found=np.zeros(batch, np.int64),
    )
    while not state.done.all():
        logits = [[logits_of(i, row, vocabulary) for row in state.tokens[i]] for i in sources]
        scores, tokens, parents = candidates([np.array(logits)[:, :, None], state.scores, state.width])
        results = advance_kernel(astuple(replace(state, scores=scores, next_tokens=tokens, parents=parents)))
        state = replace(state, **dict(zip(CARRIED, results[1:], strict=True)))

    def scorer(i: int, target: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = [logits_of(i, row, vocabulary) for row in target]
        return np.repeat(np.array(rows)[:, None], target.shape[1], 1)

    for i in sources:
        expected = reference.search(partial(scorer, i), 1, options).hypotheses
        ends = state.pool_lengths[i] + 1
        found = [tuple(row[1:end].tolist()) for row, end in zip(state.pool_tokens[i], ends, strict=True)]
        assert found[: len(expected)] == [hypothesis.tokens for hypothesis in expected]
        np.testing.assert_allclose(state.pool_scores[i][: len(expected)], [each.score for each in expected], rtol=1e-5)
