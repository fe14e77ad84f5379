"""Engines for a GPU as the compiler writes them, without a certificate, which others make or do without."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xformc.compiler.backends.initializers import Initializers, save_models
from xformc.compiler.graph.precision import Precision
from xformc.compiler.pipeline import Compiled, emit_engine
from xformc.runtime.manifest import Target


def write_engine(
    compiled: Compiled, weights: Mapping[str, Any], precision: Precision, target: Target, folder: Path
) -> Mapping[str, Precision]:
    """Write the models into the new `folder`; in which numbers each weight is."""
    folder.mkdir()
    chosen = compiled.spec.precisions(precision)
    initializers = Initializers(weights, chosen)
    save_models(emit_engine(compiled, initializers, target), initializers, folder)
    return chosen
