"""Engines for a GPU as the compiler writes them, without a certificate, which others make or do without."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xformc.compiler.backends.initializers import Initializers, save_models
from xformc.compiler.backends.plans import PlanOptions, places_of, write_plans
from xformc.compiler.backends.profiles import derive_profile
from xformc.compiler.backends.tensorrt import open_builder
from xformc.compiler.graph.precision import Precision
from xformc.compiler.pipeline import Compiled, emit_engine
from xformc.runtime.devices.device import DeviceName
from xformc.runtime.manifest import Target
from xformc.runtime.plans import Plan
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
) -> Written:
    """Write the models into the new `folder` and, of target tensorrt, build their plans where `plans` say how.

    Raises: UserError if no builder is installed, or if it refuses a model.
    """
    folder.mkdir()
    chosen = compiled.spec.precisions(precision)
    initializers = Initializers(weights, chosen)
    save_models(emit_engine(compiled, initializers, target), initializers, folder)
    if target != "tensorrt" or plans is None:
        return Written(compiled, target, folder, chosen)
    defaults = {"translation": compiled.options, "language_model": compiled.sampling}.get(compiled.task)
    derived = derive_profile(compiled.task, compiled.inputs, defaults, compiled.spec.train.max_length)
    graphs = [compiled.graph, *([] if compiled.steps is None else [compiled.steps.prepare, compiled.steps.step])]
    models = sorted(path.name for path in folder.glob("*.onnx"))
    builder, places = open_builder(plans.builder), places_of(graphs)
    made: Mapping[str, Any] = write_plans(folder, models, builder, derived, places, precision, options=plans)
    return Written(compiled, target, folder, chosen, {name: Plan(**record) for name, record in made.items()})
