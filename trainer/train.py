"""Training: from a spec and a folder of data to averaged weights and their scores."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import DERIVED, SHARED, begin, run_passes
from xformc.compiler.program import Program
from xformc.compiler.spec import Spec
from xformc.compiler.spec.ensemble import require_one
from xformc.compiler.spec.sections import SCORED
from xformc.files import atomic_write
from xformc.format.names import WEIGHTS
from xformc.terminal import is_quiet, progress_console
from xformc.trainer.average import average_checkpoints
from xformc.trainer.cast_layers import cast_layers
from xformc.trainer.checkpoint import (
    State,
    chosen_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    recipe_checkpoints,
)
from xformc.trainer.checkpoint_writer import CheckpointWriter
from xformc.trainer.compiled_layers import compile_layers
from xformc.trainer.data.data_schema import DataSchema, data_schema
from xformc.trainer.data.dataset import Corpus, EncodedCorpus, describe_corpus, find_corpus, read_corpus
from xformc.trainer.data.splits import CorpusFiles
from xformc.trainer.hardware import choose_device
from xformc.trainer.interrupt import interruptible
from xformc.trainer.loop import Recipe, Update, ended, fit, validation_losses
from xformc.trainer.low_rank import low_rank_optimizer
from xformc.trainer.moving_average import averaged, exchange
from xformc.trainer.opening import Options, check_options, check_special, identify, open_run
from xformc.trainer.operations import operations_of, peak_of
from xformc.trainer.optimizers import make_optimizer
from xformc.trainer.parallel import check_shares, parallel, reshard
from xformc.trainer.processes import ALONE, Processes, joined
from xformc.trainer.progress import Report, check_finite, lines_until
from xformc.trainer.recompute import check_recompute, recompute
from xformc.trainer.run import METRICS, SCORES, Identity, check_free, is_run, locked
from xformc.trainer.schedule import schedule_of
from xformc.trainer.scores.checkpoint_scores import CheckpointScorer
from xformc.trainer.selection import judged, measured, scoring, take_score
from xformc.trainer.sinks import Place, Sink, check_sinks, open_sinks
from xformc.trainer.start import start_from

if TYPE_CHECKING:
    from xformc.trainer.scores.metrics import Measure

AGAIN = "this run has no checkpoint, so training begins again, with new metrics"


@dataclass(frozen=True)
class TrainResult:
    """The result of a training run.

    run: its folder. weights: the file of averaged weights in it. state: where training ended.
    scores: the measures on the validation data, by key.
    """

    run: Path
    weights: Path
    state: State
    scores: "Mapping[str, Measure]"


@dataclass(frozen=True)
class Trained:
    """Where training ended, the program of the engine that scores its weights, and the data."""

    state: State
    engine: Program
    schema: DataSchema
    corpus: Corpus
    encoded: EncodedCorpus


def train(  # noqa: PLR0913 (they are those of Options)
    spec: Spec,
    data: Path | CorpusFiles,
    out: Path,
    *,
    languages: str | None = None,
    resume: bool = False,
    compile: bool = False,
    minutes: float | None = None,
    seed: int | None = None,
    start: Path | None = None,
    shard: bool = False,
    log: Sequence[str] = (),
    tokenizer: Path | None = None,
) -> TrainResult:
    """Train `spec` on `data` into the run folder `out`, and score it. The options are those of `Options`.

    If torch's launcher has started several processes, they train together, and the first one computes the scores.

    Raises: UserError for anything wrong with the data or the run, or if training diverges.
    """
    _check_packages()
    with joined() as processes:
        options = Options(languages, resume, compile, minutes, seed, start, shard, tuple(log), tokenizer)
        trained = train_weights(spec, data, out, options, processes=processes)
    if not processes.first:
        return TrainResult(out, out / WEIGHTS, trained.state, {})
    from xformc.trainer.scores.metrics import name_width  # noqa: PLC0415
    from xformc.trainer.scores.run_scores import score_weights  # noqa: PLC0415 (a training begins sooner without it)

    console = progress_console()
    with console.status("build the engine") as status:
        measures = score_weights(
            trained.engine, trained.schema, out, trained.corpus.valid, trained.corpus.labels, status.update
        )
    _write_scores(out / SCORES, measures)
    width = name_width(measures)
    for measure in measures:
        console.print(f"validation {measure.line(width)}", highlight=False, soft_wrap=True)
    return TrainResult(out, out / WEIGHTS, trained.state, {measure.key: measure for measure in measures})


def _check_packages() -> None:
    """Raises: ModuleNotFoundError for a package that only the end of training needs."""
    for name in ("onnx", "sacrebleu"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def _write_scores(path: Path, measures: "Sequence[Measure]") -> None:
    values = {measure.key: measure.value for measure in measures if measure.value is not None}
    with atomic_write(path) as part:
        part.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def train_weights(
    spec: Spec,
    data: Path | CorpusFiles,
    out: Path,
    options: Options,
    *,
    quiet: bool = False,
    processes: Processes = ALONE,
) -> Trained:
    """Train and write `out/weights.safetensors`, without scores. `quiet` keeps stderr empty."""
    require_one(spec)
    check_options(spec, options)
    check_sinks(options.log)
    if processes.first and not options.resume:
        check_free(out)
    shared = run_passes(begin(spec), after=SHARED)
    engine = run_passes(shared.for_engine("cpu"), after=DERIVED)  # refuse what cannot be decoded before training
    graph = run_passes(shared).graph
    check_shares(graph, spec.train.accumulate, processes)
    check_recompute(graph, spec.train.recompute, compiled=options.compile)
    schema = data_schema(spec)
    files = _files(data, schema, options.languages)
    corpus = read_corpus(files, schema)
    check_special(spec, schema, corpus, options)
    device = choose_device()
    with ExitStack() as held:
        torch.set_flush_denormal(True)  # Adam's moments of rare tokens become denormals, which are slow
        held.callback(torch.set_flush_denormal, False)
        with processes.first_ahead():
            if processes.first:
                held.enter_context(locked(out))
            identity = identify(spec, corpus, out, options, device, processes)
            known = is_run(out)
            encoded = open_run(spec, corpus, schema, out, identity, options, processes=processes)
            if not known:
                held.enter_context(locked(out))
        model = TorchModule(graph, identity.seed).to(device)
        newest = newest_checkpoint(out)
        began = _begin(spec, options.start, model, again=known) if newest is None else []
        wrapped = parallel(model, processes, encoded.train.sample().repeated(spec.train.copies), shard=options.shard)
        if identity.compile:
            compile_layers(model)
        elif identity.precision == "bfloat16":
            cast_layers(model, spec.train.recompute)
        recompute(model, spec.train.recompute)
        recipe, optimizer = make_recipe(spec, identity, options.minutes), _optimizer(spec, model, identity.seed)
        recipe = replace(recipe, operations=operations_of(shared.graph, spec.train.copies))
        scorer = held.enter_context(scoring(spec.train, files.valid, recipe_checkpoints(out), first=processes.first))
        job = _Job(spec, out, identity, encoded, recipe, model, wrapped, optimizer, processes, scorer)
        state = State()
        if newest is not None:
            state = load_checkpoint(newest, model, optimizer)
            exchange(optimizer)
        metrics, silent = (out / METRICS, quiet or is_quiet()) if processes.first else (None, True)
        sinks = _open_sinks(options.log, spec, out, identity, state) if processes.first else []
        peak, seconds = peak_of(device, identity.precision, processes.count), recipe.seconds
        with Report(
            metrics, recipe.steps, state, sinks, results=spec.results, seconds=seconds, peak=peak, quiet=silent
        ) as report:
            for line in (*describe_corpus(corpus, encoded), *began, _describe_model(job, device, state)):
                report.note(line)
            return Trained(_run(job, state, report), engine, schema, corpus, encoded)


def _open_sinks(names: Sequence[str], spec: Spec, out: Path, identity: Identity, state: State) -> list[Sink]:
    """The sinks of these names, which are told what came before; without any, that is not read."""
    if not names:
        return []
    before = lines_until(out / METRICS, state.step)
    return open_sinks(names, Place(out, spec.name, state.step + 1, asdict(identity), before))


def _begin(spec: Spec, start: Path | None, model: TorchModule, *, again: bool) -> list[str]:
    """Begin with the weights of another run, if there is one; lines that say which, and whether it is `again`."""
    lines = [AGAIN] if again else []
    if start is None:
        return lines
    vocabularies = {item.axes[0].name for item in spec.inputs.values() if item.kind == "tokens"}
    return lines + start_from(start, model, vocabularies)


def _optimizer(spec: Spec, model: torch.nn.Module, seed: int) -> torch.optim.Optimizer:
    if spec.train.low_rank is not None:
        return low_rank_optimizer(spec, model, seed)
    return make_optimizer(spec.train.optimizer, model, spec.learning_rates())


@dataclass(frozen=True)
class _Job:
    spec: Spec
    out: Path
    identity: Identity
    corpus: EncodedCorpus
    recipe: Recipe
    model: torch.nn.Module
    wrapped: torch.nn.Module
    optimizer: torch.optim.Optimizer
    processes: Processes
    scorer: CheckpointScorer | None


def _run(job: _Job, state: State, report: Report) -> State:
    section = job.spec.train
    metadata, scorer = {"spec_sha256": job.identity.spec_sha256}, job.scorer

    def written(checkpoint: Path) -> None:
        prune_checkpoints(job.out, section.average, section.select)
        if scorer is not None and checkpoint in recipe_checkpoints(job.out):
            scorer.begin(checkpoint)

    with interruptible() as interrupt, CheckpointWriter(job.out, metadata, job.processes, written=written) as writer:

        def on_update(state: State, update: Update) -> None:
            writer.check()
            report.update(state, update)

        state = fit(
            job.wrapped,
            job.optimizer,
            job.corpus.train,
            job.recipe,
            state,
            on_update=on_update,
            on_checkpoint=partial(_keep, job, report, writer),
            processes=job.processes,
            stopped=lambda: interrupt.asked,
        )
    if not ended(job.recipe, state):
        job.processes.agree(0.0)  # the first process that ends would end the others while they write
        report.note(f"stopped after step {state.step:,}; --resume continues from there")
        interrupt.leave()
    if job.processes.first:
        take_score(job.scorer, section.select, report, state)
        _finish(job, state, report)
    if interrupt.asked:
        interrupt.leave()
    return state


def _finish(job: _Job, state: State, report: Report) -> None:
    """Write the average of the last checkpoints."""
    section = job.spec.train
    chosen = chosen_checkpoints(job.out, section.average, section.select)
    average_checkpoints(chosen, job.out / WEIGHTS)
    steps = ", ".join(f"{int(folder.name):,}" for folder in chosen)
    if state.best_loss is not None:
        report.note(f"lowest validation loss: {state.best_loss:.4f} at step {state.best_step:,}")
    report.note(f"{job.out / WEIGHTS}: the average of steps {steps}")


def _keep(job: _Job, report: Report, writer: CheckpointWriter, state: State) -> State:
    """Begin to write the checkpoint, after the validation loss is measured, unless it is one of a stop.

    Raises: UserError if training has diverged.
    """
    report.flush(state)
    with averaged(job.optimizer):
        state = state if state.between else _measure(job, report, writer, state)
        reshard(job.model)
        writer.save(state, job.model, job.optimizer)
    return state


def _measure(job: _Job, report: Report, writer: CheckpointWriter, state: State) -> State:
    """The state with the validation loss, and the score of the checkpoint before."""
    recipe, select = job.recipe, job.spec.train.select
    losses = validation_losses(
        job.model,
        job.corpus.valid,
        recipe.batch_tokens,
        bfloat16=recipe.bfloat16,
        weights=recipe.weights,
        processes=job.processes,
    )
    loss = sum(losses)
    check_finite(state, loss)
    writer.wait()
    state = measured(state, loss, select)
    score = take_score(job.scorer, select, report, state)
    if select in SCORED:
        state = judged(state, job.processes.agree(score))
    report.validation(state, loss, losses)  # before the checkpoint is there, from which a killed run would go on
    return state


def _describe_model(job: _Job, device: torch.device, state: State) -> str:
    count = sum(parameter.numel() for parameter in job.model.parameters())
    where = f", from step {state.step:,}" if state.step else ""
    several = f", {job.processes.count} processes" if job.processes.count > 1 else ""
    return f"model: {count:,} parameters, {job.identity.precision} on {device.type}{several}{where}"


def _files(data: Path | CorpusFiles, schema: DataSchema, languages: str | None) -> CorpusFiles:
    return data if isinstance(data, CorpusFiles) else find_corpus(data, schema, languages)


def make_recipe(spec: Spec, identity: Identity, minutes: float | None) -> Recipe:
    """Return the loop's recipe from the spec; `minutes` replaces the spec's unless it is None."""
    section, checkpoint = spec.train, spec.train.checkpoint
    return Recipe(
        learning_rate=schedule_of(section.schedule, spec.sizes, section.steps),
        batch_tokens=section.batch_tokens,
        accumulate=section.accumulate,
        clip_norm=section.clip_norm,
        seed=identity.seed,
        bfloat16=identity.precision == "bfloat16",
        steps=section.steps,
        seconds=_seconds(section.minutes if minutes is None else minutes),
        checkpoint_steps=checkpoint.every_steps,
        checkpoint_seconds=_seconds(checkpoint.every_minutes),
        weights=tuple(result.weight for result in spec.results),
        patience=section.patience,
        ema=section.ema,
        copies=section.copies,
    )


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else 60.0 * minutes
