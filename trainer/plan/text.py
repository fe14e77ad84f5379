"""A plan as lines of text."""

from xformc.trainer.plan.plan import USABLE, Plan


def plan_text(plan: Plan) -> str:
    """The plan for a reader."""
    machine, rank = plan.machine, plan.rank
    form = ", sharded" if machine.shard else ""
    memory = [
        ("weights", rank.weights, rank.weights),
        ("gradients", rank.gradients, rank.gradients),
        ("optimizer states", rank.states, rank.states),
        ("communication buffers", rank.reduction, rank.reduction),
        ("activations", rank.kept, rank.recomputed),
        ("logits of a chunk", rank.logits, rank.logits),
        ("peak", rank.peak, rank.recomputed_peak),
    ]
    usable = USABLE * machine.card.memory
    fit = "fits" if plan.fits else "fits if recomputed" if rank.recomputed_peak <= usable * 1e9 else "does not fit"
    lines = [
        f"{plan.name} on {machine.gpus} x {machine.name}{form}, {plan.precision}",
        f"each step and GPU: {plan.batches} x {plan.rows} rows of {plan.length} positions, {plan.units:,} in all",
        "",
        f"{'memory of a GPU, GB':24} {'recipe':>10} {'recomputed':>11}",
        *(f"{name:24} {_gb(own):>10} {_gb(every):>11}" for name, own, every in memory),
        f"{fit}: the card has {machine.card.memory:g} GB, {usable:.1f} GB of them usable",
        "",
        f"arithmetic       {plan.flops:.3g} FLOPs a step, {plan.flops * plan.steps:.2g} in all; "
        f"{plan.compute_seconds * 1e3:,.1f} ms at {machine.mfu:.0%} of the peak",
        f"communication    {plan.communicated / 1e9:.2f} GB a step from each GPU; {plan.link_seconds * 1e3:,.1f} ms at "
        f"{machine.card.link:g} GB/s",
        f"speed            {plan.units / plan.seconds:,.0f} tokens/s, if both overlap",
        f"{plan.steps:,} steps    {plan.hours:,.1f} hours"
        + ("" if plan.cost is None else f", {plan.cost:,.0f} in all"),
    ]
    return "\n".join(lines)


def _gb(size: int) -> str:
    return f"{size / 1e9:,.2f}"
