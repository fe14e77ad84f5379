"""The runtime: loads an engine and runs it, given numpy, onnxruntime and sentencepiece.

from xformc.runtime import load

engine = load("demo/engine")
[[best]] = engine.translate(["forty-two"])
print(best.text, best.score)
"""

from xformc.format.manifest import Manifest, SampleOptions, SearchOptions
from xformc.format.reader import read_manifest
from xformc.runtime.alignment import Alignment
from xformc.runtime.automaton import Automaton
from xformc.runtime.choose import minimum_bayes_risk
from xformc.runtime.engine import Engine, load
from xformc.runtime.generate import Continuation
from xformc.runtime.kinds.labels import Prediction
from xformc.runtime.options import BeamArguments, SearchArguments
from xformc.runtime.sampling import SampleArguments
from xformc.runtime.search import SearchResult
from xformc.runtime.server import Reply, Server
from xformc.runtime.translate import Hypothesis
from xformc.runtime.translation_server import TranslationReply, TranslationServer

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
