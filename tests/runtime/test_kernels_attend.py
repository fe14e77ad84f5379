"""Attend and AttendCached of runtime/kernels/ against attention in numpy, with the same bits in every batch."""

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.runtime.kernel_session import Array, kernel_session, new_cache, node, run_node

FLOAT, ID, FLAG = np.float32, np.int64, np.bool_
Stored = type[np.floating[Any]] | type[np.int8]
STORED: list[Stored] = [np.float32, np.float16, np.int8]
SCALE = 4
Rng = np.random.Generator


pytestmark = pytest.mark.usefixtures("isa")


def floats(rng: Rng, *shape: int) -> NDArray[np.float32]:
    return rng.normal(0, 1, shape).astype(FLOAT)


def scales(rows: Array) -> Array:
    return (np.abs(rows).max(-1, keepdims=True) / FLOAT(127)).astype(FLOAT)


def store(rows: Array, stored: Stored) -> Array:
    """Rows [.., d] as they are kept: in int8, quantized, after the bytes of their scale."""
    if stored is not np.int8:
        return rows.astype(stored)
    scale = scales(rows)
    numbers = np.rint(np.divide(rows, scale, where=scale > 0, out=np.zeros_like(rows))).astype(np.int8)
    return np.concatenate([scale.view(np.int8), numbers], -1)


def kept(rows: Array, stored: Stored) -> Array:
    """What the numbers of rows are after they were kept."""
    if stored is not np.int8:
        return rows.astype(stored)
    return store(rows, stored)[..., SCALE:] * scales(rows)


def attention(
    query: Array, key: Array, value: Array, seen: Array, scale: float, bias: Array | float = 0.0, *, cap: float = 0.0
) -> NDArray[np.float64]:
    """Of queries [n, d_k] to keys [n, keys, d_k], where seen [n, keys]; in float64."""
    scores = scale * np.einsum("nd,nkd->nk", query.astype(np.float64), key)
    scores = (cap * np.tanh(scores) if cap else scores) + bias
    scores = np.where(seen, scores, -1e300)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("nk,nkd->nd", weights / weights.sum(-1, keepdims=True), value.astype(np.float64))


def plain_attend(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    slots: Array | None,
    bias: Array | None = None,
    *,
    scale: float,
    causal: bool,
    cap: float = 0.0,
) -> NDArray[np.float64]:
    """Attend for a query [batch, rows, S, R, d_k] and a bias [S, R, rows, keys]."""
    batch, rows, shared, repeated = query.shape[:4]
    keys = key.shape[1]
    result = np.zeros((batch, rows, shared, repeated, value.shape[-1]))
    for b, row, s in np.ndindex(batch, rows, shared):
        slot = b if slots is None else slots[b]
        seen: Array = (mask if mask is not None else np.ones((len(key), keys), FLAG))[slot]
        if causal:
            seen = np.array([bool(flag) and i <= row for i, flag in enumerate(seen.tolist())])
        one_key, one_value = key[slot][None, :, s], value[slot][None, :, s]
        for r in range(repeated):
            one, added = query[b, row, s, r][None], 0.0 if bias is None else bias[s, r, row]
            result[b, row, s, r] = attention(one, one_key, one_value, seen[None], scale, added, cap=cap)[0]
    return result


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("seed", range(30))
def test_attend_is_attention(seed: int, stored: Stored) -> None:
    rng = np.random.default_rng(seed)
    batch, rows, shared, repeated = (int(rng.integers(1, most)) for most in (4, 12, 4, 4))
    depth, value_depth = (int(size) for size in rng.choice([1, 3, 7, 8, 16, 20, 33, 64, 80, 128, 130], 2))
    keys = int(rng.choice([1, 2, 15, 16, 17, 31, 70]))
    causal, has_mask, has_slots, has_bias = (bool(flag) for flag in rng.random(4) < 0.5)
    slots = rng.integers(0, 5, batch) if has_slots else None
    count = 5 if has_slots else batch
    query = floats(rng, batch, rows, shared, repeated, depth)
    key, value = floats(rng, count, keys, shared, depth), floats(rng, count, keys, shared, value_depth)
    mask = rng.random((count, keys)) < 0.7 if has_mask else None
    bias = floats(rng, shared, repeated, rows, keys) * has_bias
    added = bias.reshape(-1, rows, keys) if has_bias else None
    inputs = [query, store(key, stored), store(value, stored), mask, slots, added]
    cap = float(rng.choice([0, 0, 2, 50]))
    more: dict[str, Any] = {"scale": depth**-0.5, "shared": shared, "repeated": repeated, "rank": 2, "cap": cap}
    [result] = run_node("Attend", inputs, [FLOAT], threads=int(rng.integers(1, 3)), causal=int(causal), **more)
    both = (kept(key, stored), kept(value, stored))
    expected = plain_attend(query, *both, mask, slots, bias, scale=depth**-0.5, causal=causal, cap=cap)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=3e-6 if cap < 50 else 2e-5)


