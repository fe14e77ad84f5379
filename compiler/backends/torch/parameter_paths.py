"""Parameter paths such as `encoder/3/query/weight`, and PyTorch's dotted names such as `encoder.3.query.weight`.

A part of a path that `nn.Module` uses itself, such as `forward`, gets an underscore: `both_ways.forward_.weight`.
"""

from torch import nn

_OWN = (
    *("add_block", "add_parameter", "all_steps", "all_values", "arrays", "enter_values", "graph", "is_called"),
    *("load_arrays", "parameter_values", "plan", "with_maps"),
)
_RESERVED = frozenset({*dir(nn.Module()), *_OWN})


def attribute_of(part: str) -> str:
    """The attribute of a module for one part of a path."""
    return f"{part}_" if part.rstrip("_") in _RESERVED else part


def path_of(name: str) -> str:
    """The path of a parameter with this dotted name."""
    return "/".join(_part(attribute) for attribute in name.split("."))


def parameters_by_path(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a module under their paths, as the files on disk name them."""
    return {path_of(name): parameter for name, parameter in model.named_parameters()}


def _part(attribute: str) -> str:
    return attribute[:-1] if attribute.rstrip("_") in _RESERVED else attribute
