"""The systems that decode, with the same weights: an engine, Hugging Face's generate, and CTranslate2."""

import importlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from benchmarks.gpu.engines import write_engine
from benchmarks.gpu.report import Missing
from xformc.compiler.backends.tensorrt.write_plans import PlanOptions
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.program import Program
from xformc.compiler.spec import Spec, load_spec
from xformc.format.targets import Target
from xformc.format.tokens import BEGIN, END, PAD
from xformc.runtime.searching.search import search

Numbers = Literal["float32", "float16", "bfloat16"]
POSITIONS = 512
SIZES = "batch=1:32:512,beam=1:4:4,source=1:32:32,room=1:64:64"
"""The sizes of all cases, for TensorRT plans."""

NEVER = -1
"""An end token that no model generates, so that no output ends before its limit."""


class Player(Protocol):
    """A system that decodes."""

    def decode(self, source: np.ndarray, beam: int, length: int) -> None:
        """Decode outputs of exactly `length` tokens for the source [batch, source], and wait for them."""
        ...


@dataclass(frozen=True)
class Setting:
    """A model with randomly initialized weights, a device, and a precision."""

    text: str
    device: torch.device
    numbers: Numbers

    @cached_property
    def spec(self) -> Spec:
        """The spec."""
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "model.yaml"
            path.write_text(self.text, encoding="utf-8")
            return load_spec(path)

    def program(self, target: Target) -> Program:
        """Compile the spec for a target."""
        return compile_engine(self.spec, target)

    @cached_property
    def weights(self) -> Mapping[str, np.ndarray]:
        """The weights by path, the same for each system."""
        module = TorchModule(self.program("portable").graph, seed=0)
        return module.arrays()

    @property
    def dtype(self) -> torch.dtype:
        """The precision as PyTorch's dtype."""
        return getattr(torch, self.numbers)


class Engine:
    """An engine of target cuda or tensorrt, without a certificate."""

    def __init__(self, setting: Setting, target: Target, folder: Path) -> None:
        """Write the engine into the new `folder` and load it. Raises: UserError if it cannot run here."""
        program, on_gpu = setting.program(target), setting.device.type == "cuda"
        plans = PlanOptions(SIZES) if on_gpu else None
        written = write_engine(program, setting.weights, setting.numbers, folder, plans=plans)
        self._session = written.session("cuda" if on_gpu else "cpu")
        self._options = program.search

    def decode(self, source: np.ndarray, beam: int, length: int) -> None:
        """See `Player`."""
        options = replace(self._options, beam_size=beam, n_best=1, max_length_factor=0.0, max_length_offset=length)
        found = search(self._session, {"source": source}, options, end=(NEVER,))
        assert (found.lengths == length).all(), "an output ended early"


class HuggingFace:
    """MarianMT with `generate`, optionally with a static cache and a compiled forward pass."""

    def __init__(self, setting: Setting, *, compiled: bool) -> None:
        """Make the model on the device. Raises: ImportError without transformers."""
        transformers: Any = importlib.import_module("transformers")
        marian = importlib.import_module("benchmarks.hugging_face").marian
        self._device = setting.device
        self._model = marian(setting.spec, setting.weights, POSITIONS).to(setting.device, setting.dtype)
        extra: dict[str, Any] = {}
        if compiled:
            config: Any = transformers.CompileConfig()
            config._compile_all_devices = True
            extra = {"cache_implementation": "static", "compile_config": config}
        self._config = partial_config(transformers, extra)

    def decode(self, source: np.ndarray, beam: int, length: int) -> None:
        """See `Player`."""
        ids = torch.tensor(source, device=self._device)
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            config = self._config(beam, length)
            found = self._model.generate(ids, attention_mask=mask, generation_config=config)
        assert found.cpu().shape[1] == length + 1, "an output ended early"


def partial_config(transformers: Any, extra: Mapping[str, Any]) -> Callable[[int, int], Any]:
    """Return a function that makes the configuration of `generate` for a beam and a length."""

    def config(beam: int, length: int) -> Any:
        return transformers.GenerationConfig(
            num_beams=beam,
            max_new_tokens=length,
            min_new_tokens=length,
            do_sample=False,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=BEGIN,
            **extra,
        )

    return config


class CTranslate2:
    """CTranslate2 on the same device."""

    def __init__(self, setting: Setting, folder: Path) -> None:
        """Write the model into the new `folder` and load it. Raises: ImportError without the package; Missing."""
        package: Any = importlib.import_module("ctranslate2")
        if setting.device.type == "cuda" and not package.get_cuda_device_count():
            raise Missing("this CTranslate2 sees no GPU")
        export = importlib.import_module("xformc.exports.ctranslate2").export
        export(setting.spec, setting.weights, folder, quantization=None, positions=POSITIONS)
        self._translator = package.Translator(str(folder), device=setting.device.type, compute_type=setting.numbers)

    def decode(self, source: np.ndarray, beam: int, length: int) -> None:
        """See `Player`."""
        names: Sequence[Sequence[str]] = [["</s>" if one == END else f"t{one}" for one in row] for row in source]
        found = self._translator.translate_batch(
            names, beam_size=beam, min_decoding_length=length, max_decoding_length=length
        )
        assert all(len(one.hypotheses[0]) == length for one in found), "an output ended early"
