"""The runtime: loads an engine and runs it, given numpy, onnxruntime and sentencepiece.

from xformc.runtime import load

engine = load("demo/engine")
[[best]] = engine.translate(["forty-two"])
print(best.text, best.score)
"""

from xformc.format.manifest import Manifest, SampleOptions, SearchOptions
from xformc.format.reader import read_manifest
from xformc.runtime.constraints.automaton import Automaton
from xformc.runtime.engine import Engine, load
from xformc.runtime.generation.generate import Continuation
from xformc.runtime.generation.sampling import SampleArguments
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.options import BeamArguments, SearchArguments
from xformc.runtime.searching.alignment import Alignment
from xformc.runtime.searching.choose import minimum_bayes_risk
from xformc.runtime.searching.search import SearchResult
from xformc.runtime.searching.translate import Hypothesis
from xformc.runtime.serving.continuations import Reply, Server
from xformc.runtime.serving.translations import TranslationReply, TranslationServer

__all__ = [
    "Alignment",
    "Automaton",
    "BeamArguments",
    "Continuation",
    "Engine",
    "Hypothesis",
    "Manifest",
    "Prediction",
    "Reply",
    "SampleArguments",
    "SampleOptions",
    "SearchArguments",
    "SearchOptions",
    "SearchResult",
    "Server",
    "TranslationReply",
    "TranslationServer",
    "load",
    "minimum_bayes_risk",
    "read_manifest",
]
