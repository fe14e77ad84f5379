"""Continuations with a draft, a constraint or stop strings: prompts one after the other, in calls of a few tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xformc.format.inputs import Input
from xformc.format.manifest import SampleOptions
from xformc.runtime.each import with_values
from xformc.runtime.generation.constrain import Constraint, MatcherGuide
from xformc.runtime.generation.draft import Speculation
from xformc.runtime.generation.generate import Continuation, Prompt, added_text
from xformc.runtime.generation.stops import NO_STOPS, Stops
from xformc.runtime.generation.token_calls import TokenCalls
from xformc.runtime.session import Session


@dataclass(frozen=True)
class Steering:
    """What a call adds to sampling: what drafts its texts, what they match, and before what they end."""

    drafting: Speculation | None = None
    constraint: Constraint | None = None
    stops: Stops = NO_STOPS

    @property
    def needed(self) -> bool:
        """Whether there is any of it."""
        return any(value is not None for value in self.given.values())

    @property
    def given(self) -> dict[str, object]:
        """What there is of it by name, None for what there is not."""
        return {"draft": self.drafting, "constraints": self.constraint, "stop": self.stops.texts or None}

    def calls(
        self,
        session: Session,
        prompt: Prompt,
        at_once: int = 1,
        *,
        options: SampleOptions,
        written: Input,
        decode: Callable[[Sequence[int]], str],
    ) -> TokenCalls:
        """Return the calls that continue a prompt, at most `at_once` tokens each; `decode` makes text of ids."""
        text, own = partial(added_text, decode, prompt.ids), with_values(options, prompt.options)
        calls = TokenCalls(session, prompt, own, written.pieces, text, at_once, stops=self.stops)
        if self.constraint is not None:
            matcher = self.constraint(prompt)
            guide = MatcherGuide(matcher, own.suppress_tokens or (), written)
            calls = replace(calls, guide=guide, text=matcher.text or text)
        return calls if self.drafting is None else self.drafting.drafted(calls)


PLAIN = Steering()


def continue_each(
    session: Session, prompts: Sequence[Prompt], *, calls: Callable[[Session, Prompt], TokenCalls]
) -> list[Continuation]:
    """Return the continuations of the prompts, one after the other, by their calls."""
    return [calls(session, one).whole() for one in prompts]
