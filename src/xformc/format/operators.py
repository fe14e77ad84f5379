"""xformc's own operators, which docs/kernels.md defines: their domain in ONNX models, and their version."""

DOMAIN, OPERATORS = "xformc", 2