def attend(
    query: Array, key: Array, value: Array, mask: Array | None, causal: int = 0, threads: int = 1, *, cap: float = 0.0
) -> Array:
    """Attend of a query [batch, rows, heads, d]."""
    heads = query.shape[2]
    inputs = [query, key, value, mask]
    kinds: dict[str, Any] = {"scale": 0.125, "shared": heads, "repeated": 1, "rank": 2, "causal": causal, "cap": cap}
    return run_node("Attend", inputs, [FLOAT], threads=threads, **kinds)[0]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("cap", [0.0, 5.0])
@pytest.mark.parametrize("keys", [5, 16, 25, 100])
def test_a_row_of_attend_depends_on_nothing_else(keys: int, cap: float, stored: Stored) -> None:
    rng = np.random.default_rng(keys)
    query = floats(rng, 6, 9, 4, 64)
    key, value = (store(floats(rng, 6, keys, 4, 64), stored) for _ in range(2))
    mask = np.ones((6, keys), FLAG)
    together = attend(query, key, value, mask, threads=2, cap=cap)
    assert attend(query, key, value, None, cap=cap).tobytes() == together.tobytes()
    for b in (0, 5):
        alone = attend(query[b : b + 1], key[b : b + 1], value[b : b + 1], None, cap=cap)
        assert alone.tobytes() == together[b].tobytes()
        for row in (0, 4, 8):
            one = attend(query[b : b + 1, row : row + 1], key[b : b + 1], value[b : b + 1], None, cap=cap)
            assert one.tobytes() == together[b, row].tobytes()


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("keys", [5, 16, 25])
def test_keys_that_may_not_be_seen_change_no_bit(keys: int, causal: int) -> None:
    rng = np.random.default_rng(keys)
    query, key, value = (floats(rng, 3, keys, 2, 32) for _ in range(3))
    alone = attend(query, key, value, None, causal)
    nothing = np.full((3, 40, 2, 32), np.nan, FLOAT)
    long_key, long_value = (np.concatenate([array, nothing], 1) for array in (key, value))
    mask = np.arange(keys + 40)[None].repeat(3, 0) < keys
    assert attend(query, long_key, long_value, mask, causal).tobytes() == alone.tobytes()
    if not causal:
        shuffled = np.sort(rng.permutation(keys + 40)[:keys])
        long_key[:], long_value[:] = np.nan, np.nan
        long_key[:, shuffled], long_value[:, shuffled] = key, value
        seen = np.zeros((3, keys + 40), FLAG)
        seen[:, shuffled] = True
        assert attend(query, long_key, long_value, seen).tobytes() == alone.tobytes()


def test_a_row_that_sees_no_key_weighs_all_alike() -> None:
    rng = np.random.default_rng(0)
    query, key, value = (floats(rng, 2, 5, 2, 24) for _ in range(3))
    mask = np.array([[False] * 5, [True] * 5])
    result = attend(query, key, value, mask)
    np.testing.assert_allclose(result[0], value[0].mean(0)[None].repeat(5, 0), rtol=1e-5, atol=1e-6)
    mask = np.array([[False, False, True, True, True]] * 2)
    result = attend(query, key, value, mask, causal=1)
    np.testing.assert_allclose(result[0, 1], value[0].mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result[0, 2], value[0, 2], rtol=1e-6)


