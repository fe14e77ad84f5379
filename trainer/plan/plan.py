"""The plan of a training run on GPUs: memory of each rank, communication, speed, time and cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.compiler.backends.torch.chunked_loss import chunk_rows
from xformc.compiler.graph.graph import Graph
from xformc.compiler.ops.roundable import linear_axes
from xformc.compiler.pipeline import compile_training
from xformc.compiler.spec import Spec
from xformc.compiler.spec.ensemble import require_one
from xformc.compiler.spec.sections import Lion
from xformc.errors import UserError
from xformc.trainer.opening import check_sharded
from xformc.trainer.plan.cards import Card
from xformc.trainer.plan.memory import step_memory
from xformc.trainer.recompute import check_recompute

FLOAT32, BFLOAT16 = 4, 2
USABLE = 0.95
"""The share of a card's memory that a process can have; the rest is the driver's and the allocator's."""

FORWARD_AND_BACKWARD = 3
"""The matrix products of a step in forward passes: each has a gradient for each of its two operands."""


@dataclass(frozen=True)
class Machine:
    """The GPUs that are planned for. mfu: the share of the card's peak that the model's matrix products reach.

    shard: each holds a part of every parameter. price: of a GPU for an hour, in any currency; None: costs are left out.
    """

    gpus: int
    name: str
    card: Card
    mfu: float = 0.4
    shard: bool = False
    price: float | None = None


@dataclass(frozen=True)
class Rank:
    """Bytes of a rank. reduction: the buffers that gradients are added up in. kept, recomputed: the activations that a
    batch keeps, and those that it keeps if every layer is recomputed. logits: of the chunk of tokens that has them.

    peak: everything at once, at the worst moment; recomputed_peak: if every layer is recomputed."""

    weights: int
    gradients: int
    states: int
    reduction: int
    kept: int
    recomputed: int
    logits: int
    peak: int
    recomputed_peak: int


@dataclass(frozen=True)
class Plan:
    """A training run on a machine.

    rows, length, batches: of the batches that a rank computes in a step. units: of all ranks, with padding. flops: of
    the matrix products of a step. communicated: bytes that a rank sends in a step. seconds: of a step; the longer one
    of arithmetic and communication, which overlap. hours, cost: of all steps.
    """

    name: str
    machine: Machine
    precision: str
    rows: int
    length: int
    batches: int
    units: int
    rank: Rank
    flops: float
    communicated: float
    compute_seconds: float
    link_seconds: float
    seconds: float
    steps: int
    hours: float
    cost: float | None

    @property
    def fits(self) -> bool:
        """Whether a rank's memory is enough."""
        return self.rank.peak <= USABLE * self.machine.card.memory * 1e9


@dataclass(frozen=True)
class Work:
    """What the spec's report counts. products: operations in matrix products of a forward pass, for each unit. units:
    of a step, on all ranks. examples: of a batch. length: positions of each input."""

    products: float
    units: int
    examples: int
    length: int


def plan(spec: Spec, machine: Machine, work: Work) -> Plan:
    """Plan the training of a spec.

    Raises: UserError if the rows of a batch are fewer than the GPUs that share them, for what training refuses with
    shards, and for a pattern of `train.recompute` that fits no block.
    """
    require_one(spec)
    section, gpus = spec.train, machine.gpus
    check_sharded(spec, shard=machine.shard)
    rows, batches = _share(work.examples, section.accumulate, gpus)
    bfloat16 = section.precision != "float32" and machine.card.bfloat16 is not None
    graph = compile_training(spec).graph
    check_recompute(graph, section.recompute)
    rank = _rank(spec, graph, machine, rows * section.copies, work.length, batches, bfloat16=bfloat16)
    flops = FORWARD_AND_BACKWARD * work.products * work.units * section.copies
    speed = machine.card.bfloat16 if bfloat16 else machine.card.float32
    assert speed is not None
    compute = flops / (gpus * speed * 1e12 * machine.mfu)
    every = sum(parameter.count for parameter in graph.parameters)
    sent = _communicated(every, _trained(graph), gpus, batches, shard=machine.shard)
    if machine.shard and section.optimizer.muon is not None:
        sent += _of_muon(graph, gpus)
    link = sent / (machine.card.link * 1e9)
    seconds = max(compute, link)
    hours = seconds * section.steps / 3600
    cost = None if machine.price is None else hours * gpus * machine.price
    precision = "bfloat16" if bfloat16 else "float32"
    return Plan(
        name=spec.name,
        machine=machine,
        precision=precision,
        rows=rows,
        length=work.length,
        batches=batches,
        units=work.units,
        rank=rank,
        flops=flops,
        communicated=sent,
        compute_seconds=compute,
        link_seconds=link,
        seconds=seconds,
        steps=section.steps,
        hours=hours,
        cost=cost,
    )


