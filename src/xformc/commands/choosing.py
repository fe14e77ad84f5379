"""The options that choose among hypotheses after the search, and what they do to a stream of results."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from xformc.errors import UserError, refuse_together
from xformc.format.inputs import Input
from xformc.format.manifest import Manifest, SearchOptions
from xformc.format.reader import read_manifest
from xformc.runtime.engine import Engine
from xformc.runtime.searching.choose import WEIGHT, minimum_bayes_risk
from xformc.runtime.searching.prefix import check_scores
from xformc.runtime.searching.translate import Hypothesis

RERANK_HELP = "Reorder the beam by the scores of this second engine, which reads the same text."
WEIGHT_HELP = "Weight of the second engine, from 0 to 1.  [default: 0.5]"
MBR_HELP = "Reorder the beam by expected utility against its hypotheses, as likely as they are (minimum Bayes risk)."
Rerank = Annotated[Path | None, Option(help=RERANK_HELP, metavar="ENGINE")]
RerankWeight = Annotated[float | None, Option(help=WEIGHT_HELP, metavar="W")]
Mbr = Annotated[Literal["chrf", "bleu"] | None, Option(help=MBR_HELP, metavar="chrf|bleu")]

SAMPLES_HELP = "Texts sampled for each example, each with the next seed."
Samples = Annotated[int, Option(help=SAMPLES_HELP, metavar="N")]
SAMPLES_MBR_HELP = "Order the samples by expected utility against all of them (minimum Bayes risk)."
SamplesMbr = Annotated[Literal["chrf", "bleu"] | None, Option("--mbr", help=SAMPLES_MBR_HELP, metavar="chrf|bleu")]

Results = Generator[list[Hypothesis]]


@dataclass(frozen=True)
class Choice:
    """How hypotheses are chosen: by a second engine with a weight, by a utility, or, if both are None, not at all.

    samples: how many are drawn for each text; None if they are searched for.
    """

    second: Path | None
    weight: float | None
    utility: Literal["chrf", "bleu"] | None
    samples: int | None = None

    @property
    def chooses(self) -> bool:
        """Whether hypotheses are chosen among."""
        return self.second is not None or self.utility is not None

    def pool(self, manifest: Manifest, options: SearchOptions) -> int:
        """The number of hypotheses to search for; of samples, the number to print.

        Raises: UserError for options and engines that do not fit.
        """
        if self.weight is not None and self.second is None:
            raise UserError("--rerank-weight needs --rerank", hint="name the second engine: --rerank ENGINE")
        if not self.chooses:
            return self.samples or options.n_best
        refuse_together({"--rerank": self.second, "--mbr": self.utility})
        if (self.samples or options.beam_size) == 1:
            option = "--mbr" if self.second is None else "--rerank"
            among, hint = ("samples", "--samples 16") if self.samples else ("hypotheses of a beam", "--beam-size 8")
            found = "there is 1" if self.samples else "which has 1"
            raise UserError(f"{option} chooses among the {among}, {found}", hint=f"try {hint}")
        if self.second is not None:
            _check_second(manifest, read_manifest(self.second))
        elif self.samples is None and options.coverage_penalty:
            message = "--mbr weighs hypotheses by their probabilities, which scores with a coverage penalty do not tell"
            raise UserError(message, hint="set --coverage-penalty 0, or use --rerank")
        return options.beam_size if self.samples is None else 1

    def apply(
        self,
        lines: Iterator[str],
        judge: Engine | None,
        search: Callable[[Iterator[str]], Results],
        count: int,
        options: SearchOptions,
        batching: dict[str, Any],
    ) -> Results:
        """The `count` best of the chosen order of what `search` finds for these lines with these options."""
        if judge is not None:
            lines, again = tee(lines)
            found, weight = search(lines), WEIGHT if self.weight is None else self.weight
            return _first(judge.rerank_stream(again, found, weight=weight, **batching), found, count)
        found, utility = search(lines), self.utility
        if utility is None:
            return found
        alpha = options.length_penalty if self.samples is None else None
        kind = options.length_penalty_kind
        chosen = (
            minimum_bayes_risk(hypotheses, utility, length_penalty=alpha, length_penalty_kind=kind)
            for hypotheses in found
        )
        return _first(chosen, found, count)


def check_samples(utility: Literal["chrf", "bleu"] | None, samples: int) -> None:
    """Raises: UserError if a utility has nothing to choose from."""
    if utility is not None and samples < 2:
        raise UserError("--mbr chooses among the samples of an engine that samples", hint="try --samples 16")


def chosen_samples(found: Iterable[list[Hypothesis]], utility: Literal["chrf", "bleu"] | None) -> Results:
    """The samples of each example, in the order of their expected utility if there is one."""
    for samples in found:
        yield samples if utility is None else minimum_bayes_risk(samples, utility)


def _first(chosen: Results, found: Results, count: int) -> Results:
    """The first of each list; the search that `chosen` reads from is closed with it."""
    with closing(found), closing(chosen):
        for hypotheses in chosen:
            yield hypotheses[:count]


def _check_second(first: Manifest, second: Manifest) -> None:
    """Raises: UserError unless the second engine can score the texts that the first writes for its inputs."""
    check_scores(second)
    if [item.kind for item in second.given.values()] != [item.kind for item in first.given.values()]:
        message = f"{second.name} reads {_named(second.given)}, and {first.name} reads {_named(first.given)}"
        raise UserError(message, hint="rerank with an engine that reads the same inputs")


def _named(inputs: Mapping[str, Input]) -> str:
    return ", ".join(f"{name} ({item.kind})" for name, item in inputs.items()) or "no other text"