@pytest.mark.parametrize("size", [1e-3, 1, 30])
def test_weights_are_exact_to_a_millionth(size: float) -> None:
    rng = np.random.default_rng(1)
    query, key = size * floats(rng, 4, 8, 2, 16), size * floats(rng, 4, 50, 2, 16)
    value = np.abs(floats(rng, 4, 50, 2, 16)) + 1
    expected = plain_attend(query[:, :, :, None], key, value, None, None, scale=0.125, causal=False)
    magnitude = 0.125 * np.einsum("brsd,bksd->brsk", np.abs(query), np.abs(key)).max()
    np.testing.assert_allclose(attend(query, key, value, None), expected[:, :, :, 0], rtol=1e-6 + 4e-7 * magnitude)


def test_attend_takes_axes_in_one() -> None:
    rng = np.random.default_rng(2)
    query, key, value = floats(rng, 2, 3, 1, 6, 8), floats(rng, 2, 7, 2, 8), floats(rng, 2, 7, 2, 8)
    kinds: dict[str, Any] = {"scale": 0.3, "shared": 2, "repeated": 3, "rank": 3, "causal": 0}
    [result] = run_node("Attend", [query, key, value], [FLOAT], **kinds)
    assert result.shape == query.shape
    expected = plain_attend(query.reshape(2, 3, 2, 3, 8), key, value, None, None, scale=0.3, causal=False)
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)


def test_attend_refuses_slots_and_masks_that_do_not_fit() -> None:
    query, key = np.zeros((1, 1, 2, 8), FLOAT), np.zeros((2, 3, 2, 8), FLOAT)
    kinds: dict[str, Any] = {"scale": 1.0, "shared": 2, "repeated": 1, "rank": 2, "causal": 0}
    with pytest.raises(Exception, match="slot is outside of the memory"):
        run_node("Attend", [query, key, key, None, np.array([2])], [FLOAT], **kinds)
    with pytest.raises(Exception, match="one slot for each sentence"):
        run_node("Attend", [query, key, key, None, np.array([0, 1])], [FLOAT], **kinds)
    with pytest.raises(Exception, match="the mask's axes do not fit"):
        run_node("Attend", [query, key, key, np.ones((1, 3), FLAG), np.array([0])], [FLOAT], **kinds)


def test_narrow_rounds_to_the_nearest_and_never_to_infinity() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(70, 1001)).astype(FLOAT) * np.logspace(-9, 5, 1001, dtype=FLOAT)
    values[0, :6] = 0, -0.0, 65504, 65519.996, 1e38, -np.inf
    [result] = run_node("Narrow", [values], [np.float16], threads=2)
    np.testing.assert_array_equal(result, values.clip(-65504, 65504).astype(np.float16))
    assert np.signbit(result[0, 1])
    assert np.isnan(run_node("Narrow", [np.array([np.nan], FLOAT)], [np.float16])[0]).all()


def test_keys_and_values_are_of_one_type() -> None:
    query, key = np.zeros((2, 1, 2, 8), FLOAT), np.zeros((2, 3, 2, 8), FLOAT)
    kinds: dict[str, Any] = {"scale": 1.0, "shared": 2, "repeated": 1, "rank": 2, "causal": 0}
    half, eight = key.astype(np.float16), store(key, np.int8)
    for pair in ((key, half), (half, key), (key, eight), (eight, half), (key.astype(ID),) * 2):
        with pytest.raises(Exception, match="keys and values are both float32, both float16 or both int8"):
            run_node("Attend", [query, *pair], [FLOAT], **kinds)
    with pytest.raises(Exception, match="quantized keys and values begin with their scale"):
        run_node("Attend", [query, *[eight[..., :3]] * 2], [FLOAT], **kinds)
    with pytest.raises(Exception, match="query and key differ in depth"):
        run_node("Attend", [query, *[eight[..., :-1]] * 2], [FLOAT], **kinds)


