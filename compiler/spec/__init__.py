"""The spec language: YAML in, a checked graph out. Importing this needs neither torch nor onnx."""

from xformc.compiler import ops
from xformc.compiler.spec.editor import json_schema
from xformc.compiler.spec.problems import Problem, SpecError
from xformc.compiler.spec.sections import Decode, Train
from xformc.compiler.spec.settings import settings_of
from xformc.compiler.spec.spec import Input, Spec, load_spec

assert ops, "importing the ops enters the primitives"

__all__ = ["Decode", "Input", "Problem", "Spec", "SpecError", "Train", "json_schema", "load_spec", "settings_of"]
