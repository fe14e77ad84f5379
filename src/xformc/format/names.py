"""The names of the files of an engine and of a run, and of what a driven step gives."""

MANIFEST, SPEC, CERTIFICATE = "engine.json", "spec.yaml", "certificate.json"
MODEL, DATA = "model.onnx", "model.onnx.data"
PREPARE, STEP = "prepare.onnx", "step.onnx"
"""The two models of a search that a runtime drives."""

PLAN = ".plan"
"""A plan of TensorRT has the name of its model, with this in the place of .onnx."""

GO_ON, NEXT = "go_on", "_next"
"""The output of a step that says whether another one is wanted, and how the names of its new carried values end."""

WEIGHTS, LABELS, TOKENIZER = "weights.safetensors", "labels.txt", "tokenizer.model"
