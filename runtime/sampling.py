"""The options of sampling, and their checks."""

from typing import TypedDict

from xformc.format.manifest import SampleOptions
from xformc.runtime.options import checked_integer, checked_number

MAX_NEW_TOKENS, MAX_TEMPERATURE, MAX_TOP_K = 100_000, 100.0, 10**6


class SampleArguments(TypedDict, total=False):
    """The keyword arguments of sampling; the engine's defaults replace missing arguments and None.

    temperature: divides the logits. Values below 1 favour likely tokens; 0 always takes the most likely one.
    top_k: sample from the k most likely tokens; 0 is no limit.
    top_p: sample from the fewest most likely tokens whose probabilities sum to top_p; 1 is no limit.
    max_new_tokens: maximum tokens of a continuation, the end token included.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    max_new_tokens: int | None


def resolve_sample_options(defaults: SampleOptions, arguments: SampleArguments) -> SampleOptions:
    """Complete `arguments` with the defaults, and check them.

    Raises: UserError that names the option, its allowed values and its value.
    """
    unknown = set(arguments) - set(SampleArguments.__annotations__)
    if unknown:
        known = ", ".join(SampleArguments.__annotations__)
        raise TypeError(f"unknown sampling options: {', '.join(sorted(unknown))}; there are {known}")
    temperature, top_p = arguments.get("temperature"), arguments.get("top_p")
    new_tokens = arguments.get("max_new_tokens")
    return SampleOptions(
        temperature=checked_number("temperature", temperature, defaults.temperature, 0.0, MAX_TEMPERATURE),
        top_k=checked_integer("top_k", arguments.get("top_k"), defaults.top_k, 0, MAX_TOP_K),
        top_p=checked_number("top_p", top_p, defaults.top_p, 0.0, 1.0),
        max_new_tokens=checked_integer("max_new_tokens", new_tokens, defaults.max_new_tokens, 1, MAX_NEW_TOKENS),
    )
