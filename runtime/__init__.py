"""The runtime: loads an engine and translates with it, given numpy, onnxruntime and sentencepiece.

from xformc.runtime import load

engine = load("demo/engine")
[[best]] = engine.translate(["forty-two"])
print(best.text, best.score)
"""

from xformc.runtime.engine import Engine, Hypothesis, SearchResult, load
from xformc.runtime.manifest import Manifest, read_manifest
from xformc.runtime.options import SearchArguments, SearchOptions

__all__ = [
    "Engine",
    "Hypothesis",
    "Manifest",
    "SearchArguments",
    "SearchOptions",
    "SearchResult",
    "load",
    "read_manifest",
]
