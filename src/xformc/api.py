"""The Python API: specs and their PyTorch modules, training, and building engines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from xformc import specs
from xformc.compiler import spec as language
from xformc.compiler.spec.ensemble import Ensemble
from xformc.errors import UserError
from xformc.format.certificate import Certificate
from xformc.format.precision import Caches, PrecisionWord, cache_format, number_format
from xformc.format.targets import TargetWord
from xformc.terminal import LOGGER

if TYPE_CHECKING:
    from torch import nn

    from xformc.compiler.backends.torch.module import TorchModule
    from xformc.trainer.train import TrainResult

    Weights = str | Path | nn.Module | Mapping[str, Any]

PathLike = str | Path


class Spec(language.Spec):
    """A checked spec: `name`, `task`, `sizes`, `inputs`, `train`, `decode`, `precision`; made by `load_spec`."""

    def module(self, *, loss: bool = False, seed: int | None = None) -> "TorchModule":
        """Return a new PyTorch module of the training graph, a tree of the spec's blocks, randomly initialized.

        Its forward takes the spec's inputs in order; tokens are int64 ids [batch, length], padded with 0, and the text
        that is written begins with the id 2 (begin). It returns the logits: [batch, target, vocabulary] for a
        translation, [batch, text, vocabulary] for a language model, [batch, labels] or [batch, positions, labels].
        With `loss` it takes the labels as one more input, and returns the mean loss with the spec's label smoothing,
        the sum of the negative log likelihoods in nats, and the number of labels. The same `seed` (None: the spec's)
        gives the same weights.

        Raises: UserError for a mistake in the spec, with its place.
        """
        from xformc.compiler.backends.torch.module import TorchModule  # noqa: PLC0415 (it imports torch)
        from xformc.compiler.pipeline import begin, run_passes  # noqa: PLC0415

        program = run_passes(begin(self), without=() if loss else ("loss",))
        return TorchModule(program.graph, self.train.seed if seed is None else seed)


class EnsembleSpec(Ensemble, Spec):
    """A checked spec of an ensemble, with the `members`."""


def list_specs() -> list[str]:
    """The names of the specs that come with xformc, such as `transformer_base` and `tying/none`."""
    return list(specs.shipped_specs())


def load_spec(source: PathLike, settings: Mapping[str, object] | None = None) -> Spec:
    """Read and check a spec: a YAML file, the name of a shipped spec, or a folder with a spec.yaml (a run, an engine).

    `settings` replace values of the file: {"sizes.layers": 2, "train.steps": 1000}.

    Raises: UserError with every mistake and its place.
    """
    read = language.load_spec(specs.find_spec(source), language.settings_of(settings or {}))
    kind = EnsembleSpec if isinstance(read, Ensemble) else Spec
    return kind(**{field.name: getattr(read, field.name) for field in fields(read)})


def train(  # noqa: PLR0913 (each is a choice)
    spec: Spec | PathLike,
    data: PathLike,
    output: PathLike,
    *,
    languages: str | None = None,
    resume: bool = False,
    minutes: float | None = None,
    seed: int | None = None,
    compile: bool = False,
    start: PathLike | None = None,
    shard: bool = False,
    log: Sequence[str] = (),
    tokenizer: PathLike | None = None,
) -> "TrainResult":
    """Train a spec on the files in the folder `data`, write the run to the folder `output`, and score its engine.

    `languages` is the pair in the names of the files, such as "en-de"; `resume` continues the run in `output` to the
    bit; `minutes` and `seed` replace the spec's; `compile` runs layers through torch.compile. `start` is a run whose
    weights and tokenizers the new run begins with, where paths and sizes fit. In a script that torchrun starts, all
    processes train together; with `shard`, each holds a part of every parameter. `log` names where the metrics also go:
    tensorboard, wandb, mlflow. `tokenizer` is the vocabulary of all texts, which is not trained then: a SentencePiece
    model or a tokenizer.json.

    Raises: UserError for anything wrong with the data or the run, or if training diverges.
    """
    from xformc.trainer.train import train as run_training  # noqa: PLC0415 (it imports torch)

    return run_training(
        _spec(spec),
        Path(data),
        Path(output),
        languages=languages,
        resume=resume,
        minutes=minutes,
        seed=seed,
        compile=compile,
        start=None if start is None else Path(start),
        shard=shard,
        log=log,
        tokenizer=None if tokenizer is None else Path(tokenizer),
    )


def build(  # noqa: PLR0913 (each is a part of an engine)
    source: Spec | PathLike | Sequence[PathLike],
    output: PathLike,
    *,
    weights: "Weights | None" = None,
    tokenizers: Mapping[str, PathLike] | None = None,
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    target: TargetWord = "auto",
    precision: PrecisionWord | None = None,
    caches: Caches | None = None,
    calibrate: Sequence[PathLike] = (),
    compare: Sequence[PathLike] = (),
    profile: str | None = None,
    builder: str | None = None,
    shortlist: PathLike | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Certificate:
    """Compile a run, or a spec with `weights`, into the engine folder `output`, all of it or nothing.

    source: a run's folder or one of its checkpoints, which bring their spec; or a spec as in `load_spec`.
        Several runs of one vocabulary become an ensemble, which averages their probabilities.
    weights: a run, a checkpoint or a .safetensors file; a module of `Spec.module`, or its state_dict. None: the run's
        own, or for a spec randomly initialized weights.
    tokenizers: the SentencePiece model of each input of tokens; None: those of the run that the weights come from.
    labels: the names of the labels by id, where the task gives labels, or for each result that is labels; None: those
        of the run, or the ids.
    target: what the engine runs on; auto: native if there are kernels, else cpu, with a warning.
    precision: the number format of the weights, unless the spec sets it.
    caches: int8: keep the keys and values that a step reads in 8 bits, for target native; auto: in 16 or 32. None: the
        spec's choice, or auto.
    calibrate: files of examples for int8 and float8 products of the target tensorrt.
    compare: the files of a test set, as for `xformc evaluate`: the build fails if quantization costs more of the scores
        than allowed, such as 0.3 BLEU.
    profile, builder: of TensorRT's plans, as on the command line.
    shortlist: a file of `xformc shortlist`: translations have only the tokens that it names for their source.
    progress: called with the name of each part of the work.

    Returns: the certificate, which has passed. Raises: UserError if a check fails, and for input that does not fit.
    """
    words = get_args(TargetWord)
    if target not in words:
        raise UserError(f"target is {target!r}", hint=f"use {', '.join(words)}")
    from xformc.runtime.library import choose_target  # noqa: PLC0415 (it imports the runtime)
    from xformc.trainer.build_run import BuildOptions, build_run  # noqa: PLC0415 (it imports torch)
    from xformc.trainer.run_files import RunFiles  # noqa: PLC0415
    from xformc.trainer.source import Source, find_source, join_runs  # noqa: PLC0415

    if isinstance(source, language.Spec):
        found = Source(source, None)
    else:
        one = isinstance(source, str | Path)
        path = Path(weights) if isinstance(weights, str | Path) else None
        found = find_source(Path(source), weights=path) if one else join_runs([Path(run) for run in source])
    files, known = found.files, found.weights if weights is None else weights
    if tokenizers is not None or labels is not None:
        files = RunFiles({name: Path(path) for name, path in (tokenizers or {}).items()}, labels)
    chosen, reason = choose_target(target)
    options = BuildOptions(
        chosen,
        number_format(precision),
        [Path(path) for path in calibrate],
        [Path(path) for path in compare],
        profile,
        builder,
        cache_format(caches),
        None if shortlist is None else Path(shortlist),
    )
    given = Path(known) if isinstance(known, str) else known
    certificate = build_run(found.spec, given, Path(output), options, progress, files=files)
    if reason is not None:
        LOGGER.warning(reason)
    return certificate


def _spec(source: Spec | language.Spec | PathLike) -> language.Spec:
    return source if isinstance(source, language.Spec) else load_spec(source)
