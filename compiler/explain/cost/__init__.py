"""Parameters, operations, memory and paths of a spec, computed and measured."""
