"""Runs the origin of an import beside the spec's module, on the same random examples, and compares the logits."""

import importlib
import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import torch

from xformc.compiler.backends.torch.module import TorchModule
from xformc.compiler.backends.torch.parameter_paths import parameters_by_path
from xformc.compiler.pipeline import begin, run_passes
from xformc.compiler.spec import Spec
from xformc.errors import UserError
from xformc.imports.checkpoint import Array
from xformc.imports.config import ARCHITECTURE, read_config
from xformc.imports.examples import Examples, random_examples
from xformc.imports.sentences import read_modules

BOUND = 1e-4
"""The largest difference of logits, as a part of their standard deviation."""
RESULTS = ("logits", "image_embeds", "pooler_output")
"""What an origin returns that is compared, in this order, for texts only the first; else its states are."""


@dataclass(frozen=True)
class Replay:
    """The examples in words, the largest difference of logits, and the standard deviation of the origin's logits."""

    examples: str
    difference: float
    deviation: float

    @property
    def passed(self) -> bool:
        """Whether the difference is within the bound; one that is not a number is not."""
        return self.difference <= BOUND * self.deviation

    def line(self) -> str:
        """The comparison in words."""
        return (
            f"largest difference of logits {self.difference:.2g} on {self.examples} "
            f"(standard deviation {self.deviation:.2g}, bound {BOUND:g} of it)"
        )


def replay(folder: Path, spec: Spec, arrays: Mapping[str, Array], order: Sequence[int] = ()) -> Replay:
    """Compare the logits of the origin in `folder` with those of the spec. Raises: UserError if it cannot be run.

    order: the origin's ids of the spec's labels, where they have others.
    """
    examples = random_examples(folder, spec)
    origin = _origin(folder, spec.task)
    given = _expected(origin, examples, folder)
    given = given[:, examples.read :] if examples.read else given
    expected = given[..., list(order)] if order else given
    module = TorchModule(run_passes(begin(spec), without=("loss",)).graph).eval()
    with torch.no_grad():
        for path, parameter in parameters_by_path(module).items():
            parameter.copy_(torch.as_tensor(arrays[path]))
        found = module(*examples.ours)
    if spec.results and spec.results[0].settings.get("normalize"):  # by the engine, after the module
        found = torch.nn.functional.normalize(found, dim=-1)
    if spec.results and spec.results[0].kind == "ctc":  # the last positions may be padding
        found = found[:, : expected.shape[1]]
    if found.shape != expected.shape:
        raise UserError(f"the origin has logits {list(expected.shape)}, the spec {list(found.shape)}")
    seen = examples.seen if spec.written is None else None
    compared = _compared(examples.words, found, expected, seen)
    if compared.passed or seen is None or not _reads_padding(origin, examples, folder, given):
        return compared
    whole = seen.all(1)
    return _compared(examples.words, found[whole], expected[whole], seen[whole])


def _compared(words: str, found: torch.Tensor, expected: torch.Tensor, seen: torch.Tensor | None) -> Replay:
    """The comparison of these values, at the positions that are no padding if each position has one."""
    if seen is not None and found.shape[:2] == seen.shape:
        found, expected = found[seen], expected[seen]
    return Replay(words, float((found - expected).abs().max()), float(expected.std()))


def _expected(origin: Any, examples: Examples, folder: Path) -> torch.Tensor:
    """The values of the origin that are compared."""
    result = _result(origin, examples, folder)
    names = RESULTS if examples.seen is None else RESULTS[:1]
    named = next((name for name in names if name in result), None)
    return result[named] if named else _pooled(result.last_hidden_state, examples.seen, folder)


def _reads_padding(origin: Any, examples: Examples, folder: Path, masked: torch.Tensor) -> bool:
    """Whether the origin takes no notice of the mask, as FNet does: then a text that is padded is another one."""
    unmasked = {name: one for name, one in examples.theirs.items() if name != "attention_mask"}
    return torch.equal(_expected(origin, replace(examples, theirs=unmasked), folder), masked)


def _pooled(states: torch.Tensor, seen: torch.Tensor | None, folder: Path) -> torch.Tensor:
    """What sentence-transformers makes of states [batch, positions, d_model]; without it, the states."""
    values = read_modules(folder)
    mode = values.get("sentence.pooling")
    mask = torch.ones_like(states[:, :, :1], dtype=torch.bool) if seen is None else seen[:, :, None]
    if mode == "mean":
        states = (states * mask).sum(1) / mask.sum(1)
    elif mode == "max":
        states = states.masked_fill(~mask, -torch.inf).amax(1)
    elif mode == "cls":
        states = states[:, 0]
    return torch.nn.functional.normalize(states, dim=-1) if values.get("sentence.normalize") else states


def _result(origin: Any, examples: Examples, folder: Path) -> Any:
    """What the origin computes. Raises: UserError for a config that it takes, and cannot run."""
    try:
        return origin(**examples.theirs)
    except Exception as error:  # whatever another library raises
        message = " ".join(str(error).split())[:300]
        raise UserError(f"transformers cannot run this model: {message}", place=str(folder)) from error


def _origin(folder: Path, task: str) -> Any:
    """The model in `folder`, as transformers loads it, without gradients. Raises: UserError."""
    try:
        with redirect_stderr(io.StringIO()), catch_warnings():
            simplefilter("ignore")
            transformers: Any = importlib.import_module("transformers")
            kind = _kind(transformers, folder, task)
            model: Any = kind.from_pretrained(
                str(folder.resolve()),
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
    except ModuleNotFoundError as error:
        hint = "pip install transformers, or import without --replay"
        raise UserError(f"--replay needs the package {error.name}, which is not installed", hint=hint) from None
    except Exception as error:  # whatever another library raises for a model that it does not take
        message = " ".join(str(error).split())[:300]
        raise UserError(f"transformers cannot load this model: {message}", place=str(folder)) from error
    return model.eval().requires_grad_(False)


def _kind(transformers: Any, folder: Path, task: str) -> Any:
    """The class of a model: by its task, or the architecture that its config names."""
    writing = {"translation": transformers.AutoModelForSeq2SeqLM, "language_model": transformers.AutoModelForCausalLM}
    if task in writing:
        return writing[task]
    return getattr(transformers, str(read_config(folder).get(ARCHITECTURE)))