def _share(rows: int, accumulate: int, gpus: int) -> tuple[int, int]:
    """The rows and the number of the batches of a rank (see `Processes.share`)."""
    if accumulate % gpus == 0:
        return rows, accumulate // gpus
    if rows < gpus:
        hint = f"set train.accumulate to a multiple of {gpus}, or raise train.batch_tokens"
        raise UserError(f"{gpus} GPUs cannot share a batch of {rows} rows", hint=hint)
    return -(-rows // gpus), accumulate


def _rank(spec: Spec, graph: Graph, machine: Machine, rows: int, length: int, batches: int, *, bfloat16: bool) -> Rank:
    sizes = {parameter.name: parameter.count for parameter in graph.parameters}
    gpus = machine.gpus if machine.shard else 1
    weights = FLOAT32 * sum(sizes.values())
    trained = _trained(graph)
    gradients, states = FLOAT32 * trained, FLOAT32 * _state_numbers(spec, graph)
    layers = [f"{stage}/*" for stage in _repeated(sizes)]
    own, every = (
        step_memory(graph, rows, length, batches=batches, bfloat16=bfloat16, patterns=patterns)
        for patterns in (spec.train.recompute, layers)
    )
    reduction = 0 if machine.gpus == 1 else _gathered(sizes) if machine.shard else gradients
    held = (weights + states) // gpus + reduction
    # With shards the whole gradients are not held at once, unless they are added up over several batches.
    spared = gradients - gradients // gpus if batches == 1 else 0
    vocabulary = max((item.vocabulary for item in spec.inputs.values() if item.kind == "tokens"), default=0)
    number = BFLOAT16 if bfloat16 else FLOAT32
    chunk = chunk_rows("cuda", vocabulary, number, copies=spec.train.copies)
    logits = min(chunk, rows * length) * vocabulary * number
    return Rank(
        weights // gpus,
        gradients // gpus if batches == 1 else gradients,
        states // gpus,
        reduction,
        own.kept,
        every.kept,
        logits,
        held + max(own.peak - spared, own.kept),
        held + max(every.peak - spared, every.kept),
    )


def _repeated(sizes: Mapping[str, int]) -> list[str]:
    """The blocks that have numbered layers."""
    parts = [name.split("/") for name in sizes]
    found = {"/".join(part[:index]) for part in parts for index, word in enumerate(part) if index and word.isdigit()}
    return sorted(path for path in found if not any(word.isdigit() for word in path.split("/")))


def _gathered(sizes: Mapping[str, int]) -> int:
    """Bytes of two layers' whole weights and of one's gradients, as FSDP gathers the next layer ahead; and of what is
    in no layer, such as the embedding."""
    layers: dict[str, int] = {}
    for name, size in sizes.items():
        words = name.split("/")
        number = next((index for index, word in enumerate(words) if word.isdigit()), None)
        key = "" if number is None else "/".join(words[: number + 1])
        layers[key] = layers.get(key, 0) + size
    rest = layers.pop("", 0)
    return FLOAT32 * (2 * rest + 3 * max(layers.values(), default=0))


def _trained(graph: Graph) -> int:
    return sum(parameter.count for parameter in graph.parameters if parameter.trained)


def _state_numbers(spec: Spec, graph: Graph) -> int:
    """The numbers of the optimizer's states: Adam has two for each number that is learned, Lion one, Muon one for those
    of matrices; the factors of `low_rank` are states, too, and a moving average is one more for each parameter."""
    optimizer = spec.train.optimizer
    matrices = linear_axes(graph) if optimizer.muon is not None else {}
    each = 1 if isinstance(optimizer.chosen, Lion) else 2
    learned, adapted = spec.learned_numbers(), spec.low_rank_weights()
    counts = [(1 if name in matrices else each + (name in adapted)) * count for name, count in learned.items()]
    return sum(counts) + (spec.train.ema is not None) * _trained(graph)


def _communicated(every: int, trained: int, gpus: int, batches: int, *, shard: bool) -> float:
    """Bytes that a rank sends in a step, in rings: an all-reduce is (n - 1)/n of the gradients twice; with shards each
    batch gathers the weights twice, and gradients are scattered once. The parameters are all, and the trained ones."""
    return (gpus - 1) / gpus * FLOAT32 * (2 * batches * every + trained if shard else 2 * trained)


def _of_muon(graph: Graph, gpus: int) -> float:
    """Bytes that a rank sends in a step, as Muon needs whole matrices: their weights, gradients and momenta."""
    matrices = linear_axes(graph)
    count = sum(one.count for one in graph.parameters if one.trained and one.name in matrices)
    return (gpus - 1) / gpus * FLOAT32 * 3 * count
