"""Builds the TensorRT plans of an engine, one per model, for the sizes of one profile."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from xformc.compiler.backends.tensorrt.builder import BEST, Builder, Network, timing_cache
from xformc.compiler.backends.tensorrt.profiles import ASSUMED_MEMORY, BATCH, fit_batch
from xformc.errors import UserError
from xformc.format.names import MODEL, PLAN, STEP
from xformc.format.plans import Plan, Profile


@dataclass(frozen=True)
class PlanOptions:
    """Options for building plans.

    profile: sizes that override derived ones, in the syntax of `--profile`. builder: tensorrt or tensorrt_rtx; None
    takes the installed one. effort: the builder's optimization level, 0 to 5.
    """

    profile: str | None = None
    builder: str | None = None
    effort: int = BEST


def write_plans(
    folder: Path,
    builder: Builder,
    profile: Profile,
    places: Mapping[str, str | None],
    precision: str,
    *,
    effort: int = BEST,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, object]]:
    """Build a plan for each model in `folder`, next to its file; return `plans` and `refused` for engine.json.

    Unless the user sets the batch, the largest batch of the `profile` is reduced to fit the device. The search as one
    model has a fixed beam size, the largest, since TensorRT requires this in loops.

    Raises: UserError if TensorRT cannot build a model; the search as one model may fail if its steps can be built.
    """
    networks = {path.name: Network(builder, path, places) for path in sorted(folder.glob("*.onnx"))}
    if profile["batch"] == BATCH:
        memory = ASSUMED_MEMORY if builder.device is None else builder.device.memory
        profile = fit_batch(profile, list(networks.get(STEP, networks[MODEL]).inputs.values()), memory)
    device = builder.device
    record = Plan(
        builder.name, builder.version, device and device.name, device and device.capability, precision, profile
    )
    plans, refused = dict[str, object](), dict[str, object]()
    for name, network in networks.items():
        progress(f"build {name} with {builder.name}")
        whole = name == MODEL and STEP in networks
        sizes, path = _with_one_width(profile) if whole else profile, (folder / name).with_suffix(PLAN)
        try:
            plan = network.build(sizes, effort=effort, exact=precision == "float32", cache=timing_cache(builder))
        except UserError as error:
            if not whole:
                raise
            refused[path.name] = error.message
            continue
        path.write_bytes(plan)
        plans[path.name] = asdict(replace(record, profile=sizes))
    return {"plans": plans, "refused": refused}


def _with_one_width(profile: Profile) -> Profile:
    return {
        axis: (most, most, most) if axis == "beam" else (least, often, most)
        for axis, (least, often, most) in profile.items()
    }
