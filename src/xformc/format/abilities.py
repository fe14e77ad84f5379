"""What some engines can do beside their task, by models of their own or by inputs of their search: a row for each."""

from dataclasses import dataclass

from xformc.format.interfaces import AUTOMATON, BY_TEXT, PHRASES, PREFIX
from xformc.format.names import ADVANCE, ALIGNMENTS, BEAMS, CHECK, CONTINUE, JOIN, PROMPT, REFILL, SAMPLES, SCORES
from xformc.format.targets import BUILD_FOR_CPUS


@dataclass(frozen=True)
class Ability:
    """An ability of engines.

    lacking: what is said of an engine without it, whose name is {}.
    models: sets of files, of which an engine with the ability has one whole; empty: `control` says it.
    control: the input of its search; see `Manifest.controls`.
    hint: which engines have it.
    """

    lacking: str
    models: tuple[frozenset[str], ...] = ()
    control: str = ""
    hint: str = BUILD_FOR_CPUS


SCORES_TEXTS = Ability("{} has no scores of tokens", (frozenset({SCORES}),))
"""It gives the probabilities of the tokens of given texts."""

SAMPLES_TEXTS = Ability("{} samples no texts", (frozenset({SAMPLES}),))
"""It searches, and samples texts as well."""

SEARCHES_PROMPTS = Ability("{} has no beam search", (frozenset({BEAMS}),))
"""It samples, and searches for continuations as well."""

ALIGNS_TEXTS = Ability(
    "{} has no alignments", (frozenset({ALIGNMENTS}),), hint=f"they need attention to the source; {BUILD_FOR_CPUS}"
)
"""It gives the alignments of texts and their translations."""

STREAMS = Ability("{} has no streams of tokens", (frozenset({PROMPT, CONTINUE}),))
"""It gives tokens as they are sampled."""

CHECKS_DRAFTS = Ability("{} cannot check drafts", (frozenset({PROMPT, CONTINUE, CHECK}),))
"""It continues texts by drafted tokens."""

REFILLS = Ability(
    "{} has no batches that refill",
    (frozenset({REFILL}), frozenset({JOIN, ADVANCE})),
    hint="language models not for a GPU and translation models of target native have them, unless their attention is "
    "one that no kernel computes",
)
"""It has batches whose texts join and leave."""

TAKES_PREFIXES = Ability("the texts of {} cannot begin with given tokens", control=PREFIX)
TAKES_PHRASES = Ability("the search of {} has no phrases", control=PHRASES)
TAKES_AUTOMATA = Ability("the search of {} has no constraints", control=AUTOMATON)
TAKES_OPTIONS_BY_TEXT = Ability("{} takes no options of single texts", control=BY_TEXT)
