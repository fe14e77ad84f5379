"""The options of sampling: what a call may set, and which values make sense."""

from typing import TypedDict

from xformc.format.manifest import SampleOptions
from xformc.runtime.options import checked_integer, checked_number

MAX_NEW_TOKENS, MAX_TEMPERATURE, MAX_TOP_K = 100_000, 100.0, 10**6


class SampleArguments(TypedDict, total=False):
    """The keyword arguments of sampling; what is left out or None is the engine's default.

    temperature: divides the logits: below 1 the likely tokens become likelier; 0 always takes the likeliest.
    top_k: only so many of the best tokens may be drawn; 0 is all.
    top_p: of those only the fewest best whose probabilities reach this together; 1 is all.
    max_new_tokens: a continuation has at most so many tokens, the end token counted.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    max_new_tokens: int | None


def resolve_sample_options(defaults: SampleOptions, arguments: SampleArguments) -> SampleOptions:
    """Fill what `arguments` leaves open with the defaults, and check the whole.

    Raises: UserError naming the option, what it must be, and what it is.
    """
    unknown = set(arguments) - set(SampleArguments.__annotations__)
    if unknown:
        raise TypeError(f"unknown sampling options: {', '.join(sorted(unknown))}")
    temperature, top_p = arguments.get("temperature"), arguments.get("top_p")
    new_tokens = arguments.get("max_new_tokens")
    return SampleOptions(
        temperature=checked_number("temperature", temperature, defaults.temperature, 0.0, MAX_TEMPERATURE),
        top_k=checked_integer("top_k", arguments.get("top_k"), defaults.top_k, 0, MAX_TOP_K),
        top_p=checked_number("top_p", top_p, defaults.top_p, 0.0, 1.0),
        max_new_tokens=checked_integer("max_new_tokens", new_tokens, defaults.max_new_tokens, 1, MAX_NEW_TOKENS),
    )
