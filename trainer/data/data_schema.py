"""The schema of the training data for a spec."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from xformc.compiler.results.kind import KINDS, target_of
from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import Input, sequences_of
from xformc.compiler.spec.sections import Objective
from xformc.format.inputs import Input as Recorded
from xformc.format.tasks import NAMED, TASKS
from xformc.format.tokens import SpecialTokens
from xformc.runtime.media.reader import suffixes_of
from xformc.trainer.data.label_names import COLUMN
from xformc.trainer.data.splits import TABLES
from xformc.trainer.data.targets.target import TARGETS, Target
from xformc.trainer.data.text_files import Complete, is_example, is_full

SIMILAR = "_similar"
"""The ending of the column that holds the second of each pair of inputs."""


@dataclass(frozen=True)
class DataSchema:
    """The task and the inputs of a spec.

    classes: the size of the output's last axis. positions: the input whose positions each have a label, or None.
    longest: the maximum positions of a sequence. targets: those of declared results, without written text.
    written: the input that is written, of a spec that declares its results, or None. objective: what makes examples of
    plain text, or None.
    """

    task: str
    inputs: Mapping[str, Input]
    classes: int
    positions: str | None
    longest: int
    targets: tuple[Target, ...] = ()
    written: str | None = None
    objective: Objective | None = None

    @property
    def declared(self) -> bool:
        """Whether the spec declares its results."""
        return self.task not in NAMED

    @property
    def texts(self) -> tuple[str, ...]:
        """The inputs of tokens."""
        return tuple(name for name, item in self.inputs.items() if item.kind == "tokens")

    @property
    def files(self) -> Mapping[str, Recorded]:
        """The inputs that a line of text names files for."""
        recorded = {name: item.recorded for name, item in self.inputs.items()}
        return {name: item for name, item in recorded.items() if suffixes_of(item)}

    @property
    def file_columns(self) -> Mapping[str, Recorded]:
        """The columns of names of files: those of `files`, and of the second rows of pairs."""
        second = {f"{name}{SIMILAR}": item for name, item in self.files.items()} if self.paired else {}
        return {**self.files, **second}

    @property
    def vocabularies(self) -> Mapping[str, int]:
        """The size of the vocabulary of each input of tokens and each target that is text."""
        given = {name: self.inputs[name].vocabulary for name in self.texts}
        return given | {item.name: item.sizes[-1] for item in self.targets if KINDS[item.kind].tokenized}

    @property
    def special(self) -> Mapping[str, SpecialTokens]:
        """The special tokens of each input of tokens."""
        return {name: self.inputs[name].special for name in self.texts}

    @property
    def labelled(self) -> bool:
        """Whether the data has labels; otherwise the model learns to predict the next token."""
        return not TASKS[self.task].writes

    @property
    def paired(self) -> bool:
        """Whether each example is a pair of inputs that belong together."""
        return any(TARGETS[target.kind].paired for target in self.targets)

    @property
    def words(self) -> bool:
        """Whether texts are read word by word, because each word has a target."""
        along = [target for target in self.targets if target.positions is not None]
        return any(target.settings.get("each", "word") == "word" for target in along)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a line of text."""
        if self.objective is not None:
            return ("text",)
        given = tuple(name for name in self.inputs if name in self.texts or name in self.files)
        if not self.declared:
            return (*given, COLUMN) if self.labelled else given
        second = tuple(f"{name}{SIMILAR}" for name in given) if self.paired else ()
        return (*given, *second, *(item.name for item in self.targets if not TARGETS[item.kind].paired))

    @property
    def complete(self) -> Complete:
        """Which lines of text are examples. A text may be empty beside other inputs, as its end token; not the texts
        of which each word has a label, nor those of pairs, of translations and of objectives."""
        named = not self.declared and (self.positions is not None or not self.labelled)
        if named or self.words or self.paired or self.objective is not None:
            return is_full
        given = [name for name in self.columns if name in self.inputs and name != self.written]
        ends = {name for name in given if name in self.texts and self.special[name].ends}
        return partial(is_example, given=given, empty=ends)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of files that can hold the data."""
        if self.objective is not None or (not self.labelled and not self.declared):
            return ("txt", *TABLES)
        files, own = self.files, [name for name in self.texts if self.inputs[name].is_sequence]
        if files and not self.declared:
            only_text = len(files) == len(self.inputs) and self.positions is None
        else:
            only_text = len(self.texts) + len(files) == len(self.inputs) and (self.positions is None or len(own) == 1)
        return ("tsv", "npz") if only_text else ("npz",)


def data_schema(spec: Spec) -> DataSchema:
    """Return the schema of a spec's data. Raises: SpecError."""
    outputs, labelled = spec.graph().outputs, spec.written is None
    axes, sequences = outputs[0].type.axes, sequences_of(spec.inputs)
    targets = tuple(
        Target(
            result.name,
            target_of(result, spec.results),
            result.kind,
            tuple(axis.size for axis in value.type.axes[1:] if axis.size is not None),
            KINDS[result.kind].positions(value.type, sequences),
            result.settings,
        )
        for result, value in zip(spec.results, outputs, strict=True)
        if result.kind != "text"
    )
    declared = spec.task not in NAMED
    return DataSchema(
        task=spec.task,
        inputs=spec.inputs,
        classes=axes[-1].size or 0,
        positions=axes[1].name if labelled and not declared and len(axes) == 3 else None,
        longest=min(spec.train.max_length, spec.train.batch_tokens),
        targets=targets if declared else (),
        written=spec.written if declared else None,
        objective=spec.train.objective,
    )
