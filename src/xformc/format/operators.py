"""The ONNX domain and version of xformc's own operators (docs/kernels.md)."""

DOMAIN, OPERATORS = "xformc", 24

OLDEST_OPERATORS = 2
"""The oldest version whose models give the same results with the operators of this version."""
