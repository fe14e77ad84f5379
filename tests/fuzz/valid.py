"""Valid calls of every operator of docs/kernels.md, drawn at random: what the fuzzer begins with."""

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from onnx import helper

from tests.fuzz.cases import STORED, Buffer, Case, Operand, Stored, Tensor
from tests.runtime.kernel_session import alone
from tests.runtime.standard_nodes import NODES, drawn, result_types

PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int4")
SCREENED = "screened"
"""Not of ProjectCandidates."""
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
NORMS = ("none", "layer", "rms")
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 40, 64, 65)
"""At and beside the sizes of vectors, panels and groups."""
COUNTS = (0, 1, 1, 2, 3, 5, 7, 16, 17)
"""Of rows, sentences and positions."""


def valid_case(random: Random) -> Case:
    """Return a valid call of one of the operators."""
    operator = random.choice(list(OPERATORS))
    case = OPERATORS[operator](random)
    return Case(operator, case[0], case[1], case[2], random.choice((1, 1, 1, 3)))


Drawn = tuple[list[Operand], list[Any], Mapping[str, Any]]


def floats(random: Random, *shape: int) -> Tensor:
    values = np.random.default_rng(random.getrandbits(32)).standard_normal(shape, np.float32)
    return Tensor(values, random.random() < 0.3)


def numbers(random: Random, below: int, *shape: int, dtype: DTypeLike = np.int64) -> Tensor:
    """Integers from 0 to `below` - 1."""
    return Tensor(np.random.default_rng(random.getrandbits(32)).integers(0, max(1, below), shape, dtype))


def ids(values: Any) -> Tensor:
    return Tensor(np.array(values, np.int64))


def perhaps(random: Random, make: Callable[[], Tensor]) -> Tensor | None:
    return make() if random.random() < 0.5 else None


def _panels(count: int) -> int:
    return math.ceil(count / 32)


def _screened(random: Random, outputs: int, depth: int) -> list[Tensor]:
    """Integers in panels, their scale, and what they leave over."""
    words = numbers(random, 2**15, _panels(outputs), math.ceil(depth / 2), 32, 2, dtype=np.int16)
    return [words, floats(random, outputs), numbers(random, 2**15, outputs, depth, dtype=np.int16)]


def _tensors(random: Random, precision: str, outputs: int, depth: int) -> list[Tensor]:
    """A weight in panels, and what belongs to it."""
    if precision == SCREENED:
        return _screened(random, outputs, depth)
    weight, scale = _weight(random, precision, outputs, depth)
    return [weight] if scale is None else [weight, scale]


def _weight(random: Random, precision: str, outputs: int, depth: int) -> tuple[Tensor, Tensor | None]:
    """A weight in panels, and its scale."""
    panels = _panels(outputs)
    if precision == "float32":
        return floats(random, panels, depth, 32), None
    if precision == "int8":
        weight = numbers(random, 256, panels, math.ceil(depth / 4), 32, 4, dtype=np.uint8)
        return weight, floats(random, outputs)
    if precision == "int4":
        weight = numbers(random, 256, panels, math.ceil(depth / 32), 4, 32, 4, dtype=np.uint8)
        return weight, floats(random, panels, math.ceil(depth / 32), 32)
    if precision == "bfloat16":
        return numbers(random, 2**16, panels, math.ceil(depth / 2), 32, 2, dtype=np.uint16), None
    return numbers(random, 2**16, panels, depth, 32, dtype=np.uint16), None


def _project(random: Random) -> Drawn:
    large = random.random() < 0.05  # then threads share the work
    leading = [random.choice(COUNTS) for _ in range(random.randint(0, 2))] if not large else [random.choice((0, 9, 80))]
    axes = [random.choice(SIZES) for _ in range(random.randint(1, 2))] if not large else [320]
    parts, precision, depth = random.choice((1, 1, 2, 3)), random.choice((*PRECISIONS, SCREENED)), math.prod(axes)
    norm = random.choice(NORMS) if parts == 1 else "none"
    ranks = [random.randint(0, 2) for _ in range(parts)] if not large else [1] * parts
    sizes = [random.choice(SIZES) if not large else 1040 for _ in range(sum(ranks))]
    shapes = [sizes[sum(ranks[:i]) : sum(ranks[: i + 1])] for i in range(parts)]
    first, bias = math.prod(shapes[0]), random.random() < 0.5
    inputs: list[Operand] = [
        floats(random, *leading, *axes),
        perhaps(random, lambda: floats(random, *leading, *shapes[0])) if parts == 1 else None,
        floats(random, first) if norm != "none" else None,
        floats(random, first) if norm == "layer" else None,
    ]
    for shape in shapes:
        inputs += [
            *_tensors(random, precision, math.prod(shape), depth),
            *([floats(random, math.prod(shape))] if bias else []),
        ]
    attributes = {"depth": len(axes), "parts": parts, "ranks": ranks, "sizes": sizes, "bias": int(bias)}
    attributes |= {"precision": precision, "activation": random.choice(ACTIVATIONS), "norm": norm, "epsilon": 1e-5}
    return inputs, [np.float32] * parts, attributes


