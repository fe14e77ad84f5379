"""Builds an engine on disk from a spec: runs the passes, writes the model, the certificate and the manifest."""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError

from xformc import __version__
from xformc.compiler.backends.onnx.initializers import save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.tensorrt.builder import open_builder
from xformc.compiler.backends.tensorrt.profiles import derive_profile, parse_profile, with_made_axes
from xformc.compiler.backends.tensorrt.write_plans import PlanOptions, write_plans
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify import Certificate, Stage, certify, engine_parameters
from xformc.compiler.certify.forward import BOUND
from xformc.compiler.certify.seen import redraw
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.rules import made_lengths
from xformc.compiler.ops.keys import AsKeys
from xformc.compiler.ops.native import quantized_attentions
from xformc.compiler.ops.roundable import linear_weights
from xformc.compiler.pipeline import compile_engine, run_passes
from xformc.compiler.program import Program, added
from xformc.compiler.quantize.calibration import RULE, Example, calibrate, calibrated_weights
from xformc.compiler.quantize.formats import FORMATS
from xformc.compiler.quantize.number_format import Refusal
from xformc.compiler.results.kind import KINDS
from xformc.compiler.shortlist import read_shortlist
from xformc.compiler.spec import Spec, SpecError
from xformc.compiler.spec.alignment import SOURCE
from xformc.compiler.spec.problems import Problem
from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.format.inputs import Input
from xformc.format.manifest import FORMAT, Calibration, manifest_checksum, record_file, recorded
from xformc.format.names import CERTIFICATE, IMPORTED, MANIFEST, MODEL, SPEC
from xformc.format.operators import OPERATORS
from xformc.format.precision import Caches, Precision
from xformc.format.results import Result, of_text
from xformc.format.search_options import EDITS, OPTIONS
from xformc.format.targets import BUILD_FOR_CPUS, TRAITS, Target
from xformc.format.tokens import SPECIAL
from xformc.runtime.library import library_for
from xformc.runtime.text.tokenizer import open_vocabulary

Labels = Sequence[str] | Mapping[str, Sequence[str]]
"""Label names by id: of all results, or of each by its name."""


@dataclass(frozen=True)
class Rounding:
    """The quantization of an engine's weights.

    precision: default weight precision, for weights that the spec does not set; None keeps the spec's own default.
    examples: calibration examples, for targets and number formats that are calibrated.
    judge: compares two engine folders, one in float32 and the one being built, after all other stages have passed.
    caches: how the keys and values that a step reads are stored; None keeps the spec's own choice.
    """

    precision: Precision | None = None
    examples: Sequence[Example] = ()
    judge: Callable[[Path, Path], Sequence[Stage]] | None = None
    caches: Caches | None = None


def build_engine(  # noqa: PLR0913 (each is a part of an engine)
    spec: Spec,
    weights: Mapping[str, Any] | None,
    tokenizers: Mapping[str, Path] | None,
    target: Target,
    out: Path,
    progress: Callable[[str], None] = lambda _: None,
    *,
    labels: Labels | None = None,
    rounding: Rounding = Rounding(),
    plans: PlanOptions | None = None,
    shortlist: Path | None = None,
) -> Certificate:
    """Compile a spec with these weights (None: randomly initialized) into the engine folder `out`, atomically.

    `tokenizers` holds the SentencePiece model of each input of tokens and of each result by CTC; `progress` is
    called with the name of each phase. `labels` are the label names by id, of the results that are labels; None names
    them by their ids. `rounding` sets the quantization. `plans` are the options for building TensorRT plans, for target
    tensorrt; without them, the folder holds only the models. `shortlist` is a file of the tokens among which a search
    looks.

    Raises: UserError if the kernels of a native engine are missing, if the spec cannot be decoded step by step, if the
    number of labels differs from the model's, if a tokenizer does not fit, if a weight does not fit its precision, if
    the target does not support a precision, or if a stage of the certificate misses its bound.
    """
    progress("compile")
    program = compile_engine(spec, target)
    given: dict[str, Any] = {"labels": labels, "rounding": rounding, "plans": plans, "shortlist": shortlist}
    return build_program(program, weights, tokenizers, out, progress, **given)


