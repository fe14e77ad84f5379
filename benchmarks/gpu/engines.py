"""Engines for a GPU as the compiler writes them, without a certificate, which others make or do without."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from xformc.compiler.backends.onnx.initializers import Initializers, save_models
from xformc.compiler.backends.tensorrt.write_plans import PlanOptions
from xformc.compiler.build import plan_writer
from xformc.compiler.pipeline import Compiled, emit_engine
from xformc.format.plans import Plan
from xformc.format.precision import Precision
from xformc.format.targets import Target
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.session import Session
from xformc.runtime.sessions import open_session


@dataclass(frozen=True)
class Written:
    """An engine's models in `folder`: in which numbers each weight is, and TensorRT's plans by their names."""

    compiled: Compiled
    target: Target
    folder: Path
    precision: Mapping[str, Precision]
    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])

    def session(self, device: DeviceName) -> Session:
        """The engine as the runtime runs it. Raises: UserError that says what is missing."""
        compiled = self.compiled
        return open_session(
            self.folder, compiled.task, compiled.inputs, target=self.target, device=device, plans=self.plans
        )


def write_engine(
    compiled: Compiled,
    weights: Mapping[str, Any],
    precision: Precision,
    target: Target,
    folder: Path,
    *,
    plans: PlanOptions | None = None,
    input_scales: Mapping[str, float] = MappingProxyType({}),
) -> Written:
    """Write the models into the new `folder` and, of target tensorrt, build their plans where `plans` say how.

    `input_scales` are the steps of a calibration, by weight.

    Raises: UserError if no builder is installed, or if it refuses a model.
    """
    folder.mkdir()
    chosen = compiled.spec.precisions(precision)
    initializers = Initializers(weights, chosen, input_scales=input_scales)
    save_models(emit_engine(compiled, initializers, target), initializers, folder)
    if target != "tensorrt" or plans is None:
        return Written(compiled, target, folder, chosen)
    made: Mapping[str, Any] = plan_writer(compiled, precision, plans)(folder)["plans"]
    return Written(compiled, target, folder, chosen, {name: Plan(**record) for name, record in made.items()})
