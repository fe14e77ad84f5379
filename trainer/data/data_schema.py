"""The schema of the training data for a spec."""

from collections.abc import Mapping
from dataclasses import dataclass

from xformc.compiler.spec import Spec
from xformc.compiler.spec.model import Input
from xformc.format.tasks import TASKS
from xformc.trainer.data.label_names import COLUMN


@dataclass(frozen=True)
class DataSchema:
    """The task and the inputs of a spec.

    classes: the size of the output's last axis. positions: the input whose positions each have a label, or None.
    longest: the maximum positions of a sequence.
    """

    task: str
    inputs: Mapping[str, Input]
    classes: int
    positions: str | None
    longest: int

    @property
    def texts(self) -> tuple[str, ...]:
        """The inputs of tokens."""
        return tuple(name for name, item in self.inputs.items() if item.kind == "tokens")

    @property
    def labelled(self) -> bool:
        """Whether the data has labels; otherwise the model learns to predict the next token."""
        return not TASKS[self.task].writes

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a line of text."""
        return (*self.texts, COLUMN) if self.labelled else self.texts

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of files that can hold the data."""
        if not self.labelled:
            return ("txt",)
        only_text = len(self.texts) == len(self.inputs) and (self.positions is None or len(self.texts) == 1)
        return ("tsv", "npz") if only_text else ("npz",)


def data_schema(spec: Spec) -> DataSchema:
    """Return the schema of a spec's data. Raises: SpecError."""
    axes, labelled = spec.graph().outputs[0].type.axes, spec.written is None
    return DataSchema(
        task=spec.task,
        inputs=spec.inputs,
        classes=axes[-1].size or 0,
        positions=axes[1].name if labelled and len(axes) == 3 else None,
        longest=min(spec.train.max_length, spec.train.batch_tokens),
    )
