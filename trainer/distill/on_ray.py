"""Runs a function on a stream of items on a Ray cluster; the results come back in the order of the items."""

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from xformc.errors import UserError
from xformc.trainer.data.in_order import AHEAD

RESTARTS = 3
"""How often an actor may die; Ray starts it again, on another machine if its own is gone, and it repeats its items."""

Job = TypeVar("Job")
Item = TypeVar("Item")
Result = TypeVar("Result")


def on_ray(
    items: Iterable[Item], make: Callable[[Job], Callable[[Item], Result]], job: Job, workers: int, *, gpu: bool = False
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the result of `make(job)`, as `in_order` does, by actors of a Ray cluster.

    workers: the number of actors, each on a core or with `gpu` on a GPU; 0: as many as the cluster has. The cluster is
    that of RAY_ADDRESS, or one on this machine. What the job names, such as a folder, must be on all machines.

    Raises: ModuleNotFoundError without ray; UserError for more workers than the cluster has, and if an actor dies too
    often; and what `make(job)` and its result raise.
    """
    with _connected() as ray:
        kind = "GPU" if gpu else "CPU"
        most = int(ray.cluster_resources().get(kind, 0))
        if not 0 < (workers or most) <= most:
            hint = "give fewer --workers, or start more machines with ray start --address"
            raise UserError(f"the Ray cluster has {most} {kind}s for {max(workers, 1)} workers", hint=hint)
        resources = {"num_cpus": 1, "num_gpus": int(gpu)}
        remote = ray.remote(max_restarts=RESTARTS, max_task_retries=RESTARTS, **resources)(_Actor)
        actors = [remote.remote(make, job) for _ in range(workers or most)]
        try:
            yield from _in_order(ray, items, actors)
        finally:
            for actor in actors:
                ray.kill(actor)


def find_ray() -> Any:
    """The module ray. Raises: ModuleNotFoundError if it is not installed."""
    return import_module("ray")


class _Actor:
    """A function on a machine of the cluster."""

    def __init__(self, make: Callable[[Any], Callable[[Any], Any]], job: Any) -> None:
        self._function = make(job)

    def run(self, item: Any) -> Any:
        return self._function(item)


def _in_order(ray: Any, items: Iterable[Item], actors: list[Any]) -> Iterator[tuple[Item, Any]]:
    waiting = deque[tuple[Item, Any, int]]()
    for item in items:
        number = _idlest(ray, waiting, len(actors))
        waiting.append((item, actors[number].run.remote(item), number))
        if len(waiting) >= AHEAD * len(actors):
            yield _first_of(ray, waiting)
    while waiting:
        yield _first_of(ray, waiting)


def _idlest(ray: Any, waiting: Iterable[tuple[Any, Any, int]], count: int) -> int:
    """The number of the actor with the fewest items that are not done."""
    references = {reference: number for _, reference, number in waiting}
    load = Counter[int]()
    if references:
        _, open_ = ray.wait(list(references), num_returns=len(references), timeout=0)
        load.update(references[reference] for reference in open_)
    return min(range(count), key=lambda number: load[number])


def _first_of(ray: Any, waiting: deque[tuple[Item, Any, int]]) -> tuple[Item, Any]:
    """Wait for the first item. Raises: UserError if its actor has died too often, and what its function raised."""
    item, reference, _ = waiting.popleft()
    try:
        return item, ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, UserError) else error from None
    except ray.exceptions.RayActorError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, UserError):
            raise cause from None
        hint = "continue with --resume; ray logs has the output of the workers"
        raise UserError(f"a worker on Ray has ended {RESTARTS + 1} times", hint=hint) from error


@contextmanager
def _connected() -> Generator[Any]:
    """The module ray, connected to a cluster. Raises: UserError if there is none at RAY_ADDRESS; as `find_ray`."""
    ray = find_ray()
    own = not ray.is_initialized()
    try:
        if own:
            alone = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
            ray.init(logging_level="ERROR", log_to_driver=False, **alone)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"no Ray cluster: {error}", hint="start one with ray start, or unset RAY_ADDRESS") from error
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()
