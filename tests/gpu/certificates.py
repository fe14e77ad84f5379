"""The certificate of every spec's engine, its searches run on the device."""

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.engines import write_engine
from benchmarks.gpu.report import Report
from tests.small_specs import small
from xformc.compiler.backends.initializers import MODEL
from xformc.compiler.backends.torch import TorchModule
from xformc.compiler.certify import certify, engine_parameters
from xformc.compiler.certify.subject import Subject
from xformc.compiler.graph.precision import Precision
from xformc.compiler.pipeline import compile_engine
from xformc.runtime.device import DeviceName
from xformc.runtime.manifest import Target
from xformc.runtime.session import Session
from xformc.runtime.sessions import open_session

TARGETS: tuple[Target, ...] = ("cuda", "tensorrt")
PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "bfloat16", "int8")
SECONDS = 30.0


class OnDevice(Subject):
    """A subject whose engine runs on the GPU; what it is compared with stays on the processor."""

    @cached_property
    def session(self) -> Session:
        """The engine, as the runtime runs it there."""
        compiled = self.compiled
        return open_session(self.engine, compiled.task, compiled.inputs, target=self.target, device="cuda")


KINDS: dict[DeviceName, type[Subject]] = {"cpu": Subject, "cuda": OnDevice}


def measure(report: Report, specs: Sequence[str], precisions: Sequence[Precision]) -> None:
    """Add a row for each spec, target and precision, the spec changing fastest."""
    for precision in precisions:
        for target in TARGETS:
            for name in specs:
                what = {"certificate": name, "target": target, "precision": precision}
                report.row(what, lambda: _certified(name, target, precision, report.device), SECONDS)  # noqa: B023


def _certified(name: str, target: Target, precision: Precision, device: torch.device) -> dict[str, Any]:
    """The stages of the certificate, and how far apart their sides were. Raises: UserError if it cannot be run."""
    with tempfile.TemporaryDirectory() as folder:
        spec = small(name, Path(folder))
        compiled, engine = compile_engine(spec, target), Path(folder) / "engine"
        module = TorchModule(compiled.graph, seed=spec.train.seed).eval()
        weights = {key: value.numpy() for key, value in module.state_dict().items()}
        chosen = write_engine(compiled, weights, precision, target, engine)
        if precision != "float32":
            module.load_arrays(engine_parameters(compiled.graph, engine / MODEL))
        subject = KINDS["cuda" if device.type == "cuda" else "cpu"](compiled, module, engine, target, chosen)
        certificate = certify(subject, lambda _: None)
        stages = {stage.name: stage.value for stage in certificate.stages}
        last = certificate.stages[-1]
        return {"passed": certificate.passed, **stages} | ({} if last.passed else {"failed": last.line()})
