"""Every shipped spec with small sizes: the same architecture, fast to build."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from xformc.compiler.spec import Spec, load_spec
from xformc.specs import SHIPPED, shipped_specs

SMALL = {
    "sets": 1,
    "d_model": 16,
    "d_ff": 24,
    "d_a": 8,
    "heads": 4,
    "d_k": 4,
    "d_v": 4,
    "groups": 2,
    "group_heads": 2,
    "experts": 4,
    "chosen": 2,
    "window": 3,
    "best_keys": 3,
    "buckets": 8,
    "distances": 8,
    "max_distance": 6,
    "random_features": 8,
    "rank": 6,
    "features": 6,
    "height": 32,
    "width": 32,
    "labels": 5,
    "vocabulary": 60,
    "source_vocabulary": 60,
    "target_vocabulary": 50,
    "max_positions": 40,
    "half": 8,
}
"""Sizes by name; a size that a spec computes from others stays computed."""

KERNELS = {"width": 3, "channels": 8}
"""The sizes of a spec without an image, where `width` is that of a convolution."""


def names() -> list[str]:
    """The shipped specs but the rows of Table 3, which differ from the base model in sizes only."""
    return [name for name in shipped_specs() if not name.startswith("table3/")]


@cache
def shipped(name: str) -> Spec:
    """The shipped spec, read and expanded once in a process."""
    return load_spec(SHIPPED / f"{name}.yaml")


@cache
def small(name: str, layers: int = 2) -> Spec:
    """The spec with small sizes, read and expanded once in a process."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.yaml"
        path.write_text(small_text(name, layers), encoding="utf-8")
        return load_spec(path)


def small_text(name: str, layers: int = 2) -> str:
    """The spec with small sizes as a file."""
    document = yaml.load(shipped(name).resolved_yaml(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    wanted = SMALL if "height" in document["sizes"] else SMALL | KERNELS
    sizes = {key: value for key, value in document["sizes"].items()}
    sizes |= {key: wanted[key] for key, value in sizes.items() if key in wanted and not isinstance(value, str)}
    if "layers" in sizes:
        sizes["layers"] = layers
        document["tie"] = [paths for group in document["tie"] if len(paths := _kept(group, layers)) > 1]
    document["sizes"] = sizes
    if "max_length" in document["train"]:
        document["train"]["max_length"] = 32
    return yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)


def _kept(group: list[str], layers: int) -> list[str]:
    """The paths of a tie that are there when there are only so many layers."""
    return [path for path in group if not any(part.isdigit() and int(part) >= layers for part in path.split("/"))]
