"""Models of small shipped specs with the same weights, in growing and in fixed shapes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.small_specs import small
from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.program import Program
from xformc.format.interfaces import interface
from xformc.format.manifest import SampleOptions, SearchOptions
from xformc.format.targets import Target
from xformc.format.tokens import END
from xformc.runtime.devices.driven import DrivenSearch
from xformc.runtime.devices.fixed_shapes import fixed_shapes
from xformc.runtime.devices.onnx import OnnxDevice
from xformc.runtime.generation.generate import Prompt
from xformc.runtime.rows import pad
from xformc.runtime.session import Session
from xformc.runtime.whole import whole_session


@dataclass(frozen=True)
class Engines:
    """The folders `portable` and `cuda` in `folder` have the models of what was compiled."""

    program: Program
    folder: Path

    @property
    def cuda(self) -> Path:
        return self.folder / "cuda"

    def whole(self) -> Session:
        """The search as one model whose shapes grow."""
        face = interface(self.program.inputs, self.program.results, self.program.decoding)
        return whole_session(self.folder / "portable", face, threads=1)

    def driven(self, device: OnnxDevice | None = None) -> Session:
        """The search in fixed shapes, driven on this device, or on the processor."""
        program = self.program
        shapes = fixed_shapes(program.decoding, program.longest, program.given, program.results)
        search = DrivenSearch(device or OnnxDevice(self.cuda, "cpu", 1), shapes)
        return Session(lambda _: search, shapes.results, str(self.cuda))


def write_engines(name: str, folder: Path) -> Engines:
    spec = small(name)
    targets: tuple[Target, ...] = ("portable", "cuda")
    programs = {target: compile_engine(spec, target) for target in targets}
    for target, program in programs.items():
        weights = TorchModule(program.graph, seed=3).arrays()
        (folder / target).mkdir()
        initializers = Initializers(weights, {})
        save_models(emit_engine(program, initializers), initializers, folder / target)
    return Engines(programs["cuda"], folder)


class Requests:
    """Random ones, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def ids(self, low: int, high: int) -> list[int]:
        return [int(token) for token in self.random.integers(END + 1, 40, self.number(low, high))]

    def sources(self, most: int = 9) -> np.ndarray:
        return pad([[*self.ids(0, 19), END] for _ in range(self.number(1, most))])

    def search(self) -> SearchOptions:
        width = self.number(1, 5)
        factor, penalty = (float(self.random.uniform(0, 1.5)) for _ in range(2))
        return SearchOptions(width, self.number(1, width), penalty, factor, self.number(0, 9))

    def prompts(self, most: int = 9) -> list[Prompt]:
        return [Prompt(self.ids(0, 9), self.number(0, 2**60)) for _ in range(self.number(1, most))]

    def sampling(self) -> SampleOptions:
        temperature, reach = self.random.choice([0.0, 0.7, 1.3]), self.random.choice([1.0, 0.8])
        return SampleOptions(float(temperature), int(self.random.choice([0, 5])), float(reach), self.number(1, 20))

    def end(self) -> tuple[int, ...]:
        """A token that random weights write often enough, so that rows end at different lengths."""
        return (self.number(END, 8),)
