"""Where the metrics of a run go beside metrics.jsonl, the record: TensorBoard, Weights & Biases, MLflow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from xformc.errors import UserError
from xformc.files import atomic_write

ID = "log_id"
"""The file of a run with the name that it has in its sinks."""

Numbers = Mapping[str, float]
Outcome = Literal["finished", "failed", "killed"]
"""How a training ended: as it should, by an error, or by a signal."""


@dataclass(frozen=True)
class Sink:
    """An open sink. log: takes a step and its numbers by name. close: writes what is left, and how training ended."""

    name: str
    log: Callable[[int, Numbers], None]
    close: Callable[[Outcome], None]


@dataclass(frozen=True)
class Place:
    """What a sink is told about a run. run: its folder. project: the spec's name. first: the step that it goes on with;
    what a killed run has logged after it is to be dropped. settings: what is shown beside the metrics. before: the
    numbers of earlier steps, which a killed run may not have sent."""

    run: Path
    project: str
    first: int
    settings: Mapping[str, object]
    before: Sequence[tuple[int, Numbers]] = ()

    @property
    def id(self) -> str:
        """A name for this run, drawn when it is first asked for, which stays the same when it is resumed."""
        path = self.run / ID
        if not path.exists():
            with atomic_write(path) as part:
                part.write_text(f"{uuid4().hex[:16]}\n", encoding="utf-8")
        return path.read_text(encoding="utf-8").strip()


def check_sinks(names: Sequence[str]) -> None:
    """Raises: UserError for a sink that does not exist, or whose package is not installed."""
    for name in names:
        if name not in SINKS:
            raise UserError(f"--log {name}: unknown", hint=f"known are {', '.join(SINKS)}")
        package, install, _ = SINKS[name]
        if find_spec(package) is None:
            raise UserError(f"--log {name} needs the package {install}", hint=f"pip install {install}")


def open_sinks(names: Sequence[str], place: Place) -> list[Sink]:
    """Open the sinks of a run. Raises: as `check_sinks`, and UserError for one that does not start."""
    check_sinks(names)
    return [_opened(name, place) for name in names]


def _opened(name: str, place: Place) -> Sink:
    try:
        return SINKS[name][2](place)
    except Exception as error:
        hint = "mend it, or leave it out, and continue with --resume"
        raise UserError(f"--log {name} could not start: {error}", hint=hint) from error


def _tensorboard(place: Place) -> Sink:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (optional)

    made: Any = SummaryWriter
    writer = made(str(place.run / "tensorboard"), purge_step=place.first)

    def log(step: int, numbers: Numbers) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return Sink("tensorboard", log, lambda outcome: writer.close())


def _wandb(place: Place) -> Sink:
    import wandb  # noqa: PLC0415  # pyright: ignore[reportMissingImports] (optional)

    known: Any = wandb
    settings = dict(place.settings)
    run = known.init(
        project=place.project, id=place.id, name=place.run.name, dir=str(place.run), resume="allow", config=settings
    )
    sent = run.step if run.resumed else 0  # the step after the last one that the server has
    for step, numbers in place.before:
        if step >= sent:
            run.log(dict(numbers), step=step)
    codes = {"finished": 0, "failed": 1, "killed": 130}
    return Sink(
        "wandb",
        lambda step, numbers: run.log(dict(numbers), step=step),
        lambda outcome: run.finish(exit_code=codes[outcome]),
    )


def _mlflow(place: Place) -> Sink:
    known: Any = import_module("mlflow.tracking")
    client = known.MlflowClient()
    tag = "xformc.run"
    found = client.get_experiment_by_name(place.project)
    experiment = client.create_experiment(place.project) if found is None else found.experiment_id
    before = client.search_runs([experiment], f"tags.`{tag}` = '{place.id}'")
    if before:
        run = before[0].info.run_id
        client.update_run(run, "RUNNING")
    else:
        run = client.create_run(experiment, tags={tag: place.id}, run_name=place.run.name).info.run_id
        for name, value in place.settings.items():
            client.log_param(run, name, value)

    logged = dict[str, int]()  # the last step of each metric before this start

    def log(step: int, numbers: Numbers) -> None:
        for name, value in numbers.items():
            if name not in logged:
                history: Sequence[Any] = client.get_metric_history(run, name) if before else ()
                logged[name] = max((one.step for one in history), default=-1)
            if step > logged[name]:  # a killed run has logged more than its checkpoint, which MLflow keeps
                client.log_metric(run, name, value, step=step)

    for step, numbers in place.before:
        log(step, numbers)
    return Sink("mlflow", log, lambda outcome: client.set_terminated(run, outcome.upper()))


SINKS: Mapping[str, tuple[str, str, Callable[[Place], Sink]]] = {
    "tensorboard": ("tensorboard", "tensorboard", _tensorboard),
    "wandb": ("wandb", "wandb", _wandb),
    "mlflow": ("mlflow", "mlflow-skinny", _mlflow),
}
"""The sinks by name: the module that one needs, the package that brings it, and how it is opened."""
