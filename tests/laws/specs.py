"""Random valid specs: lists of steps that keep d_model, in a model of each task; they shrink to the fewest steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from hypothesis import strategies as st

Step = Any
"""A step as YAML has it."""

Steps = st.SearchStrategy[list[Step]]

SIZES = {
    "d_model": 8,
    "d_model_by_2": "d_model / 2",
    "d_model_times_2": "2 * d_model",
    "heads": 2,
    "d_k": "d_model / heads",
    "d_v": 3,
    "groups": 2,
    "group_heads": 2,
    "d_ff": 6,
    "score_cap": 2,
    "both": "2 * d_model",
    "left": "both - d_ff",
    "experts": 3,
    "chosen": 2,
    "half_buckets": 2,
    "hashes": "2 * half_buckets",
    "random_features": 5,
    "d_state": 2,
    "frequencies": "d_model",
    "window": 3,
    "best_keys": 2,
    "max_positions": 24,
    "max_distance": 6,
    "buckets": 4,
    "dropout": 0.1,
    "vocabulary": 20,
    "labels": 3,
    "features": 4,
}
CHOICES = {
    "norm": ["post", "pre", "pre_rms"],
    "positions": ["none", "sinusoidal", "sin", "cos", "learned", "recurrent", "rotary", "alibi", "relative"],
    "activation": ["relu", "gelu", "silu", "sigmoid"],
    "feed_forward": [None, "gated"],
    "score": [None, "dot", "additive", "capped"],
    "normalizer": [None, "relu", "top"],
    "key_value_heads": [None, "one", "grouped"],
    "reach": [None, "window"],
    "attention_dropout": [None, "weights"],
    "feature_map": ["elu", "random"],
}
"""The words of each choice that the shipped blocks make; None where none need be made."""

INPUTS = {
    "translation": {"source": {"tokens": "vocabulary"}, "target": {"tokens": "vocabulary"}},
    "language_model": {"text": {"tokens": "vocabulary"}},
    "tagging": {"text": {"tokens": "vocabulary"}},
    "classification": {"text": {"tokens": "vocabulary"}},
    "frames": {"frames": {"vectors": "features"}},
}
"""The inputs of each task; `frames` stands for tagging of vectors."""

EMBEDDING: Step = {"embedding": "d_model"}
REDUCTIONS = ["mean", "max", "first", "last", "sum"]


@dataclass(frozen=True)
class Sample:
    """A model: `steps` stand in its only or its last sequence, `encoder` in the source of a translation."""

    task: str
    steps: Sequence[Step]
    encoder: Sequence[Step] = ()
    choices: dict[str, str] = field(
        default_factory=lambda: {"norm": "post", "activation": "relu", "feature_map": "elu"}
    )
    tied: bool = False
    reduction: str = "mean"

    @property
    def time(self) -> str:
        """The axis of the last sequence."""
        return list(INPUTS[self.task])[-1]

    @property
    def decoded(self) -> str | None:
        """The input that is decoded token by token, if one is."""
        return self.time if self.task in ("translation", "language_model") else None

    def with_steps(self, steps: Sequence[Step]) -> "Sample":
        """The same with other steps."""
        return replace(self, steps=steps)

    def yaml(self) -> str:
        """The spec."""
        return yaml.safe_dump(self._document(), sort_keys=False, default_flow_style=None, width=110)

    def _document(self) -> dict[str, object]:
        vocabulary = "vocabulary" if self.decoded else "labels"
        choices = {"positions": "none", **self.choices}
        model: dict[str, object] = {}
        if self.task == "translation":
            model["encoder"] = {"from": "source", "do": embedded(EMBEDDING, self.encoder, choices)}
            model["vector"] = {"from": "encoder", "do": ["mean"]}
        table = {"linear": "d_model"} if self.task == "frames" else EMBEDDING
        steps = _using(self.steps, self.task)
        model["decoder"] = {"from": self.time, "do": embedded(table, steps, choices)}
        if self.task == "classification":
            model["vector"] = {"from": "decoder", "do": [self.reduction]}
        bias = not self.tied
        last = list(model)[-1]
        model["logits"] = {"from": last, "do": {"scores": {"linear": {"to": vocabulary, "bias": bias}}}}
        document: dict[str, object] = {
            "task": "tagging" if self.task == "frames" else self.task,
            "sizes": SIZES,
            "choices": choices,
            "inputs": INPUTS[self.task],
            "model": model,
            "blocks": {f"{name}_made": {"choose": name, word: [], "otherwise": []} for name, word in choices.items()},
        }
        if self.tied and self.decoded:
            document["tie"] = [["decoder/start/table/weight", "logits/scores/weight"]]
        tokenizer: dict[str, object] = {"tokenizer": {"kind": "word"}} if self.task == "tagging" else {}
        document["train"] = {"max_length": 16, **tokenizer}
        return document


def _using(steps: Sequence[Step], task: str) -> list[Step]:
    """The steps, and for a translation what makes sure that the source is used."""
    return [*steps, {"plus": {"by": "vector"}}] if task == "translation" else [*steps]


def embedded(table: Step, steps: Sequence[Step], choices: Iterable[str]) -> dict[str, Step]:
    """A table, positions, and the steps by name; every size and choice is used, whatever the steps are."""
    start: dict[str, Step] = {"table": table}
    names = list(SIZES)
    start |= {f"sizes_{at}": {"shift": f"0 * ({' + '.join(names[at : at + 7])})"} for at in range(0, len(names), 7)}
    start |= {f"{name}_made": f"{name}_made" for name in choices}
    return {"start": {"do": start}, "places": "add_positions", **named(steps)}


def named(steps: Sequence[Step]) -> dict[str, Step]:
    """Steps with names of their own, so that each may have parameters."""
    return {f"s{index}": step for index, step in enumerate(steps)}


def samples(task: str, steps: Steps, encoder: Steps | None = None) -> st.SearchStrategy[Sample]:
    """Models of this task with such steps, and of a translation with such steps in its encoder."""
    return st.builds(
        Sample,
        task=st.just(task),
        steps=steps,
        encoder=st.just([]) if encoder is None else encoder,
        choices=chosen_words,
        tied=st.booleans(),
        reduction=st.sampled_from(REDUCTIONS),
    )


def _possible(choices: dict[str, str | None]) -> dict[str, str]:
    """The choices that are made; biases by distance are for each of the heads, which have no groups then."""
    made = {name: word for name, word in choices.items() if word is not None}
    if made["positions"] in ("alibi", "relative") and made.get("key_value_heads") == "grouped":
        del made["key_value_heads"]
    return made


chosen_words = st.fixed_dictionaries({name: st.sampled_from(words) for name, words in CHOICES.items()}).map(_possible)
"""The words of the choices of a spec."""
