"""The ONNX domain and version of xformc's own operators (docs/kernels.md)."""

DOMAIN, OPERATORS = "xformc", 1
