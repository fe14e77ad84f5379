"""Lines of Moses' n-best lists: the number of the text from 0, a hypothesis, its features, and its score."""

from collections.abc import Mapping

from xformc.commands.text_lines import one_line
from xformc.format.manifest import SearchOptions
from xformc.runtime.searching.search import length_divisor


def moses_line(
    index: int, text: str, scores: tuple[float, float], length: int, options: SearchOptions, more: Mapping[str, float]
) -> str:
    """Return the line, without its end. `scores` are the one by which the texts are ranked, and that of the search,
    whose length penalty is in the `options`; `more` are further features. A score with a coverage penalty does not tell
    the log probability."""
    score, own = scores
    divisor = length_divisor(length, options.length_penalty, options.length_penalty_kind)
    features = f"length= {length}" if options.coverage_penalty else f"logprob= {own * divisor:.4f} length= {length}"
    features += "".join(f" {name}= {value:.4f}" for name, value in more.items())
    return f"{index} ||| {one_line(text)} ||| {features} ||| {score:.4f}"
