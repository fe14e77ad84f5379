"""Mutations of a case: one wrong thing at a time, in the attributes, the shapes, the values or the wiring."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.cases import MAKERS, Array, Buffer, Case, Operand, Tensor
from tests.fuzz.valid import ACTIVATIONS, NORMS, PRECISIONS

INTEGERS = (-(2**63), -(2**32), -1, 0, 1, 2, 31, 33, 1025, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1)
FLOATS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 3e38, 1e-45)
TYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool", "str")
AXES = (0, 0, 1, 2, 3, 32, 33, 2**20, 2**31, 2**40, 2**50)
MOST_ELEMENTS = 1 << 20
"""Of an array that the fuzzer makes; larger shapes are kept only for arrays without elements."""


def mutate(random: Random, case: Case) -> Case:
    """Return the case with one to three mutations, or now and then as it is."""
    for _ in range(random.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))):
        case = random.choice(_MUTATIONS)(random, case)
    return case


def _attribute(random: Random, case: Case) -> Case:
    if not case.attributes:
        return case
    name = random.choice(list(case.attributes))
    attributes = dict(case.attributes)
    if random.random() < 0.1:
        del attributes[name]
    elif random.random() < 0.1:
        attributes[name] = random.choice((1, 2.5, "float32", [1, 2]))
    else:
        attributes[name] = _other(random, attributes[name])
    return replace(case, attributes=attributes)


def _other(random: Random, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, str):
        return random.choice((*PRECISIONS, *ACTIVATIONS, *NORMS, "", "int16", "x" * 1000))
    if isinstance(value, float):
        return float(random.choice(FLOATS))
    if isinstance(value, list):
        return _other_list(random, value)  # pyright: ignore[reportUnknownArgumentType] (of an attribute: integers)
    near: Sequence[int] = (value - 1, value + 1, 2 * value, -value)
    return int(random.choice(INTEGERS if random.random() < 0.6 else near))


def _other_list(random: Random, value: Sequence[int]) -> list[int]:
    values = list(value)
    way = random.randrange(3)
    if way == 0 and values:
        values.pop(random.randrange(len(values)))
    elif way == 1 and values:
        place = random.randrange(len(values))
        values[place] = _other(random, values[place])
    else:
        values.insert(random.randint(0, len(values)), random.choice(INTEGERS))
    return values


def _operand(change: Callable[[Random, Tensor], Operand]) -> Callable[[Random, Case], Case]:
    """A mutation of one input that is an array."""

    def mutation(random: Random, case: Case) -> Case:
        places = [i for i, operand in enumerate(case.inputs) if isinstance(operand, Tensor)]
        if not places:
            return case
        inputs = list(case.inputs)
        place = random.choice(places)
        operand = inputs[place]
        assert isinstance(operand, Tensor)
        inputs[place] = change(random, operand)
        return replace(case, inputs=inputs)

    return mutation


def _type(random: Random, tensor: Tensor) -> Operand:
    """Another element type; what has become text stays text, as it need not be a number."""
    if tensor.values.dtype.kind == "U":
        return tensor
    with np.errstate(all="ignore"):
        return replace(tensor, values=tensor.values.astype(random.choice(TYPES)))


def _axis(random: Random, tensor: Tensor) -> Operand:
    """One axis is longer, shorter, empty or huge."""
    shape = list(tensor.values.shape)
    if not shape:
        return _rank(random, tensor)
    place = random.randrange(len(shape))
    near = (shape[place] - 1, shape[place] + 1, 2 * shape[place])
    shape[place] = max(0, random.choice(near if random.random() < 0.6 else AXES))
    if random.random() < 0.2:
        shape[random.randrange(len(shape))] = random.choice(AXES)
    return replace(tensor, values=_resized(tensor.values, shape))


def _rank(random: Random, tensor: Tensor) -> Operand:
    """An axis of 1 more, an axis less, two axes exchanged, all axes as one, or one number."""
    values = tensor.values
    shape = list(values.shape)
    way = random.randrange(6)
    if way == 0:
        shape.insert(random.randint(0, len(shape)), random.choice((1, 1, 0, 2)))
    elif way == 1 and shape:
        shape.pop(random.randrange(len(shape)))
    elif way == 2 and len(shape) > 1:
        first, second = random.sample(range(len(shape)), 2)
        shape[first], shape[second] = shape[second], shape[first]
    elif way == 3:
        shape = [values.size]
    elif way == 4 and len(shape) > 1:
        shape = [shape[0] * shape[1], *shape[2:]]
    else:
        shape = []
    return replace(tensor, values=_resized(values, shape))


def _resized(values: Array, shape: Sequence[int]) -> Array:
    """The values in another shape, some of them or again and again."""
    shape = tuple(shape)
    if 0 not in shape and np.prod(shape, dtype=np.float64) > MOST_ELEMENTS:
        shape = tuple(min(size, 40) for size in shape)[:4]
    try:
        return np.resize(values, shape) if values.size and 0 not in shape else np.zeros(shape, values.dtype)
    except (ValueError, MemoryError):
        return np.zeros([0, *[size for size in shape if size < 2**31][:2]], values.dtype)


def _value(random: Random, tensor: Tensor) -> Operand:
    """One number, or all, is wrong."""
    values = tensor.values.copy()
    if values.dtype.kind not in "fiu" or not values.size:
        return tensor
    with np.errstate(all="ignore"):
        choice = np.array(random.choice(FLOATS if values.dtype.kind == "f" else INTEGERS)).astype(values.dtype)
    if random.random() < 0.2:
        values[...] = choice
    else:
        values.reshape(-1)[random.randrange(values.size)] = choice
    return replace(tensor, values=values)


def _near(random: Random, tensor: Tensor) -> Operand:
    """One integer is one more or less, as positions, sizes and ids that are just out of range."""
    values = tensor.values.copy()
    if values.dtype != np.int64 or not values.size:
        return _value(random, tensor)
    with np.errstate(all="ignore"):
        values.reshape(-1)[random.randrange(values.size)] += random.choice((-1, 1, 2, 40))
    return replace(tensor, values=values)


def _stored(random: Random, tensor: Tensor) -> Operand:
    return replace(tensor, stored=not tensor.stored)


def _batch(random: Random, case: Case) -> Case:
    """The first axis of every array that has the same one: another number of sentences, or none."""
    sizes = [x.values.shape[0] for x in case.inputs if isinstance(x, Tensor) and x.values.ndim]
    if not sizes:
        return case
    old, new = random.choice(sizes), random.choice((0, 0, 1, 2, 40))
    inputs: list[Operand] = []
    for operand in case.inputs:
        if isinstance(operand, Tensor) and operand.values.ndim and operand.values.shape[0] == old:
            values = _resized(operand.values, [new, *operand.values.shape[1:]])
            inputs.append(replace(operand, values=values))
        else:
            inputs.append(operand)
    return replace(case, inputs=inputs)


def _buffer(random: Random, case: Case) -> Case:
    """A buffer of other sizes, of the other type, or an array in its place."""
    places = [i for i, operand in enumerate(case.inputs) if isinstance(operand, Buffer)]
    if not places:
        return _batch(random, case)
    inputs = list(case.inputs)
    place = random.choice(places)
    buffer = inputs[place]
    assert isinstance(buffer, Buffer)
    shape, way = list(buffer.shape), random.randrange(6)
    if way == 0:
        inputs[place] = replace(buffer, stored=random.choice([kind for kind in MAKERS if kind != buffer.stored]))
    elif way == 1 and np.prod(shape, dtype=np.float64) < MOST_ELEMENTS:
        inputs[place] = Tensor(np.zeros(shape, buffer.stored))
    elif way == 2 and shape:
        shape.pop(random.randrange(len(shape)))
        inputs[place] = replace(buffer, shape=tuple(shape))
    elif shape:
        axis = random.randrange(len(shape))
        shape[axis] = _other(random, shape[axis]) if random.random() < 0.5 else shape[axis] + random.choice((-1, 1))
        inputs[place] = replace(buffer, shape=tuple(shape))
        if random.random() < 0.7:  # both caches
            for i in places:
                other = inputs[i]
                if isinstance(other, Buffer) and len(other.shape) > axis:
                    inputs[i] = replace(other, shape=(*other.shape[:axis], shape[axis], *other.shape[axis + 1 :]))
    return replace(case, inputs=inputs)


def _wiring(random: Random, case: Case) -> Case:
    """An input is left out, given twice, exchanged with another, or added."""
    inputs = list(case.inputs)
    if not inputs:
        return case
    place, other, way = random.randrange(len(inputs)), random.randrange(len(inputs)), random.randrange(6)
    if way == 0:
        inputs[place] = None
    elif way == 1:
        inputs.pop(place)
    elif way == 2:
        inputs[place], inputs[other] = inputs[other], inputs[place]
    elif way == 3:
        inputs[place] = inputs[other]
    elif way == 4:
        inputs.append(random.choice((None, inputs[other])))
    else:
        inputs = inputs[:place]
    return replace(case, inputs=inputs)


def _outputs(random: Random, case: Case) -> Case:
    """An output is left out, or there are more or fewer."""
    outputs, way = list(case.outputs), random.randrange(3)
    if way == 0 and outputs:
        outputs[random.randrange(len(outputs))] = None
    elif way == 1:
        outputs = outputs[: random.randrange(len(outputs) + 1)]
    else:
        outputs.append(np.float32)
    return replace(case, outputs=outputs)


_MUTATIONS: Sequence[Callable[[Random, Case], Case]] = [
    _attribute,
    _attribute,
    _batch,
    _batch,
    _buffer,
    _wiring,
    _outputs,
    *[_operand(change) for change in (_type, _axis, _axis, _axis, _rank, _value, _value, _near, _near, _stored)],
]