def test_rows_are_quantized_as_defined() -> None:
    """To the bit, ties to even, in any number of threads; of sizes that float32 hardly has, too."""
    rng = np.random.default_rng(4)
    for depth in (1, 2, 5, 7, 8, 16, 31, 64, 130):
        rows = floats(rng, 7, 300, depth) * np.logspace(-36, 36, 300, dtype=FLOAT)[:, None]
        rows[0, 0], rows[0, 1, 0] = 0, 0
        [found] = run_node("QuantizeRows", [rows], [np.int8], threads=2)
        np.testing.assert_array_equal(found, store(rows, np.int8))
    ties = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -0.0]], FLOAT)
    [found] = run_node("QuantizeRows", [ties], [np.int8])
    assert found[0, SCALE:].tolist() == [127, 0, 2, 2, 0, -2, 126, 0]


def test_rows_that_cannot_be_quantized_are_no_numbers() -> None:
    """A row of zeros is zeros; of subnormal numbers nothing is out of range; what is not finite makes a row NaN."""
    rows = np.zeros((5, 3), FLOAT)
    rows[1], rows[2, 1], rows[3, 1], rows[4, 2] = np.ldexp([1, -190, 100], -149), np.inf, np.nan, -np.inf
    [found] = run_node("QuantizeRows", [rows], [np.int8])
    assert not found[0].any()
    assert found[1, SCALE:].tolist() == [1, -127, 100], "the scale is 2^-149, as 190 / 127 of it is rounded"
    assert np.isnan(found[2:, :SCALE].copy().view(FLOAT)).all() and not found[2:, SCALE:].any()
    with pytest.raises(Exception, match="what has no axis has no rows"):
        run_node("QuantizeRows", [np.array(1, FLOAT)], [np.int8])


def buffer(slots: int, capacity: int, beam: int, shared: int, depth: int, stored: Stored = FLOAT) -> Array:
    """An empty cache, with the heads as an axis."""
    width = depth + SCALE * (stored is np.int8)
    cache = new_cache(slots, capacity, beam, shared * width, dtype=stored)
    return cache.reshape(slots, capacity, beam, shared, width)


class Cached:
    """A session of AttendCached with its two caches; they are kept over calls."""

    def __init__(
        self,
        caches: list[Array],
        *,
        repeated: int,
        window: int,
        ancestors: bool,
        slots: bool,
        bias: bool = False,
        threads: int = 1,
        operator: str = "AttendCached",
        cap: float = 0.0,
    ) -> None:
        names = ["query", "key", "value", "key_cache", "value_cache", "position"]
        kinds: dict[str, Any] = dict.fromkeys(names, FLOAT) | {"position": ID}
        kinds |= {"key_cache": caches[0].dtype, "value_cache": caches[1].dtype}
        optional = {"ancestors": (ID, ancestors), "slots": (ID, slots), "bias": (FLOAT, bias)}
        kinds |= {name: kind for name, (kind, given) in optional.items() if given}
        if operator == "ExtendCached":
            optional.pop("ancestors")
        inputs = [*names, *(name if given else "" for name, (_, given) in optional.items())]
        self.caches = caches
        shared = caches[0].shape[-2]
        one = node(operator, inputs, ["y"], scale=0.2, shared=shared, repeated=repeated, window=window, cap=cap)
        self.session = cast(Any, kernel_session([one], kinds, {"y": FLOAT}, threads=threads))

    def __call__(self, **inputs: Array) -> Array:
        flat = [cache.reshape(*cache.shape[:3], -1) for cache in self.caches]
        feeds = {**inputs, "key_cache": flat[0], "value_cache": flat[1]}
        return self.session.run(["y"], feeds)[0]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("seed", range(24))