def _embed(random: Random) -> Drawn:
    precision, width = random.choice((*PRECISIONS, SCREENED)), random.choice(SIZES)
    vocabulary = random.choice(SIZES)
    weight = _tensors(random, precision, vocabulary, width)
    if precision == "float32" and random.random() < 0.5:
        weight = [floats(random, vocabulary, width)]
    shape = [random.choice(COUNTS) for _ in range(random.randint(0, 2))]
    attributes = {"precision": precision, "width": width, "factor": 2.0}
    return [numbers(random, vocabulary, *shape), *weight], [np.float32], attributes


def _stored(tensor: Tensor, stored: Stored) -> Tensor:
    """Keys or values as they are stored; in int8 their bytes are as good as any."""
    if stored != "int8":
        return Tensor(tensor.values.astype(stored), tensor.stored)
    scale = np.ones((*tensor.values.shape[:-1], SCALE // 4), np.float32).view(np.int8)
    return Tensor(np.concatenate([scale, tensor.values.astype(np.int8)], -1), tensor.stored)


SCALE = 4
"""The bytes of the scale of quantized rows."""


def _width(shared: int, depth: int, stored: Stored) -> int:
    return shared * (depth + SCALE * (stored == "int8"))


def _heads(random: Random) -> tuple[dict[str, Any], int, int]:
    """The attributes of attention, and the depths of keys and values."""
    shared, repeated = random.choice((1, 1, 2, 3)), random.choice((1, 1, 2, 4))
    attributes = {"scale": 0.3, "shared": shared, "repeated": repeated, "cap": random.choice((0.0, 5.0))}
    return attributes, random.choice(SIZES), random.choice(SIZES)


def _attend(random: Random) -> Drawn:
    attributes, depth, value_depth = _heads(random)
    shared, repeated, stored = attributes["shared"], attributes["repeated"], random.choice(STORED)
    batch, rows, keys = random.choice(COUNTS), random.choice(COUNTS), random.choice(SIZES)
    slots = batch + random.randint(0, 2)
    inputs: list[Operand] = [
        floats(random, batch, rows, shared, repeated, depth),
        _stored(floats(random, slots, keys, shared, depth), stored),
        _stored(floats(random, slots, keys, shared, value_depth), stored),
        perhaps(random, lambda: numbers(random, 2, slots, keys, dtype=np.bool_)),
        perhaps(random, lambda: numbers(random, slots, batch)),
        perhaps(random, lambda: floats(random, shared * repeated, max(1, rows), keys)),
    ]
    return inputs, [np.float32], {**attributes, "rank": 2, "causal": random.randint(0, 1)}


def _attend_cached(random: Random) -> Drawn:
    attributes, depth, value_depth = _heads(random)
    shared, repeated, stored = attributes["shared"], attributes["repeated"], random.choice(STORED)
    batch, beam, capacity = random.choice(COUNTS), random.choice((1, 2, 3, 5)), random.choice(SIZES)
    position, slots = random.randrange(capacity), batch + random.randint(0, 2)
    window = random.choice((0, 0, 1, 3, 40))
    seen = min(window, position + 1) if window else position + 1
    inputs: list[Operand] = [
        floats(random, batch, beam, shared, repeated, depth),
        floats(random, batch, beam, shared, depth),
        floats(random, batch, beam, shared, value_depth),
        Buffer((slots, capacity, beam, _width(shared, depth, stored)), stored),
        Buffer((slots, capacity, beam, _width(shared, value_depth, stored)), stored),
        ids(position),
        perhaps(random, lambda: numbers(random, beam, batch, beam, position)),
        perhaps(random, lambda: ids(random.sample(range(slots), batch))),
        perhaps(random, lambda: floats(random, shared * repeated, 1, seen)),
    ]
    return inputs, [np.float32], {**attributes, "window": window}


def _extend_cached(random: Random) -> Drawn:
    attributes, depth, value_depth = _heads(random)
    shared, repeated, stored = attributes["shared"], attributes["repeated"], random.choice(STORED)
    batch, beam, capacity = random.choice(COUNTS), random.choice((1, 2, 3)), random.choice(SIZES)
    position, slots = random.randrange(capacity), batch + random.randint(0, 2)
    count, window = random.randint(1, capacity - position), random.choice((0, 0, 1, 3, 40))
    seen = (min(window, position) if window else position) + count
    inputs: list[Operand] = [
        floats(random, batch, count, shared, repeated, depth),
        floats(random, batch, count, shared, depth),
        floats(random, batch, count, shared, value_depth),
        Buffer((slots, capacity, beam, _width(shared, depth, stored)), stored),
        Buffer((slots, capacity, beam, _width(shared, value_depth, stored)), stored),
        ids(position),
        perhaps(random, lambda: ids(random.sample(range(slots), batch))),
        # Of an empty query nothing says for how many positions a bias is.
        perhaps(random, lambda: floats(random, shared * repeated, count, seen)) if batch else None,
    ]
    return inputs, [np.float32], {**attributes, "window": window}


def _narrow(random: Random) -> Drawn:
    shape = [random.choice(COUNTS) for _ in range(random.randint(0, 3))]
    return [floats(random, *shape) if random.random() < 0.9 else floats(random, 70_000)], [np.float16], {}


def _quantize_rows(random: Random) -> Drawn:
    shape = [*(random.choice(COUNTS) for _ in range(random.randint(0, 2))), random.choice(SIZES)]
    return [floats(random, *shape) if random.random() < 0.9 else floats(random, 9_000, 9)], [np.int8], {}


def _cache(random: Random) -> Drawn:
    return [numbers(random, 6, random.randint(0, 5))], [np.float32], {"label": "a"}


def _cache_narrow(random: Random) -> Drawn:
    return [numbers(random, 6, random.randint(0, 5))], [np.float16], {"label": "a"}


def _cache_int8(random: Random) -> Drawn:
    return [numbers(random, 6, random.randint(0, 5))], [np.int8], {"label": "a"}


CHOSEN = [np.float32, np.int64, np.int64]


def _hypotheses(random: Random) -> tuple[int, int, int, int]:
    """Sentences, hypotheses, the width, and a vocabulary that is large enough for `_ends`."""
    width = random.choice((1, 1, 2, 3, 5))
    vocabulary = 4 * width + random.choice((0, 1, 2, 30, 31, 32, 33, 1000, 1024, 2050))
    return random.choice((0, 1, 2, 3, 9)), random.choice((1, 1, 2, width)), width, vocabulary


def _ends(random: Random) -> dict[str, Any]:
    """The number of end tokens, if it is given."""
    return random.choice(({}, {}, {"ends": 1}, {"ends": 3}))


def _candidates(random: Random) -> Drawn:
    batch, beam, width, vocabulary = _hypotheses(random)
    given = [floats(random, batch, beam, 1, vocabulary), floats(random, batch, beam), ids([width])]
    return [*given, *_prefix(random, batch, beam, width, vocabulary)], CHOSEN, _ends(random)


def _prefix(random: Random, batch: int, beam: int, width: int, vocabulary: int) -> list[Operand]:
    """What the texts begin with, and the position, or neither; and maybe what else steers them."""
    if random.random() < 0.5:
        return [None, None]
    length = random.choice((0, 1, 3))
    begun: list[Operand] = [numbers(random, vocabulary, batch, length), ids(random.choice((0, 1, length)))]
    return begun + (_steered(random, batch, beam, width, vocabulary) if random.random() < 0.5 else [])


def _steered(random: Random, batch: int, beam: int, width: int, vocabulary: int) -> list[Operand]:
    """Tokens of the hypotheses, edits of their scores, a bias of the prefix, an automaton, and groups of the beam."""
    texts, states = numbers(random, vocabulary, batch, beam, random.choice((1, 2, 4))), random.choice((0, 1, 3))
    one: list[Operand] = [Tensor(np.array([value], np.float32)) for value in (1.0, 0.5, 0.0)]
    edits: list[Operand] = [numbers(random, vocabulary, 1, random.choice((0, 2))), ids([random.choice((0, 2))]), *one]
    following = numbers(random, states + 2, states, vocabulary, dtype=np.int32)
    bias = Tensor(np.array([random.choice((0.0, 0.5))], np.float32))
    automaton = [following, numbers(random, 4, states), numbers(random, states + 1, 1), numbers(random, 9, batch)]
    penalty = Tensor(np.array([0.5], np.float32))
    groups: list[Operand] = [ids([_groups(random, width, beam)]), penalty, numbers(random, vocabulary, 2)]
    return [texts, *edits, None, None, bias, *automaton, *(groups if random.random() < 0.5 else [])]


def _groups(random: Random, *divided: int) -> int:
    """A number of groups that divides these."""
    return random.choice([count for count in (1, 2, 3, 5) if all(one % count == 0 for one in divided)])


def _project_candidates(random: Random) -> Drawn:
    batch, beam, width, vocabulary = _hypotheses(random)
    precision, depth = random.choice(PRECISIONS), random.choice(SIZES)
    weight, scale = _weight(random, precision, vocabulary, depth)
    bias = perhaps(random, lambda: floats(random, vocabulary))
    first = [floats(random, batch, beam, 1, depth), floats(random, batch, beam), ids([width])]
    inputs = [*first, weight, scale, bias, *_prefix(random, batch, beam, width, vocabulary)]
    return inputs, CHOSEN, {"precision": precision, "vocabulary": vocabulary, **_ends(random)}


def _screen_candidates(random: Random) -> Drawn:
    batch, beam, width, vocabulary = _hypotheses(random)
    depth = random.choice(SIZES)
    words, scale, rest = _screened(random, vocabulary, depth)
    inputs: list[Operand] = [
        floats(random, batch, beam, 1, depth),
        floats(random, batch, beam),
        ids([width]),
        rest,
        words,
        scale,
        Tensor(np.array([0.1, 10], np.float32)),
        perhaps(random, lambda: floats(random, vocabulary)),
        *_prefix(random, batch, beam, width, vocabulary),
    ]
    return inputs, CHOSEN, {"vocabulary": vocabulary, **_ends(random)}


def _any_weight(random: Random, vocabulary: int, depth: int) -> tuple[str, list[Operand]]:
    """A precision, and the numbers, scale, rest and bias of a vocabulary."""
    precision = random.choice((*PRECISIONS, "screened"))
    if precision == "screened":
        numbers_, scale, rest = _screened(random, vocabulary, depth)
    else:
        (numbers_, scale), rest = _weight(random, precision, vocabulary, depth), None
    return precision, [numbers_, scale, rest, perhaps(random, lambda: floats(random, vocabulary))]


def _shortlist(random: Random) -> Drawn:
    batch, depth, vocabulary = random.choice(COUNTS), random.choice(SIZES), random.choice((1, 31, 33, 1100))
    precision, weights = _any_weight(random, vocabulary, depth)
    inputs: list[Operand] = [
        numbers(random, 5, batch, random.choice((0, 1, 4))),
        numbers(random, vocabulary, 5, random.choice((0, 1, 40)), dtype=np.int32),
        numbers(random, vocabulary, random.choice((1, 3)), dtype=np.int32),
        perhaps(random, lambda: numbers(random, vocabulary, batch, 2)),
        perhaps(random, lambda: numbers(random, vocabulary, 1, 2, 2)),
        perhaps(random, lambda: ids([random.choice((-1, 0))])),
        *weights,
    ]
    attributes = {"precision": precision, "vocabulary": vocabulary, "depth": depth}
    return inputs, [np.int64, np.int8, np.float32, np.float32], attributes


def _shortlist_candidates(random: Random) -> Drawn:
    batch, beam, width, vocabulary = _hypotheses(random)
    depth, count = random.choice(SIZES), random.choice((1, 2, 31, 33))
    precision, weights = _any_weight(random, vocabulary, depth)
    tokens = [sorted(random.sample(range(vocabulary), min(count, vocabulary))) for _ in range(batch)]
    panels, own = -(-min(count, vocabulary) // 32), "float32" if precision == "screened" else precision
    size = {"int8": 128 * -(-depth // 4), "int4": 512 * -(-depth // 32), "bfloat16": 128 * -(-depth // 2)}
    width_of = size.get(own, 128 * depth if own == "float32" else 64 * depth)
    groups = {"int8": 1, "int4": -(-depth // 32)}.get(own, 0)
    inputs: list[Operand] = [
        floats(random, batch, beam, 1, depth),
        floats(random, batch, beam),
        ids([width]),
        Tensor(np.array(tokens, np.int64).reshape(batch, -1))
        if batch
        else numbers(random, 1, 0, min(count, vocabulary)),
        numbers(random, 100, batch, panels * width_of, dtype=np.int8),
        floats(random, batch, panels * 32 * groups),
        floats(random, batch, 0 if weights[-1] is None else panels * 32),
        *weights,
        *_prefix(random, batch, beam, width, vocabulary),
    ]
    return inputs, CHOSEN, {"precision": precision, "vocabulary": vocabulary, **_ends(random)}


def _advance(random: Random) -> Drawn:
    batch, width, position = random.choice(COUNTS), random.choice((1, 2, 3, 5)), random.choice(COUNTS)
    length, groups, candidates = position + 1, _groups(random, width), random.choice((2, 2, 4)) * width
    inputs: list[Operand | None] = [
        ids([width]),
        ids(3),
        Tensor(np.array(0.6, np.float32)),
        ids(position if batch == 0 or random.random() < 0.5 else [position] * batch),
        numbers(random, 2, batch, dtype=np.bool_),
        numbers(random, 40, batch),
        floats(random, batch, candidates),
        numbers(random, 9, batch, candidates),
        numbers(random, width, batch, candidates),
        numbers(random, 9, batch, width, length),
        numbers(random, width, batch, width, position),
        numbers(random, 9, batch, width, length),
        numbers(random, 9, batch, width),
        floats(random, batch, width),
        numbers(random, width, *((batch,) if groups == 1 else (batch, groups))),
        perhaps(random, lambda: numbers(random, 9, batch)),
        perhaps(random, lambda: Tensor(np.array(random.choice((0.0, 5.0)), np.float32))),
        perhaps(random, lambda: ids(random.randrange(4))),
        perhaps(random, lambda: Tensor(np.array(random.uniform(1, 9), np.float32))),
        *(None, None, perhaps(random, lambda: floats(random, batch, width))),
        perhaps(random, lambda: ids(random.choice(([0], [position + 1], [2**62], [-1], [position] * batch)))),
    ]
    state = [np.bool_, np.int64, np.bool_, np.int64, np.float32, np.int64, np.int64, np.float32, np.int64, np.int64]
    return inputs, state, {}


def _draw_token(random: Random) -> Drawn:
    batch, vocabulary = random.choice(COUNTS), random.choice(SIZES)
    each = (batch,) if random.random() < 0.5 else (1,)
    inputs: list[Operand | None] = [
        floats(random, batch, 1, vocabulary),
        floats(random, batch),
        Tensor(np.full(each, random.choice((0.0, 0.7)), np.float32)),
        Tensor(np.full((*each, 1), random.choice((-np.inf, -0.5)), np.float32)),
        perhaps(random, lambda: floats(random, batch, vocabulary)),
    ]
    return inputs, [np.int64, np.float32], {}


def _normalize(random: Random) -> Drawn:
    rows = [random.choice(COUNTS) for _ in range(random.randint(0, 2))]
    axes = [random.choice(SIZES) for _ in range(random.randint(1, 2))]
    norm = random.choice(("layer", "rms"))
    offset = perhaps(random, lambda: floats(random, *axes)) if norm == "layer" else None
    attributes = {"norm": norm, "axes": len(axes), "epsilon": 1e-5}
    return [floats(random, *rows, *axes), floats(random, *axes), offset], [np.float32], attributes


def _rotate(random: Random) -> Drawn:
    rows, half = [random.choice(COUNTS) for _ in range(random.randint(0, 3))], random.choice(SIZES)
    angles = [size if random.random() < 0.5 else 1 for size in rows][random.randint(0, len(rows)) :]
    width = 2 * half + random.choice((0, 0, 1, 5))
    inputs: list[Operand] = [floats(random, *rows, width), *(floats(random, *angles, half) for _ in range(2))]
    return inputs, [np.float32], {"halves": random.randint(0, 1)}


def _pairwise(random: Random) -> Drawn:
    shape = [random.choice(COUNTS) for _ in range(random.randint(0, 3))]
    return [floats(random, *shape), floats(random, *shape[random.randint(0, len(shape)) :])], [np.float32], {}


def _projects(random: Random) -> Drawn:
    """A Project, perhaps with a Narrow of its first result, which nothing takes, and once more the same Project."""
    inputs, outputs, own = _project(random)
    given: list[Operand] = [one for one in inputs if one is not None]
    places = {id(one): place for place, one in enumerate(given)}
    taken = [-1 if one is None else places[id(one)] for one in inputs]
    kinds, lists = ["Project"], [taken]
    results = [len(given) + i for i in range(len(outputs))]
    attributes = {f"node0_{name}": value for name, value in own.items()}
    if random.random() < 0.5:
        kinds.append("Narrow")
        lists.append(results[:1])
    if random.random() < 0.5:
        attributes |= {f"node{len(kinds)}_{name}": value for name, value in own.items()}
        results = [results[-1] + len(kinds) + i for i in range(len(outputs))]
        kinds.append("Project")
        lists.append(taken)
    attributes |= {"given": len(given), "kinds": " ".join(kinds), "results": results}
    attributes["operands"] = [place for one in lists for place in one]
    attributes["operand_counts"] = [len(one) for one in lists]
    attributes["output_counts"] = [1 if kind == "Narrow" else len(outputs) for kind in kinds]
    return given, outputs, attributes


def _sequence(random: Random) -> Drawn:
    """Several kernels, or a node of ONNX's own."""
    if random.random() < 0.3:
        return _projects(random)
    kind = random.choice(list(NODES))
    node, feeds = drawn(kind, np.random.default_rng(random.getrandbits(32)))
    types = list(result_types(node, feeds).values())
    own = {f"node0_{one.name}": helper.get_attribute_value(one) for one in node.attribute}
    return (
        [Tensor(value) for value in feeds.values()],
        types,
        own | alone(f"onnx.{kind}", range(len(feeds)), len(types)),
    )


def _while(random: Random) -> Drawn:
    """An Advance, whose candidates are those of every turn."""
    inputs, outputs, _ = _advance(random)
    given: list[Operand] = [one for one in inputs if one is not None]
    places = {id(one): place for place, one in enumerate(given)}
    taken = [-1 if one is None else places[id(one)] for one in inputs]
    position, done, tokens, ancestors, pool = 3, 4, 9, 10, (11, 12, 13, 14)
    carried = [-1 if one < 0 else taken[one] for one in (position, done, tokens, -1, *pool, ancestors)]
    return given, outputs, {**alone("Advance", taken, len(outputs)), "carried": carried}


def _row_at(random: Random) -> Drawn:
    rows, width = random.choice(COUNTS) + 1, random.choice(SIZES)
    return [floats(random, rows, width), ids(random.randrange(rows))], [np.float32], {}


def _last(random: Random) -> Drawn:
    return [numbers(random, 9, random.choice(COUNTS), random.choice(COUNTS), random.choice(COUNTS) + 1)], [np.int64], {}


OPERATORS: Mapping[str, Callable[[Random], Drawn]] = {
    "Sequence": _sequence,
    "While": _while,
    "RowAt": _row_at,
    "Last": _last,
    "Normalize": _normalize,
    "Rotate": _rotate,
    "Add": _pairwise,
    "Multiply": _pairwise,
    "Project": _project,
    "Embed": _embed,
    "Attend": _attend,
    "AttendCached": _attend_cached,
    "ExtendCached": _extend_cached,
    "Narrow": _narrow,
    "Cache": _cache,
    "CacheNarrow": _cache_narrow,
    "CacheInt8": _cache_int8,
    "QuantizeRows": _quantize_rows,
    "Candidates": _candidates,
    "ProjectCandidates": _project_candidates,
    "ScreenCandidates": _screen_candidates,
    "Shortlist": _shortlist,
    "ShortlistCandidates": _shortlist_candidates,
    "DrawToken": _draw_token,
    "Advance": _advance,
}
"""How a valid call of each operator is drawn."""
