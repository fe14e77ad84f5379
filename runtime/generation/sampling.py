"""The options of sampling, and their checks."""

from typing import Any

from xformc.errors import UserError
from xformc.format.manifest import Manifest, SampleOptions
from xformc.runtime.options import (
    BeamArguments,
    ByText,
    EditArguments,
    FilterArguments,
    SearchArguments,
    checked_integer,
    checked_number,
    refuse_unknown,
    resolve_edits,
)
from xformc.runtime.suppressed import Pieces

MAX_NEW_TOKENS, MAX_TEMPERATURE, MAX_TOP_K = 100_000, 100.0, 10**6
MAX_SAMPLES = 10_000


class DrawArguments(FilterArguments, total=False):
    """The keyword arguments of sampling alone; see `SampleArguments`."""

    max_new_tokens: ByText[int]


class SampleArguments(DrawArguments, EditArguments, total=False):
    """The keyword arguments of sampling; the engine's defaults replace missing arguments and None.

    Each may be a list with a value for each text.

    temperature: divides the logits. Values below 1 favour likely tokens; 0 always takes the most likely one.
    top_k: sample from the k most likely tokens; 0 is no limit.
    top_p: sample from the fewest most likely tokens whose probabilities sum to top_p; 1 is no limit.
    max_new_tokens: maximum tokens of a continuation, the end token included.

    Those that edit the scores of tokens are in `EditArguments`.
    """


class GenerationArguments(SampleArguments, BeamArguments, total=False):
    """The keyword arguments of continuations: those of sampling, or, with `beam_size`, of a beam search, in which
    `max_new_tokens` and the edits of scores mean the same."""


class PromptArguments(GenerationArguments, total=False):
    """The options of one prompt: those of a call, and its random seed."""

    seed: int


class WritingArguments(SearchArguments, SampleArguments, total=False):
    """The keyword arguments of engines that search, and of those that sample."""


def split_options(
    manifest: Manifest, arguments: WritingArguments, seed: int, samples: int = 1
) -> tuple[SearchArguments, SampleArguments]:
    """The arguments of the search and of sampling.

    Raises: UserError for an argument that has no effect, because the engine does the other.
    """
    given: dict[str, Any] = dict(arguments)
    drawn = {name: given.pop(name) for name in DrawArguments.__annotations__ if name in given}
    edits = {name: given.pop(name) for name in EditArguments.__annotations__ if name in given}
    draws = manifest.decoding == "sample"
    others = given if draws else {**drawn, "seed": seed or None, "samples": samples if samples != 1 else None}
    idle = [name for name, value in others.items() if value is not None]
    if idle:
        word, known = ("samples", SampleArguments) if draws else ("searches", SearchArguments)
        message = f"{', '.join(idle)}: no effect on {manifest.name}, which {word}"
        raise UserError(message, hint=f"its options are {', '.join(known.__annotations__)}{', seed, samples' * draws}")
    searching: Any = {} if draws else given | edits
    sampling: Any = drawn | edits if draws else {}
    return searching, sampling


def resolve_sample_options(
    manifest: Manifest, arguments: SampleArguments, pieces: Pieces | None = None
) -> SampleOptions:
    """Complete `arguments` with the engine's defaults, and check them; `pieces` are those of the written text.

    Raises: UserError that names the option, its allowed values and its value.
    """
    names = (*DrawArguments.__annotations__, *EditArguments.__annotations__)
    refuse_unknown("sampling", arguments, names)
    defaults = manifest.sampling
    temperature, top_p = arguments.get("temperature"), arguments.get("top_p")
    new_tokens = arguments.get("max_new_tokens")
    return SampleOptions(
        temperature=checked_number("temperature", temperature, defaults.temperature, 0.0, MAX_TEMPERATURE),
        top_k=checked_integer("top_k", arguments.get("top_k"), defaults.top_k, 0, MAX_TOP_K),
        top_p=checked_number("top_p", top_p, defaults.top_p, 0.0, 1.0),
        max_new_tokens=checked_integer("max_new_tokens", new_tokens, defaults.max_new_tokens, 1, MAX_NEW_TOKENS),
        **resolve_edits(manifest, arguments, pieces),
    )
