"""The file names of engines and runs, and the output names of a driven search step."""

MANIFEST, SPEC, CERTIFICATE = "engine.json", "spec.yaml", "certificate.json"
MODEL, DATA = "model.onnx", "model.onnx.data"
OF_TEXT = "results.onnx"
"""The model of the results that depend on the written text."""

SCORES = "scores.onnx"
"""The model of the log probabilities of given texts."""

ALIGNMENTS = "alignments.onnx"
"""The model of the attention weights between given texts and their translations."""

SAMPLES = "samples.onnx"
"""The model that samples the texts which a search writes."""

BEAMS = "beams.onnx"
"""The model that searches for continuations of prompts, which the engine's own model samples."""

PROMPT, CONTINUE = "prompt.onnx", "continue.onnx"
"""The models of a stream of tokens: the one that reads the prompts, and the one that goes on from there."""

CHECK = "check.onnx"
"""The model that continues a stream by drafted tokens, many of them in one pass."""

REFILL, CACHES = "refill.onnx", "caches.onnx"
"""The model of a batch whose texts join and leave, and, with kernels, the one that makes its caches."""

JOIN, ADVANCE = "join.onnx", "advance.onnx"
"""The models of a batch of searches whose texts join and leave: the one that reads the sources of those that join, and
the one that searches on."""

PREPARE, STEP = "prepare.onnx", "step.onnx"
"""The two models of a search that the runtime drives step by step."""

PLAN = ".plan"
"""The suffix of a TensorRT plan, in place of its model's .onnx."""

GO_ON, NEXT = "go_on", "_next"
"""The output of a step that says whether to run another one, and the suffix of its updated state outputs."""

CACHE = "cache"
"""What the names of a step's fixed caches begin with, which a target that has the trait `in_place` writes in place."""

WEIGHTS, LABELS, TOKENIZER = "weights.safetensors", "labels.txt", "tokenizer.model"

SHORTLIST = "shortlist.safetensors"
"""The tokens among which a search may look, beside a run."""

CHECKPOINTS = "checkpoints"
"""The folder of a run with its checkpoints, each named after its step."""

IMPORTED = "import.json"
"""The record of an imported run: its family, and the comparison with the origin."""
