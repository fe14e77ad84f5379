"""The certificate of every spec's engine, with its searches on the device."""

import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.engines import Written, write_engine
from benchmarks.gpu.report import Report, Row, measured
from tests.calibration import probe_examples
from tests.small_specs import small
from xformc.compiler.backends.tensorrt.write_plans import PlanOptions
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify import certify, engine_parameters
from xformc.compiler.certify.subject import Subject
from xformc.compiler.ops.roundable import linear_weights
from xformc.compiler.pipeline import compile_engine
from xformc.compiler.quantize.calibration import calibrate, calibrated_weights
from xformc.format.names import MODEL
from xformc.format.plans import Plan
from xformc.format.precision import Precision
from xformc.format.targets import TRAITS, Target
from xformc.runtime.session import Session

TARGETS: tuple[Target, ...] = ("cuda", "tensorrt")
PRECISIONS: Mapping[str, tuple[Precision, bool]] = {
    "float32": ("float32", False),
    "float16": ("float16", False),
    "bfloat16": ("bfloat16", False),
    "int8": ("int8", False),
    "int8_calibrated": ("int8", True),
    "float8": ("float8", True),
}
"""A number format of weights, and whether matrix products are calibrated, which only target tensorrt can do."""

SECONDS = 30.0


@dataclass(frozen=True)
class OnDevice(Subject):
    """A subject whose engine runs on the GPU, by TensorRT by these plans; what it is compared with does not."""

    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])

    @cached_property
    def session(self) -> Session:
        """The engine, as the runtime runs it there."""
        return Written(self.program, self.engine, self.plans).session("cuda")


def measure(
    report: Report, specs: Sequence[str], targets: Sequence[Target], precisions: Sequence[str], processes: int
) -> None:
    """Add a row for each spec, target and precision, the spec changing fastest, from several processes at once.

    Most of a certificate is the reference search on the processor; the GPU is shared.
    """
    cases: list[tuple[str, Target, str]] = [
        (name, target, precision)
        for precision in precisions
        for target in targets
        if TRAITS[target].calibrated or not PRECISIONS[precision][1]
        for name in specs
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (1,)) as pool:
        rows = [pool.submit(_row, *case, report.device, report.deadline) for case in cases]
        try:
            for row in as_completed(rows):
                report.add(row.result())
        except BrokenProcessPool as error:
            report.add({"certificate": "those without a row", "failed": str(error)})


def _row(name: str, target: Target, precision: str, device: torch.device, deadline: float) -> Row:
    """The row of one case; `deadline` is of `time.monotonic`, which all processes of a machine share."""
    what = {"certificate": name, "target": target, "precision": precision}
    most = min(SECONDS, deadline - time.monotonic())
    return measured(what, lambda: _certified(name, target, precision, device), most)


def _certified(name: str, target: Target, kind: str, device: torch.device) -> dict[str, Any]:
    """The stages of the certificate, and how far apart their sides were. Raises: UserError if it cannot be run."""
    precision, calibrated = PRECISIONS[kind]
    with tempfile.TemporaryDirectory() as folder:
        spec = small(name)
        program, engine = compile_engine(spec, target), Path(folder) / "engine"
        module = TorchModule(program.graph, seed=spec.train.seed).eval()
        weights = module.arrays()
        on_gpu = device.type == "cuda"
        plans = PlanOptions() if on_gpu else None
        maps = linear_weights(program.graph)
        eights = calibrated_weights(spec.precisions(precision), maps, examples=True) if calibrated else {}
        scales = calibrate(module, eights, probe_examples(spec))
        written = write_engine(program, weights, precision, engine, plans=plans, input_scales=scales)
        if precision != "float32":
            module.load_arrays(engine_parameters(program.graph, engine / MODEL))
        subject = Subject(written.program, module, engine, scales)
        if on_gpu:
            subject = OnDevice(written.program, module, engine, scales, plans=written.plans)
        certificate = certify(subject, lambda _: None)
        stages = {stage.name: stage.value for stage in certificate.stages}
        last = certificate.stages[-1]
        return {"passed": certificate.passed, **stages} | ({} if last.passed else {"failed": last.line()})
