"""Reads a spec from a file: one model, or an ensemble of several."""

from collections.abc import Sequence
from pathlib import Path

from xformc.compiler.spec.ensemble import MEMBERS, read_ensemble
from xformc.compiler.spec.load import load_tree
from xformc.compiler.spec.settings import apply_settings, parse_settings
from xformc.compiler.spec.spec import Spec, read_spec


def load_spec(path: Path, settings: Sequence[str] = ()) -> Spec:
    """Read a spec; settings `PATH=VALUE` replace values of the file.

    Raises: SpecError with every mistake found before expansion; UserError if there is no file or a setting has no path.
    """
    tree = apply_settings(load_tree(path), parse_settings(settings))
    return read_ensemble(tree, path.stem) if MEMBERS in tree.entries else read_spec(tree, path.stem)
