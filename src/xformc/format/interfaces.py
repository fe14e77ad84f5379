"""The inputs and outputs of an engine's model, by task."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.format import search_options
from xformc.format.inputs import Input
from xformc.format.results import Result, of_text
from xformc.format.tasks import Decoding


@dataclass(frozen=True)
class Interface:
    """The names of a model's inputs, those with defaults included, and of its outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


RESULTS = ("tokens", "lengths", "scores")
"""The outputs of a model that generates text."""

SEARCH_OPTIONS = tuple(option.name for option in search_options.OPTIONS if option.absent is None)
"""The options of every beam search, which are inputs of the model."""

SEARCH = Interface(("source", *SEARCH_OPTIONS), RESULTS)
"""The interface of a translation model."""

PROMPTS = "prompt"
"""The input of a language model for the texts to continue."""

SAMPLING_OPTIONS = (PROMPTS, "seed", "max_new_tokens", "temperature", "top_k", "top_p")
"""The text to continue, its random seed and the options of sampling, which are inputs of the model."""

SAMPLING = Interface(SAMPLING_OPTIONS, RESULTS)
"""The interface of a language model."""

OPTIONS: Mapping[Decoding, tuple[str, ...]] = {"search": SEARCH_OPTIONS, "sample": SAMPLING_OPTIONS, "forward": ()}
"""The inputs of a model beside those of its spec, by how it computes."""

END_TOKEN = "end_token"
"""The input of a model that writes text for the token that ends one. It has a default."""

PREFIX = "prefix"
"""The input of a search for the tokens that texts begin with. It has a default."""

PHRASES = "phrases"
"""The input of a search for the phrases that texts must have, [rows, phrases, any], padded with -1. By default none."""

AUTOMATON, NEEDS, START = "automaton", "automaton_needs", "automaton_start"
"""The inputs of a search for what texts match: the state after each state and token, [states, vocabulary], -1 for
tokens that may not follow; the fewest tokens from each state to the end of a text, [states]; and the state in which
texts begin, [rows], -1 for any text. By default there are no states."""

TIMED = -2
"""The START of a text with timestamps, in the search of a model that knows times."""

BY_TEXT = "by_text"
"""What engine.json has among the controls of an engine whose options may have a value for each text."""

CONTROLS = (PREFIX, PHRASES, AUTOMATON, NEEDS, START, *search_options.CONTROLS)
"""The inputs of a search that those of fixed shapes lack."""

TOKEN_SCORES = "token_scores"
"""The output of the model of the log probabilities of given texts."""

ATTENTION = "attention"
"""The output of the model of attention weights: [batch, target, source]."""

AT, POSITIONS, DONE, SCORES_SO_FAR = "step/at", "step/positions", "step/done", "step/scores"
"""Values of a stream of tokens: the position of the next token to read, where texts end at the latest, both [], which
texts have ended, and their log probabilities, both [batch]."""

NEWEST, LENGTHS, READ = "step/newest", "step/lengths", "step/read"
"""Further values of a stream: the token of each text to feed and its number of sampled tokens, both [batch], and all
tokens so far, [batch, length], which are used only if scores are edited."""

JOINING, FROM, KEPT, SLOTS = "step/joining", "step/from", "step/kept", "step/slots"
"""Inputs of the model of a batch that refills: the tokens to read of the texts that join, [joining, length], and how
many of them were read before, []; the rows of the call before that stay, [kept]; and the slot of each row, [batch]."""

LIMIT, LEAST, PREFIX_SO_FAR = "step/limit", "step/least", "step/prefix"
"""What the rows of a batch of searches that refills have: the most and the least tokens, [batch], and the tokens that
their texts begin with, padded, with a last column of padding, [batch, prefix]."""

POOL = ("beam/pool_tokens", "beam/pool_lengths", "beam/pool_scores")
"""The finished hypotheses of such a row, best first: tokens [batch, beam, length] with the begin token, their number
and their scores, [batch, beam]."""

JOINED = "joined/"
"""What the names of the initial states of texts that join begin with."""

CAPACITY = "capacity"
"""The input of the model that makes caches for the most positions of a text, []."""

RAGGED = "ragged_prompts"
"""The key of the metadata of that model which is 1 if the prompts of texts that join may differ in length."""

STREAMED, COUNT = "tokens", "count"
"""The output of the model that continues a stream, [steps, batch], and its input for the most steps, []."""

SCORES_BY_STEP = "scores"
"""The output of a batch of texts, [steps, batch]: the log probability of each text after each step."""

DRAFTED = "drafted"
"""The input of the model that checks tokens which may follow: [batch, tokens]."""

PROBABILITIES = "probabilities"
"""The output of a model of tagging or classification."""


def interface(inputs: Mapping[str, Input], results: Mapping[str, Result], decoding: Decoding) -> Interface:
    """Return the interface of an engine with the inputs and the results of its spec."""
    outputs = tuple(name for result in results.values() if result.of is None for name in result.outputs)
    return Interface((*model_inputs(given_inputs(inputs, results)), *OPTIONS[decoding]), outputs)


def interface_of_text(inputs: Mapping[str, Input], results: Mapping[str, Result]) -> Interface:
    """Return the interface of the model of the results that depend on the written text."""
    outputs = tuple(name for result in of_text(results).values() for name in result.outputs)
    return Interface(model_inputs(inputs), outputs)


def interface_of_scores(inputs: Mapping[str, Input]) -> Interface:
    """Return the interface of the model of the log probabilities of given texts, which have their begin token."""
    return Interface(model_inputs(inputs), (TOKEN_SCORES,))


def interface_of_alignments(inputs: Mapping[str, Input]) -> Interface:
    """Return the interface of the model of attention weights, whose texts are what their writer reads."""
    return Interface(model_inputs(inputs), (ATTENTION,))


def interface_of_samples(inputs: Mapping[str, Input], results: Mapping[str, Result]) -> Interface:
    """Return the interface of the model that samples the texts which a search writes."""
    return interface(inputs, results, "sample")


def interface_of_beams() -> Interface:
    """Return the interface of the model that searches for continuations of prompts."""
    return Interface((PROMPTS, *SEARCH_OPTIONS), RESULTS)


def given_inputs(inputs: Mapping[str, Input], results: Mapping[str, Result]) -> dict[str, Input]:
    """Return the inputs that a call gives: all but those that the engine writes."""
    written = {name for name, result in results.items() if result.kind == "text"}
    return {name: item for name, item in inputs.items() if name not in written}


def model_inputs(inputs: Mapping[str, Input]) -> tuple[str, ...]:
    """Return the names of the model's inputs: the spec's, in order, with a mask after each input of vectors."""
    names: list[str] = []
    for name, item in inputs.items():
        names += [name, f"{name}_mask"] if item.kind == "vectors" and item.is_sequence else [name]
    return tuple(names)