def test_attend_cached_is_attention_to_ones_ancestors(seed: int, stored: Stored) -> None:
    rng = np.random.default_rng(seed)
    batch, beam, shared, repeated = (int(rng.integers(1, most)) for most in (4, 6, 4, 4))
    depth, value_depth = (int(size) for size in rng.choice([1, 5, 16, 24, 64, 72], 2))
    has_ancestors, has_slots, has_bias = (bool(flag) for flag in rng.random(3) < 0.6)
    window, capacity, steps = int(rng.choice([0, 0, 1, 6, 20])), 40, int(rng.choice([3, 20, 38]))
    slots = rng.permutation(5)[:batch] if has_slots else np.arange(batch)
    count = 5 if has_slots else batch
    key, value = floats(rng, steps, batch, beam, shared, depth), floats(rng, steps, batch, beam, shared, value_depth)
    caches = [buffer(count, capacity, beam, shared, d, stored) for d in (depth, value_depth)]
    before = [cache.copy() for cache in caches]
    ancestors = np.zeros((batch, beam, 0), ID)
    cap = float(rng.choice([0, 0, 5]))
    given: dict[str, Any] = {"repeated": repeated, "window": window, "cap": cap}
    step = Cached(caches, **given, ancestors=has_ancestors, slots=has_slots, bias=has_bias)
    for position in range(steps):
        query = floats(rng, batch, beam, shared, repeated, depth)
        bias = floats(rng, shared * repeated, 1, min(window or position + 1, position + 1))
        optional = {"ancestors": (ancestors, has_ancestors), "slots": (slots, has_slots), "bias": (bias, has_bias)}
        more = {name: array for name, (array, given) in optional.items() if given}
        result = step(query=query, key=key[position], value=value[position], position=np.array(position), **more)
        checked = (batch, beam, shared, repeated) if position % 9 == 0 or position == steps - 1 else (0,) * 4
        for b, w, s, r in np.ndindex(checked):
            own = [*(ancestors[b, w] if has_ancestors else [w] * position), w]
            rows = [(i, b, own[i], s) for i in range(position + 1) if not window or i > position - window]
            keys, values = (kept(np.array([array[row] for row in rows])[None], stored) for array in (key, value))
            seen, added = np.ones((1, len(rows)), FLAG), bias[s * repeated + r] if has_bias else 0.0
            expected = attention(query[b, w, s, r][None], keys, values, seen, 0.2, added, cap=cap)
            np.testing.assert_allclose(result[b, w, s, r], expected[0], rtol=1e-5, atol=3e-6)
        parents = rng.integers(0, beam, (batch, beam))
        ancestors = np.take_along_axis(
            np.concatenate([ancestors, np.arange(beam)[None, :, None].repeat(batch, 0)], -1), parents[:, :, None], 1
        )
    np.testing.assert_array_equal(caches[0][slots, :steps], store(key.swapaxes(0, 1), stored))
    np.testing.assert_array_equal(caches[1][slots, :steps], store(value.swapaxes(0, 1), stored))
    for cache, empty in zip(caches, before, strict=True):
        np.testing.assert_array_equal(cache[:, steps:], empty[:, steps:])


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("seed", range(24))
def test_extend_cached_is_attend_cached_again_and_again(seed: int, stored: Stored) -> None:
    """Several positions at once have the bits of one after another, with one thread or two."""
    rng = np.random.default_rng(seed)
    batch, beam, shared, repeated = (int(rng.integers(1, most)) for most in (4, 4, 4, 4))
    depth, value_depth = (int(size) for size in rng.choice([1, 5, 16, 24, 64, 72], 2))
    window, capacity = int(rng.choice([0, 0, 1, 6, 20])), 70
    has_slots, has_bias = (bool(flag) for flag in rng.random(2) < 0.6)
    slots, count = (rng.permutation(5)[:batch], 5) if has_slots else (np.arange(batch), batch)
    cap = float(rng.choice([0, 5]))
    settings: dict[str, Any] = {"repeated": repeated, "window": window, "ancestors": False, "cap": cap}
    settings |= {"slots": has_slots, "bias": has_bias}
    both: list[list[Array]] = [
        [buffer(count, capacity, beam, shared, d, stored) for d in (depth, value_depth)] for _ in range(2)
    ]
    one = Cached(both[0], **settings)
    several = Cached(both[1], **settings, operator="ExtendCached", threads=1 + seed % 2)
    position = 0
    for new in (int(rng.integers(1, 30)), 1, int(rng.integers(2, 30))):
        query, key = floats(rng, batch, new, shared, repeated, depth), floats(rng, batch, new, shared, depth)
        value = floats(rng, batch, new, shared, value_depth)
        before = min(window, position) if window else position
        bias = floats(rng, shared * repeated, new, before + new)
        more = {"slots": slots} if has_slots else {}
        found = several(
            query=query,
            key=key,
            value=value,
            position=np.array(position),
            **more,
            **({"bias": bias} if has_bias else {}),
        )
        for index in range(new):
            at, own = (
                slice(index, index + 1),
                slice(max(0, before + index + 1 - (window or capacity)), before + index + 1),
            )
            wanted = one(
                query=query[:, at], key=key[:, at], value=value[:, at], position=np.array(position + index), **more,
                **({"bias": bias[:, at, own]} if has_bias else {}),
            )  # fmt: skip
            assert wanted[:, 0].tobytes() == found[:, index].tobytes()
        position += new
    for first, second in zip(*both, strict=True):
        np.testing.assert_array_equal(first[slots, :position, 0], second[slots, :position, 0])