def build_program(  # noqa: PLR0913 (each is a part of an engine)
    program: Program,
    weights: Mapping[str, Any] | None,
    tokenizers: Mapping[str, Path] | None,
    out: Path,
    progress: Callable[[str], None] = lambda _: None,
    *,
    labels: Labels | None = None,
    rounding: Rounding = Rounding(),
    plans: PlanOptions | None = None,
    record: Path | None = None,
    shortlist: Path | None = None,
) -> Certificate:
    """As `build_engine`, from the result of `compile_engine`. `record`: the record of an imported run, a part of the
    engine. `shortlist`: a file of the tokens among which the search looks.
    """
    spec, target = program.spec, program.target
    assert target is not None, f"{spec.name} was compiled for training"
    eights = _products_to_calibrate(spec, rounding.precision, target, examples=bool(rounding.examples))
    caches = rounding.caches or spec.caches
    _check_caches(replace(program, caches=caches), given=rounding.caches is not None)
    if program.traits.kernels:
        library_for(str(out))
    default = rounding.precision or spec.default_precision
    precision = spec.precisions(default)
    _check_fixed(program)
    _check_prefix(program)
    if shortlist is not None:
        program = _with_shortlist(program, shortlist)
    _open_vocabularies(program, tokenizers or {})
    build_plans = None if plans is None else plan_writer(program, default, plans, progress)
    named = _named_results(program, labels)
    module = TorchModule(program.graph, seed=spec.train.seed).eval()
    if weights is None:
        redraw(module, program, BOUND, spec.train.seed)
    else:
        module.load_arrays(weights)
    original = Subject(program, module, out)
    scales = calibrate(module, eights, rounding.examples, progress)
    with atomic_directory(out) as folder:
        progress("emit")
        subject = _write_model(replace(original, input_scales=scales), folder, precision, caches)
        (folder / SPEC).write_text(spec.resolved_yaml(), encoding="utf-8")
        files = _copy_tokenizers(tokenizers, folder)
        if record is not None:
            shutil.copyfile(record, folder / IMPORTED)
        certificate = certify(subject, progress, module if subject.quantized else None)
        _require(certificate)
        manifest = _manifest(subject.program, files, named, trained=weights is not None)
        if scales:
            manifest["calibration"] = asdict(Calibration(RULE, len(rounding.examples)))
        if build_plans is not None:
            manifest |= build_plans(folder)
        progress("hash and write")
        _seal(folder, certificate, {**manifest, "precision": default})
        if rounding.judge is not None:
            progress("compare with float32")
            for stage in _compare(original, folder, manifest, rounding.judge):
                certificate = certificate.with_stage(stage)
            _seal(folder, certificate, {**manifest, "precision": default})
    return certificate


def _check_fixed(program: Program) -> None:
    """Check that a target of fixed shapes computes the program as its spec says. Raises: UserError if not."""
    if not program.traits.fixed or program.written is None:
        return
    decode, samples = program.spec.decode, program.decoding == "sample"
    options = EDITS if samples else OPTIONS
    given = added(decode.sample if samples else decode, options)
    found = {option.name: option.absent is not None and given[option.name] != option.absent for option in options}
    found |= {"coverage": decode.coverage is not None and not samples}
    found |= {"prefix": bool(program.prefix), "suppress_first": bool(program.suppress_first)}
    for name in (name for name, there in found.items() if there):
        way = "sampling" if samples else "search"
        message = f"--target {program.target} has no {way} with decode.{name}"
        raise UserError(message, hint=f"remove it, or {BUILD_FOR_CPUS}")
    refused = {item.name: "the search of CTC" for item in program.spec.results if item.kind == "ctc"}
    if program.traits.plans:
        refused |= dict.fromkeys(of_text(program.results), "a result that depends on the written text")
    for name, what in refused.items():
        message = f"--target {program.target} has no way for {name}, {what}, beside a written text"
        raise UserError(message, hint=BUILD_FOR_CPUS)


def _check_caches(program: Program, *, given: bool) -> None:
    """Check that the engine keeps keys and values in the chosen format; `given`: it is from the command line.

    Raises: UserError if the target has no such caches, or the model nothing to keep in them.
    """
    if program.caches == "auto":
        return
    if not program.traits.kernels:
        message, hint = f"--target {program.target} has no caches in {program.caches}", "build with --target native"
    elif program.steps is None:
        message, hint = f"a model of {program.task} is not decoded, so it keeps no caches", "leave it out"
    elif not quantized_attentions(run_passes(program).decoder.step.nodes):
        message, hint = f"no attention of {program.spec.name} keeps keys and values that a kernel reads", "leave it out"
    else:
        return
    span = None if given else program.spec.place_of_caches()
    if span is not None:
        raise SpecError([Problem(span, message, hint)])
    raise UserError(f"--caches {program.caches}: {message}", hint=hint)


def _check_prefix(program: Program) -> None:
    """Raises: UserError if the default prefix is longer than the texts that the model can write."""
    longest = program.longest if program.prefix else None
    if longest is not None and len(program.prefix) > longest:
        raise UserError(f"decode.prefix has {len(program.prefix)} tokens; the model writes at most {longest}")


