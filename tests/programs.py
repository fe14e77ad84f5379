"""Programs that deviate from their spec in one respect."""

from collections.abc import Mapping
from dataclasses import fields

from xformc.compiler.program import Program
from xformc.format.inputs import Input


def with_inputs(program: Program, inputs: Mapping[str, Input]) -> Program:
    """The same program with these inputs, or those of them that it has otherwise."""

    class Changed(Program):
        @property
        def inputs(self) -> dict[str, Input]:
            return {**super().inputs, **inputs}

    return Changed(**{field.name: getattr(program, field.name) for field in fields(program)})
