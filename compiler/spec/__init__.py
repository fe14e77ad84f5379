"""The spec language: reads YAML and builds a checked graph. Imports neither torch nor onnx."""

from xformc.compiler import ops
from xformc.compiler.spec.editor import json_schema
from xformc.compiler.spec.load_spec import load_spec
from xformc.compiler.spec.problems import Problem, SpecError
from xformc.compiler.spec.sections import Decode, Train
from xformc.compiler.spec.settings import settings_of
from xformc.compiler.spec.spec import Input, Spec

assert ops, "importing the ops registers the primitives"

__all__ = ["Decode", "Input", "Problem", "Spec", "SpecError", "Train", "json_schema", "load_spec", "settings_of"]
