"""Exports an engine into a model repository of Triton Inference Server.

The model NAME takes and returns token ids or arrays, as the engine's own model does (docs/engine.md). If the engine has
tokenizers, the model NAME_text takes and returns text; it runs in Triton's Python backend and calls NAME.
"""

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from xformc.errors import UserError
from xformc.files import atomic_directory
from xformc.format.interfaces import END_TOKEN
from xformc.format.manifest import Manifest, SampleOptions, SearchOptions, check_files, numbers
from xformc.format.names import DATA, MANIFEST, MODEL, PLAN
from xformc.format.reader import read_manifest
from xformc.format.results import of_text
from xformc.format.targets import TRAITS
from xformc.format.tasks import NAMED
from xformc.runtime.searching.search import length_limit
from xformc.triton.config import FIRST_LINE, ModelConfig, Tensor
from xformc.triton.python_models import ASKED, ENGINE, OPTIONS, TEXT_OUTPUTS
from xformc.triton.served import Served, serve

CONFIG, VERSION = "config.pbtxt", "1"
MODEL_PLAN = str(Path(MODEL).with_suffix(PLAN))
TEXT_SUFFIX = "_text"


@dataclass(frozen=True)
class Serving:
    """Settings of an export.

    options: search or sampling options, complete; None for tasks that predict labels.
    name: the model's name; None for the engine's.
    longest: maximum tokens of a source in an engine with fixed shapes.
    runtime: run the engine with xformc's runtime in the Python backend even if Triton has a backend for its model.
    """

    options: SearchOptions | SampleOptions | None
    name: str | None = None
    max_batch_size: int = 64
    instances: int = 1
    longest: int = 256
    runtime: bool = False


def export_repository(engine: Path, out: Path, serving: Serving) -> list[Path]:
    """Write an engine's models into the model repository `out`, each atomically, and return their folders.

    Raises: UserError for a damaged engine, one that Triton cannot serve, an invalid name, or an existing folder that is
    not an earlier export.
    """
    manifest = read_manifest(engine)
    check_files(engine, manifest)
    if later := of_text(manifest.results):
        message = f"results of the written text cannot be exported yet: {', '.join(later)}"
        raise UserError(message, place=str(engine), hint="leave them out of the spec, or serve the engine from Python")
    name = serving.name or manifest.name
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"a model's name must be letters, digits, _, - and ., not {name!r}", hint="set it with --name")
    backend = choose_backend(manifest, runtime=serving.runtime)
    served = None if backend == "python" else _served(engine, manifest, serving)
    inputs, outputs = _declared(serving) if served is None else (served.inputs, served.outputs)
    tokens = ModelConfig(
        name,
        backend,
        _most_rows(manifest, serving),
        inputs,
        outputs,
        "KIND_GPU" if TRAITS[manifest.target].fixed else "KIND_CPU",
        serving.instances,
        parameters=_parameters(backend, serving),
    )
    configs = [tokens, *([_text_config(manifest, tokens, serving)] if _reads_text(manifest) else [])]
    folders = [out / config.name for config in configs]
    for folder, config in zip(folders, configs, strict=True):
        _check_replaceable(folder, config)
    for path, config in zip(folders, configs, strict=True):
        with atomic_directory(path) as folder:
            (folder / CONFIG).write_text(config.text(), encoding="utf-8")
            (folder / VERSION).mkdir()
            _write_version(engine, manifest, served if config is tokens else None, config, folder / VERSION)
    return folders


def choose_backend(manifest: Manifest, *, runtime: bool) -> str:
    """Return Triton's backend for the model of token ids: onnxruntime, tensorrt, or python for xformc's runtime.

    Three kinds of engine need the runtime: a native engine, whose kernels are loaded into ONNX Runtime; a search in
    TensorRT, which is driven step by step; and sampling in fixed shapes, whose random numbers the runtime draws.

    Raises: UserError for an engine that predicts, or writes text of declared results, and would need the runtime.
    """
    if manifest.decoding == "forward":
        if runtime or TRAITS[manifest.target].kernels:
            raise UserError(
                "an engine that predicts labels cannot be served with xformc's runtime or kernels",
                hint="build it with --target cpu, cuda or tensorrt, and leave out --runtime",
            )
        return "tensorrt" if _has_plan(manifest) else "onnxruntime"
    if manifest.task not in NAMED:
        if runtime or TRAITS[manifest.target].kernels or TRAITS[manifest.target].fixed:
            message = "text of declared results cannot be served with xformc's runtime or kernels, or in fixed shapes"
            raise UserError(message, hint="build it with --target portable or cpu, and leave out --runtime")
        return "onnxruntime"
    driven = TRAITS[manifest.target].fixed if manifest.decoding == "sample" else TRAITS[manifest.target].plans
    return "python" if runtime or driven or TRAITS[manifest.target].kernels else "onnxruntime"


def _has_plan(manifest: Manifest) -> bool:
    """Whether the engine has a plan of the whole model by `tensorrt`, the builder whose plans Triton reads."""
    plan = manifest.plans.get(MODEL_PLAN)
    return plan is not None and plan.builder == "tensorrt"