def _with_shortlist(program: Program, path: Path) -> Program:
    """The program whose search looks among the tokens of a file. Raises: UserError if that is none, or does not fit."""
    if program.task != "translation" or program.times is not None or program.inputs[SOURCE].kind != "tokens":
        raise UserError("--shortlist is for models that translate one text", hint="leave it out")
    if program.traits.fixed:
        hint = f"leave it out, or {BUILD_FOR_CPUS}"
        raise UserError(f"--shortlist: --target {program.target} has no search with a shortlist", hint=hint)
    source, written = program.inputs[SOURCE], program.inputs[str(program.written)]
    return replace(program, shortlist=read_shortlist(path).fitted(source, written, str(path)))


def _open_vocabularies(program: Program, tokenizers: Mapping[str, Path]) -> None:
    """Open each tokenizer, as the engine will. Raises: UserError for one that does not fit, or belongs to nothing."""
    sizes = {name: (item.pieces, item.special) for name, item in program.inputs.items() if item.kind == "tokens"}
    sizes |= {name: (result.width, SPECIAL) for name, result in program.results.items() if KINDS[result.kind].tokenized}
    for name, path in tokenizers.items():
        if name not in sizes:
            hint = f"the spec has {', '.join(sizes)}" if sizes else "the spec has no tokens"
            raise UserError(f"a tokenizer for {name}, which has no tokens", place=str(path), hint=hint)
        if not path.is_file():
            raise UserError("no such file", place=str(path))
    for path, size, special in dict.fromkeys((path, *sizes[name]) for name, path in tokenizers.items()):
        open_vocabulary(path, size, special)


def _products_to_calibrate(
    spec: Spec, default: Precision | None, target: Target, *, examples: bool
) -> dict[str, Precision]:
    """The weights whose matrix products are calibrated, with their precisions; `default` is from the command line.

    Raises: UserError, at its place in the spec, for a number format that the target does not support or that lacks
    examples; for examples without a matrix product to calibrate.
    """
    precision = spec.precisions(default)
    products = calibrated_weights(precision, linear_weights(spec.graph()), examples=examples)
    for name, format in FORMATS.items():
        uncalibrated = not examples and name in products.values()
        refusal = format.refusal(target, uncalibrated=uncalibrated) if name in precision.values() else None
        if refusal is not None:
            raise _refused(spec, name, default, refusal)
    if examples and not (TRAITS[target].calibrated and products):
        words = " or ".join(name for name, format in FORMATS.items() if format.grid is not None)
        what = f"only matrix products of --target tensorrt with {words} weights are calibrated, and there are none"
        raise UserError(f"--calibrate: {what}", hint=f"build with --target tensorrt --precision {words}")
    return products


def _refused(spec: Spec, precision: Precision, default: Precision | None, refusal: Refusal) -> UserError:
    span = None if default == precision else spec.place_of_precision(precision, default=default is None)
    if span is not None:
        return SpecError([Problem(span, refusal.message, refusal.hint)])
    return UserError(f"--precision {precision}: {refusal.message}", hint=refusal.hint)


def _write_model(
    subject: Subject, folder: Path, precision: Mapping[str, Precision], caches: Caches = "auto"
) -> Subject:
    """Write the model into `folder`; return the subject of its certificate, with the weights as stored."""
    rounded = replace(subject, program=replace(subject.program, precision=precision, caches=caches))
    initializers = rounded.initializers()
    models = emit_engine(rounded.program, initializers)
    try:
        save_models(models, initializers, folder)
    except (EncodeError, ValueError) as error:
        raise UserError(f"the model is too large for ONNX: {error}") from error
    checker: Any = onnx.checker
    for name in models:
        checker.check_model(str(folder / name), full_check=True)
    if set(precision.values()) <= {"float32"}:
        return replace(subject, program=replace(subject.program, caches=caches), engine=folder)
    module = TorchModule(rounded.program.graph).eval()
    module.load_arrays(engine_parameters(rounded.program.graph, folder / MODEL))
    return replace(rounded, engine=folder, module=module)


def plan_writer(
    program: Program, precision: Precision, options: PlanOptions, progress: Callable[[str], None] = lambda _: None
) -> Callable[[Path], dict[str, dict[str, object]]]:
    """A function that builds the plans of the models in a folder and returns `plans` and `refused` for engine.json.

    Raises: UserError, immediately, if the builder is missing or the profile is invalid.
    """
    builder = open_builder(options.builder)
    profile = derive_profile(program.inputs, program.options, program.spec.train.max_length, program.written)
    if options.profile is not None:
        profile = parse_profile(options.profile, profile)
    positions = (node for node in program.graph.nodes if not isinstance(node.op, AsKeys))
    profile = with_made_axes(profile, made_lengths(positions))
    return partial(
        write_plans,
        builder=builder,
        profile=profile,
        places=program.places,
        precision=precision,
        effort=options.effort,
        progress=progress,
    )


