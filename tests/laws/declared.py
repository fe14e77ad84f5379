"""Random specs that declare their results: any inputs, and any kinds of results, of the whole or of positions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from hypothesis import strategies as st
from laws.building_blocks import CAUSAL_STEPS, DECODER_STEPS, ENCODER_STEPS
from laws.specs import SIZES, Step, chosen_words, embedded, named
from numpy.typing import NDArray

from xformc.compiler import compile_spec
from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.certify.probes import make_probes
from xformc.compiler.pipeline import compile_engine, compile_training
from xformc.compiler.results.kind import Declared as Result
from xformc.compiler.results.kind import target_of
from xformc.compiler.spec import Spec, load_spec
from xformc.format.tokens import IGNORE

Document = dict[str, Any]

MORE_SIZES = {"one": 1, "letters": 6, "height": 3, "width": 2}
GIVEN: Mapping[str, Document] = {
    "words": {"tokens": "vocabulary"},
    "frames": {"vectors": "features"},
    "image": {"values": ["height", "width"]},
}
"""Inputs that a model reads; a model may have any of them, also none if it writes text."""

COMPANIONS: Mapping[str, tuple[str, Document]] = {
    "kinds": ("words", {"tokens": "vocabulary", "along": "words"}),
    "marks": ("frames", {"vectors": "features", "along": "frames"}),
    "links": ("words", {"edges": "words"}),
}
"""Inputs that lie along another one, or join its positions; and that other one."""

SEQUENCES = ("words", "frames")
START: Mapping[str, Step] = {"words": {"embedding": "d_model"}, "frames": {"linear": "d_model"}}
WRITTEN = "caption"
NEIGHBOURS: Step = {
    "takes": {"links": "value"},
    "do": {
        "keys": "as_keys",
        "scores": {"contract": {"from": "x", "by": "keys", "over": "d_model"}},
        "seen": {"mask": {"edges": "links"}},
        "share": {"softmax": "keys"},
        "mixed": {"contract": {"by": "keys", "over": "keys"}},
        "sum": {"plus": "x"},
    },
}
IMPORTED: Document = {"doubled": {"do": [{"scale": 2}, "tanh"]}}
"""The blocks of the file beside the spec."""


OBJECTIVES: Mapping[str, list[Document]] = {
    "masked": [{}, {"rate": 0.5, "copies": 2}],
    "spans": [{"sentinels": 3}, {"sentinels": 1, "rate": 0.4, "mean_length": 1, "copies": 1}],
    "denoise": [{}, {"mean_length": 1, "copies": 2}],
    "prefix": [{}, {"copies": 1}],
}
"""Settings of each objective; the vocabulary has room for three sentinels."""


@dataclass(frozen=True)
class Head:
    """A result beside the text, or of it: its kind, settings and steps; `of`: the input with its positions."""

    kind: str
    steps: tuple[Step, ...]
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    loss: Mapping[str, object] = field(default_factory=dict[str, object])
    of: str | None = None


@dataclass(frozen=True)
class Declared:
    """A spec that declares its results; `document` as YAML has it, `written` if it writes a text."""

    document: Document
    written: bool

    def yaml(self) -> str:
        """The spec."""
        return yaml.safe_dump(self.document, sort_keys=False, default_flow_style=None, width=110)

    def read(self, folder: Path) -> Spec:
        """The spec, from a file beside that of the imported blocks."""
        (folder / "shared.yaml").write_text(yaml.safe_dump(IMPORTED), encoding="utf-8")
        path = folder / "model.yaml"
        path.write_text(self.yaml(), encoding="utf-8")
        return load_spec(path)

    def __repr__(self) -> str:
        return self.yaml()


@st.composite
def heads(draw: st.DrawFn, sequences: tuple[str, ...]) -> Head:
    """A result of the whole example, or of each position of one of these inputs."""
    of = draw(st.sampled_from([None, *sequences]))
    kinds = ("labels", "numbers", "vectors", "ctc")
    kind = draw(st.sampled_from(kinds if of else kinds[:-1]))
    if kind == "labels":
        several = draw(st.booleans())
        size = draw(st.sampled_from(["labels", "one"])) if several else "labels"
        settings: dict[str, object] = {"several": several} if several or draw(st.booleans()) else {}
        return Head(kind, ({"linear": size},), settings, of=of)
    if kind == "numbers":
        last = draw(st.sampled_from([{"linear": "one"}, {"linear": "labels"}, {"sum": {"over": "d_model"}}]))
        return Head(kind, (last,), {}, draw(st.sampled_from([{}, {"error": "absolute"}])), of)
    if kind == "vectors":
        settings = draw(st.sampled_from([{}, {"normalize": True}]))
        loss = {} if of else draw(st.sampled_from([{}, {"temperature": 0.1}]))
        return Head(kind, ({"linear": "d_k"},), settings, loss, of)
    return Head(kind, ({"linear": "letters"},), {"beam_size": draw(st.integers(1, 3))}, of=of)


@st.composite
def declared(draw: st.DrawFn, *, written: bool | None = None) -> Declared:
    """A spec with up to three inputs, or with none and a text, and one to four results."""
    writes = draw(st.booleans()) if written is None else written
    given = draw(st.lists(st.sampled_from(list(GIVEN)), unique=True, min_size=0 if writes else 1, max_size=3))
    beside = draw(st.lists(st.sampled_from(list(COMPANIONS)), unique=True, max_size=2))
    beside = [name for name in beside if COMPANIONS[name][0] in given]
    sequences = tuple(name for name in given if name in SEQUENCES)
    choices = draw(chosen_words)
    model = _sources(draw, given, beside, sequences, choices)
    results: Document = {}
    if writes:
        steps = draw(DECODER_STEPS if sequences else CAUSAL_STEPS)
        used = [*steps, {"plus": {"by": "vector"}}] if given else steps
        table: Step = {"embedding": "d_model"}
        model["decoder"] = {"from": WRITTEN, "do": embedded(table, used, choices)}
        model["logits"] = {"from": "decoder", "do": [{"linear": "vocabulary"}]}
        results[WRITTEN] = {"text": "logits"}
    drawn = draw(st.lists(heads(sequences), max_size=3 if given else 0))
    if not writes and all(head.of for head in drawn):
        drawn.append(Head("numbers", ({"sum": {"over": "d_model"}},)))
    losses: Document = {}
    for index, head in enumerate(drawn):
        name = f"head{index}"
        source = "vector" if head.of is None else f"{head.of}_seen"
        if writes and head.of is None and head.kind != "ctc" and draw(st.booleans()):
            source = "read"
            model[source] = {"from": "decoder", "do": [draw(st.sampled_from(["mean", "max", "last"]))]}
        model[f"stage{index}"] = {"from": source, "do": list(head.steps)}
        results[name] = {head.kind: f"stage{index}", **head.settings}
        weight = draw(st.sampled_from([{}, {"weight": 0.5}]))
        losses |= {name: {**weight, **head.loss}} if weight or head.loss else {}
    inputs = {name: GIVEN[name] for name in given} | {name: COMPANIONS[name][1] for name in beside}
    if writes:
        at = draw(st.integers(0, len(inputs)))
        listed = [*inputs.items()]
        listed.insert(at, (WRITTEN, {"tokens": "vocabulary"}))
        inputs = dict(listed)
    return Declared(_document(draw, inputs, results, model, losses, choices), writes)


@st.composite
def pretrained(draw: st.DrawFn) -> Declared:
    """A spec with an objective, which makes labels of each token or a text to write out of plain text."""
    name = draw(st.sampled_from(list(OBJECTIVES)))
    choices, inputs = draw(chosen_words), {"words": GIVEN["words"]}
    model = _sources(draw, ["words"], [], ("words",), choices)
    vector: Step = {"plus": {"by": "vector"}}
    if name == "masked":
        model["stage0"] = {"from": "words_seen", "do": [vector, {"linear": "vocabulary"}]}
        results: Document = {"tokens": {"labels": "stage0", "each": "token"}}
    else:
        inputs[WRITTEN] = {"tokens": "vocabulary"}
        steps = [*draw(DECODER_STEPS), vector]
        model["decoder"] = {"from": WRITTEN, "do": embedded({"embedding": "d_model"}, steps, choices)}
        model["logits"] = {"from": "decoder", "do": [{"linear": "vocabulary"}]}
        results = {WRITTEN: {"text": "logits"}}
    document = _document(draw, inputs, results, model, {}, choices)
    train = {"tokenizer": {"kind": "char"}, "objective": {name: draw(st.sampled_from(OBJECTIVES[name]))}}
    return Declared({**document, "train": {**document["train"], **train}}, name != "masked")


def _sources(
    draw: st.DrawFn, given: list[str], beside: list[str], sequences: tuple[str, ...], choices: Mapping[str, str]
) -> Document:
    """The stages of what is given: `NAME_seen` of each input, `encoder` of the first sequence, `vector` of all."""
    model: Document = {}
    parts: list[str] = []
    for name in given:
        if name == "image":
            model["image_seen"] = {"from": name, "do": [{"linear": {"over": ["height", "width"], "to": "d_model"}}]}
            parts.append("image_seen")
            continue
        first: list[Step] = []
        for other in beside:
            of, item = COMPANIONS[other]
            if of == name and other == "links":
                first.append({"neighbours": {"links": other}})
            elif of == name:
                start = "embedding" if "tokens" in item else "linear"
                model[f"{other}_seen"] = {"from": other, "do": [{start: "d_model"}]}
                first.append({"plus": {"by": f"{other}_seen"}})
        rest = draw(ENCODER_STEPS) if name == sequences[0] else []
        if draw(st.booleans()):
            rest = [*rest, {"auxiliary_loss": 0.1}]
        model[f"{name}_seen"] = {"from": name, "do": embedded(START[name], [*first, *rest], choices)}
        model[f"{name}_whole"] = {"from": f"{name}_seen", "do": [draw(st.sampled_from(["mean", "max", "last"]))]}
        parts.append(f"{name}_whole")
    if sequences:
        model["encoder"] = {"from": f"{sequences[0]}_seen", "do": ["tanh"]}
    if parts:
        sums: list[Step] = [{"plus": {"by": part}} for part in parts[1:]]
        model["vector"] = {"from": parts[0], "do": named([*sums, *_joined(draw, choices)])}
    return model


def _joined(draw: st.DrawFn, choices: Mapping[str, str]) -> list[Step]:
    """The steps that end the vector of the whole: what uses each size and choice, whatever the other stages do."""
    start = embedded("tanh", [], choices)["start"]
    return [start, *(["doubled"] if draw(st.booleans()) else [])]


def _document(
    draw: st.DrawFn, inputs: Document, results: Document, model: Document, losses: Document, choices: Mapping[str, str]
) -> Document:
    text = yaml.safe_dump(model)
    blocks: Document = {
        f"{name}_made": {"choose": name, word: [], "otherwise": []} for name, word in choices.items()
    } | ({"neighbours": NEIGHBOURS} if "links" in inputs else {})
    planes = ("height", "width") if "image" in inputs else ()
    sizes = SIZES | {name: size for name, size in MORE_SIZES.items() if f"linear: {name}" in text or name in planes}
    decode: Document = {}
    train: Document = {"max_length": 16} if any(name in inputs for name in (*SEQUENCES, WRITTEN)) else {}
    if "kinds" in inputs and all("tokens" in item for item in inputs.values()):
        train["tokenizer"] = {"kind": "word", **({"shared": False} if len(inputs) > 1 else {})}
    if losses:
        train["losses"] = losses
    if ": encoder" not in text:
        model.pop("encoder", None)
    if "caption" in results and len(inputs) > 1 and draw(st.booleans()):
        decode["sample"] = draw(st.sampled_from([{}, {"top_k": 3}, {"temperature": 0.7, "top_p": 0.9}]))
    document: Document = {"import": ["shared"]} if "doubled" in text else {}
    document |= {"sizes": sizes, "choices": dict(choices), "inputs": inputs, "results": results, "model": model}
    return document | {"blocks": blocks} | ({"train": train} if train else {}) | ({"decode": decode} if decode else {})


def trainable(spec: Spec) -> bool:
    """Whether all results can be trained: vectors of positions have no loss."""
    axes = zip(spec.results, compile_spec(spec).outputs, strict=True)
    return all(result.kind != "vectors" or len(value.type.axes) == 2 for result, value in axes)


def losses_of(spec: Spec) -> tuple[torch.Tensor, TorchModule]:
    """The loss of a training step on random examples, and the module."""
    program, engine = compile_training(spec), compile_engine(spec)
    probes, random = make_probes(engine), np.random.default_rng(0)
    given: dict[str, Any] = dict(probes.feeds)
    for result, value, real in zip(spec.results, engine.graph.outputs, probes.reals, strict=True):
        width = value.type.axes[-1].size or 0
        given[target_of(result, spec.results)] = _target(result, random, real, width, given)
    module = TorchModule(program.graph, seed=1)
    found = module(*(torch.from_numpy(given[value.name]) for value in program.graph.inputs))
    weights = [result.weight for result in spec.results]
    weights += [1.0] * (len(found) // 3 - len(weights))
    return torch.stack([weight * loss for weight, loss in zip(weights, found[::3], strict=True)]).sum(), module


def _target(
    result: Result, random: np.random.Generator, real: NDArray[np.bool_], width: int, given: Mapping[str, Any]
) -> NDArray[Any]:
    """What the loss of a result compares with, nothing for padding."""
    if result.kind == "text":
        return np.pad(given[result.name][:, 1:], ((0, 0), (0, 1)))
    if result.kind == "vectors":
        return np.arange(len(real)) // 2
    if result.kind == "ctc":
        return random.integers(1, width, (len(real), 1))
    if result.kind == "labels" and not result.settings["several"]:
        return np.where(real, random.integers(0, width, real.shape), IGNORE)
    shape = (*real.shape, width) if width else real.shape
    numbers = random.integers(0, 2, shape) if result.kind == "labels" else random.standard_normal(shape)
    return np.where(real[..., None] if width else real, numbers, np.nan).astype(np.float32)