def _served(engine: Path, manifest: Manifest, serving: Serving) -> Served:
    """Return the engine's model with its options as constants."""
    path = engine / MODEL
    try:
        model = cast(Any, onnx).load(str(path), load_external_data=False)
    except DecodeError as error:
        raise UserError(f"not an ONNX model: {error}", place=str(path)) from error
    options: dict[str, Any] = {}
    if serving.options is not None:
        special = manifest.inputs[manifest.written].special
        options = {**numbers(serving.options), END_TOKEN: special.as_input(special.end)}
    sizes: dict[str, Any] = {}
    if isinstance(serving.options, SearchOptions):
        room = length_limit(serving.options, serving.longest)
        places = np.arange(min(room, manifest.inputs[manifest.written].longest or room))
        sizes = {"ranks": np.arange(serving.options.beam_size), "places": places}
    return serve(model, options, sizes)


def _most_rows(manifest: Manifest, serving: Serving) -> int:
    """Return the largest batch: that of the settings, or of the plans if they take fewer rows."""
    plans = [plan.profile["batch"][-1] for plan in manifest.plans.values() if "batch" in plan.profile]
    return min([serving.max_batch_size, *plans])


def _declared(serving: Serving) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the inputs and outputs of a search or sampling in the runtime, which pads requests to one length."""
    if isinstance(serving.options, SearchOptions):
        given, count = (Tensor("source", "TYPE_INT64", (-1,), ragged=True),), (serving.options.n_best,)
    else:
        given, count = (Tensor("prompt", "TYPE_INT64", (-1,), ragged=True), Tensor("seed", "TYPE_INT64", ())), ()
    tokens, lengths = Tensor("tokens", "TYPE_INT64", (*count, -1)), Tensor("lengths", "TYPE_INT64", count)
    return given, (tokens, lengths, Tensor("scores", "TYPE_FP32", count))


def _parameters(backend: str, serving: Serving) -> dict[str, str]:
    if backend == "python":
        return {OPTIONS: json.dumps(None if serving.options is None else asdict(serving.options))}
    # Shapes change from batch to batch, so planning memory for each costs more than it saves (runtime/session.py).
    return {"enable_mem_pattern": "0"} if backend == "onnxruntime" else {}


def _reads_text(manifest: Manifest) -> bool:
    given = manifest.inputs if manifest.task in NAMED and not manifest.given else manifest.given
    return bool(given) and all(item.tokenizer is not None for item in given.values())


def _text_config(manifest: Manifest, tokens: ModelConfig, serving: Serving) -> ModelConfig:
    declared = manifest.task not in NAMED
    names = ["text"] if manifest.defaults is not None and not declared else list(manifest.given)
    inputs = [Tensor(name, "TYPE_STRING", (1,)) for name in names]
    seed = Tensor("seed", "TYPE_INT64", (1,), optional=True)
    count = (serving.options.n_best if isinstance(serving.options, SearchOptions) and not declared else 1,)
    return ModelConfig(
        f"{tokens.name}{TEXT_SUFFIX}",
        "python",
        tokens.max_batch_size,
        (*inputs, seed) if manifest.decoding == "sample" else tuple(inputs),
        tuple(Tensor(name, data_type, count) for name, data_type in TEXT_OUTPUTS[manifest.task].items()),
        "KIND_CPU",
        tokens.instances,
        parameters={ASKED: tokens.name, **_parameters("python", serving)},
    )


def _write_version(engine: Path, manifest: Manifest, served: Served | None, config: ModelConfig, folder: Path) -> None:
    """Write the files that the model's backend runs into its version folder."""
    if served is None:
        whole = config.parameters.get(ASKED) is None
        names = manifest.files if whole else set(manifest.tokenizers.values())
        (folder / ENGINE).mkdir()
        _copy([MANIFEST, *names], engine, folder / ENGINE)
        (folder / "model.py").write_text(_SCRIPT % ("Tokens" if whole else "Texts"), encoding="utf-8")
    elif config.backend == "tensorrt":
        _copy([MODEL_PLAN], engine, folder)
    else:
        cast(Any, onnx).save(served.model, str(folder / MODEL))
        _copy([name for name in manifest.files if name == DATA], engine, folder)


def _copy(names: Iterable[str], source: Path, to: Path) -> None:
    for name in names:
        shutil.copyfile(source / name, to / name)


def _check_replaceable(folder: Path, config: ModelConfig) -> None:
    """Raises: UserError if the folder exists and is not an earlier export, or one of the other kind of model."""
    if not folder.exists():
        return
    path, hint = folder / CONFIG, "choose another --name"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not text.startswith(FIRST_LINE):
        raise UserError("exists and was not exported by xformc", place=str(folder), hint=hint)
    kinds = {True: "takes text", False: "takes token ids or arrays"}
    was = f'key: "{ASKED}"' in text
    if was != (ASKED in config.parameters):
        raise UserError(f"is a model of another export, which {kinds[was]}", place=str(folder), hint=hint)


_SCRIPT = '''\
"""Runs the engine beside this file, or calls the model of token ids, with xformc's runtime."""

from xformc.triton import %s as TritonPythonModel
'''