def _compare(
    original: Subject, engine: Path, manifest: Mapping[str, Any], judge: Callable[[Path, Path], Sequence[Stage]]
) -> Sequence[Stage]:
    """Let the judge compare the engine with a float32 one of the original weights."""
    with tempfile.TemporaryDirectory(prefix="xformc-float32-") as name:
        folder = Path(name)
        _write_model(original, folder, {})
        for path in engine.iterdir():
            if path.name != MANIFEST and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
        plain = {key: value for key, value in manifest.items() if key != "caches"}
        _seal(folder, None, {**plain, "precision": "float32"})
        return judge(folder, engine)


def _seal(folder: Path, certificate: Certificate | None, manifest: Mapping[str, Any]) -> None:
    """Write the certificate, and the manifest with the hashes of all files."""
    if certificate is not None:
        certificate.write(folder / CERTIFICATE)
    (folder / MANIFEST).unlink(missing_ok=True)
    content = {**manifest, "files": {path.name: asdict(record_file(path)) for path in sorted(folder.iterdir())}}
    content["checksum"] = manifest_checksum(content)
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _named_results(program: Program, labels: Labels | None) -> dict[str, Result]:
    """The program's results, with the names of their labels."""
    found: dict[str, Result] = {}
    for name, result in program.results.items():
        given = labels.get(name) if isinstance(labels, Mapping) else labels
        found[name] = replace(result, labels=_named(result, given)) if result.kind == "labels" else result
    return found


def _named(result: Result, labels: Sequence[str] | None) -> tuple[str, ...]:
    count = result.width
    if labels is not None and (len(labels) != count or len(set(labels)) != count):
        raise UserError(
            f"the model has {count:,} labels, found {len(set(labels)):,} different names",
            hint=f"set the size {list(result.axes)[-1]} of the spec to the number of labels in labels.txt",
        )
    names = tuple(str(label) for label in (range(count) if labels is None else labels))
    for index, name in enumerate(names):
        if not name.isprintable():
            raise UserError(f"the label {index} has unprintable characters: {name!r}")
    return names


def _copy_tokenizers(tokenizers: Mapping[str, Path] | None, folder: Path) -> dict[str, str]:
    given = tokenizers or {}
    for path in set(given.values()):
        shutil.copyfile(path, folder / path.name)
    return {name: path.name for name, path in given.items()}


def _require(certificate: Certificate) -> None:
    if certificate.passed:
        return
    failed = certificate.stages[-1]
    raise UserError(
        f"the engine failed a check of its certificate, so it was not written\n  {failed.line()}",
        hint=_HINTS[failed.fault],
    )


_HINTS = {
    "": "this is a bug in xformc; please report it",
    "weights": "train the model further, or build with other weights (--weights)",
    "spec": "change the spec at this place so that its values stay finite",
}
"""What to do about a stage that failed, by its fault."""


def _manifest(
    program: Program, tokenizers: Mapping[str, str], results: Mapping[str, Result], *, trained: bool
) -> dict[str, Any]:
    inputs = {name: replace(item, tokenizer=tokenizers.get(name)) for name, item in program.inputs.items()}
    return {
        "format": FORMAT,
        "xformc": __version__,
        "name": program.spec.name,
        "task": program.task,
        "target": program.target,
        **({"operators": OPERATORS} if program.traits.kernels else {}),
        "precision": "float32",
        **({} if program.caches == "auto" else {"caches": program.caches}),
        "inputs": {name: _input(item) for name, item in inputs.items()},
        "results": {name: asdict(_with_file(name, result, tokenizers)) for name, result in results.items()},
        "defaults": program.defaults,
        **({} if program.beams is None else {"beams": recorded(program.beams)}),
        **({"controls": list(program.controls)} if program.controls else {}),
        **({"prefix": list(program.prefix)} if program.prefix else {}),
        **({} if program.speech is None else {"speech": program.speech.recorded()}),
        **({} if program.shortlist is None else {"shortlist": True}),
        **({"suppress_first": list(program.suppress_first)} if program.suppress_first else {}),
        "parameters": program.graph.parameter_count(),
        "weights": "trained" if trained else "fresh",
    }


def _input(item: Input) -> dict[str, Any]:
    """The input as engine.json has it."""
    record = asdict(item)
    special = record.pop("special")
    return {**record, "special_tokens": special} if item.kind == "tokens" else record


def _with_file(name: str, result: Result, tokenizers: Mapping[str, str]) -> Result:
    """The result with the file of its tokenizer, if its kind has one."""
    return replace(result, tokenizer=tokenizers.get(name) if KINDS[result.kind].tokenized else None)