def test_a_sentence_of_attend_cached_depends_on_nothing_else() -> None:
    rng = np.random.default_rng(5)
    batch, beam, shared, depth, steps = 9, 4, 8, 64, 40
    query, key, value = (floats(rng, steps, batch, beam, shared, depth) for _ in range(3))
    ancestors = rng.integers(0, beam, (batch, beam, steps))

    def last(some: slice, slots: Array, capacity: int, threads: int) -> Array:
        caches = [buffer(int(slots.max()) + 1, capacity, beam, shared, depth) for _ in range(2)]
        step = Cached(caches, repeated=1, window=0, ancestors=True, slots=True, threads=threads)
        results: list[Array] = []
        for position in range(steps):
            new = {"query": query, "key": key, "value": value}
            inputs = {name: array[position, some] for name, array in new.items()}
            past = ancestors[some, :, :position]
            results.append(step(**inputs, ancestors=past, slots=slots, position=np.array(position)))
        return np.array(results)

    together = last(slice(None), np.arange(batch), steps, 2)
    for b in range(batch):
        alone = last(slice(b, b + 1), np.array([2]), 64, 1)
        assert alone[:, 0].tobytes() == together[:, b].tobytes()


@pytest.mark.parametrize("seed", range(8))
def test_sentences_at_positions_of_their_own_have_the_bits_of_each_alone(seed: int) -> None:
    """With windows, and with biases by distance, of which each sentence has the last ones; one position and several."""
    rng = np.random.default_rng(seed)
    batch, beam, shared, repeated, depth, capacity = 5, 2, 2, 2, 24, 40
    window, several, has_bias = int(rng.choice([0, 0, 1, 7])), seed % 2 == 1, seed % 3 == 0
    kind, slots = ("ExtendCached" if several else "AttendCached"), rng.permutation(6)[:batch]
    rows = int(rng.integers(1, 9)) if several else 1
    settings: dict[str, Any] = {"repeated": repeated, "window": window, "ancestors": not several, "slots": True}
    settings |= {"bias": has_bias, "operator": kind}
    positions = rng.integers(0, 30, batch)
    written = [buffer(6, capacity, beam, shared, depth) for _ in range(2)]
    for cache in written:
        cache[:, :-1] = floats(rng, 6, capacity - 1, beam, shared, depth)
    heads, furthest = shared * repeated, int(positions.max())
    middle = (rows,) if several else (beam,)
    new = {"query": floats(rng, batch, *middle, shared, repeated, depth)}
    new |= {name: floats(rng, batch, *middle, shared, depth) for name in ("key", "value")}
    ancestors = rng.integers(0, beam, (batch, beam, furthest))

    def keys(position: int) -> int:
        if several:
            return rows + (min(window, position) if window else position)
        return min(window or capacity, position + 1)

    bias = floats(rng, heads, rows, keys(furthest))

    def run(some: slice, position: Array, threads: int) -> Array:
        step = Cached([cache.copy() for cache in written], **settings, threads=threads)
        most = int(position.max())
        inputs: dict[str, Array] = {name: array[some] for name, array in new.items()}
        inputs |= {} if several else {"ancestors": ancestors[some, :, :most]}
        inputs |= {"bias": bias[:, :, bias.shape[2] - keys(most) :]} if has_bias else {}
        return step(**inputs, slots=slots[some], position=position)

    together = run(slice(None), positions, 2)
    for b in range(batch):
        assert run(slice(b, b + 1), np.array(positions[b]), 1)[0].tobytes() == together[b].tobytes()


