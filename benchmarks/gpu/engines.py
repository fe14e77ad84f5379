"""Writes engines for a GPU without a certificate."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.onnx.models import emit_engine
from xformc.compiler.backends.tensorrt.write_plans import PlanOptions
from xformc.compiler.build import plan_writer
from xformc.compiler.program import Program
from xformc.format.plans import Plan
from xformc.format.precision import Precision
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.session import Session
from xformc.runtime.sessions import open_session


@dataclass(frozen=True)
class Written:
    """An engine's models in `folder`, and its TensorRT plans by name."""

    program: Program
    folder: Path
    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])

    def session(self, device: DeviceName) -> Session:
        """Open the engine in the runtime. Raises: UserError if something is missing."""
        program = self.program
        assert program.target is not None
        return open_session(
            self.folder,
            program.inputs,
            program.results,
            target=program.target,
            decoding=program.decoding,
            device=device,
            plans=self.plans,
        )


def write_engine(
    program: Program,
    weights: Mapping[str, Any],
    precision: Precision,
    folder: Path,
    *,
    plans: PlanOptions | None = None,
    input_scales: Mapping[str, float] = MappingProxyType({}),
) -> Written:
    """Write the models into the new `folder` and, for target tensorrt, build their plans with the options `plans`.

    `input_scales` are the scales of a calibration, by weight.

    Raises: UserError if no builder is installed, or if it rejects a model.
    """
    folder.mkdir()
    program = replace(program, precision=program.spec.precisions(precision))
    initializers = Initializers(weights, program.precision, input_scales=input_scales)
    save_models(emit_engine(program, initializers), initializers, folder)
    if not program.traits.plans or plans is None:
        return Written(program, folder)
    made: dict[str, Any] = plan_writer(program, precision, plans)(folder)["plans"]
    return Written(program, folder, {name: Plan(**record) for name, record in made.items()})