def test_attend_cached_refuses_positions_that_do_not_fit() -> None:
    step = Cached([buffer(2, 4, 1, 1, 8) for _ in range(2)], repeated=1, window=0, ancestors=False, slots=False)
    new = {"query": np.zeros((2, 1, 1, 1, 8), FLOAT)} | dict.fromkeys(("key", "value"), np.zeros((2, 1, 1, 8), FLOAT))
    for wrong, message in (([0, 1, 2], "one for each sentence"), ([0, 4], "full"), ([-1, 0], "full")):
        with pytest.raises(Exception, match=message):
            step(**new, position=np.array(wrong))


def test_attend_cached_takes_fewer_hypotheses_than_its_caches_hold() -> None:
    """The first step of a search has one hypothesis, which is an ancestor of all that follow."""
    rng, beam = np.random.default_rng(0), 4
    steps = []
    for _ in range(2):
        caches = [buffer(2, 3, beam, 1, 16, FLOAT) for _ in range(2)]
        steps.append(Cached(caches, repeated=1, window=0, ancestors=True, slots=False))
    query, key, value = floats(rng, 2, 1, 1, 1, 16), floats(rng, 2, 1, 1, 16), floats(rng, 2, 1, 1, 16)
    feeds = {"query": query, "key": key, "value": value}
    none = np.zeros((2, beam, 0), ID)
    one = steps[0](**feeds, ancestors=none[:, :1], position=np.array(0))
    many = steps[1](**{n: np.repeat(a, beam, 1) for n, a in feeds.items()}, ancestors=none, position=np.array(0))
    np.testing.assert_array_equal(np.repeat(one, beam, 1), many)
    np.testing.assert_array_equal(steps[0].caches[0][:, 0, 0], key[:, 0])
    feeds = {name: floats(rng, 2, beam, *array.shape[2:]) for name, array in feeds.items()}
    feeds |= {"ancestors": np.zeros((2, beam, 1), ID), "position": np.array(1)}
    np.testing.assert_array_equal(steps[0](**feeds), steps[1](**feeds))
    with pytest.raises(Exception, match="the cache was made for fewer hypotheses"):
        steps[0](**{**feeds, **{name: np.repeat(feeds[name], 2, 1) for name in ("query", "key", "value", "ancestors")}})


def test_attend_cached_refuses_caches_of_two_types() -> None:
    whole, half, eight = (buffer(1, 4, 2, 2, 8, stored) for stored in STORED)
    rows = {name: np.zeros((1, 2, 2, 8), FLOAT) for name in ("query", "key", "value")}
    for pair in ([whole, half], [half, whole], [eight, whole], [half, eight]):
        step = Cached(pair, repeated=1, window=0, ancestors=False, slots=False)
        with pytest.raises(Exception, match="caches are both float32, both float16 or both int8"):
            step(position=np.array(1), **rows)


def test_attend_cached_refuses_a_full_cache() -> None:
    caches = [buffer(1, 4, 2, 2, 8) for _ in range(2)]
    step = Cached(caches, repeated=1, window=0, ancestors=False, slots=False)
    rows = {name: np.zeros((1, 2, 2, 8), FLOAT) for name in ("query", "key", "value")}
    with pytest.raises(Exception, match="the cache is full"):
        step(position=np.array(4), **rows)


def test_attend_cached_refuses_ancestors_that_are_not_in_the_beam() -> None:
    caches = [buffer(1, 4, 2, 2, 8) for _ in range(2)]
    step = Cached(caches, repeated=1, window=0, ancestors=True, slots=False)
    rows = {name: np.zeros((1, 2, 2, 8), FLOAT) for name in ("query", "key", "value")}
    for wrong in (-1, 2, 2**40):
        with pytest.raises(Exception, match="an ancestor is outside of the beam"):
            step(position=np.array(1), ancestors=np.array([[[0], [wrong]]]), **rows)
