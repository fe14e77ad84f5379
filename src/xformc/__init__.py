"""xformc: one YAML spec becomes a PyTorch module to train and a certified ONNX engine to ship."""

import os

__version__ = "0.1.0"

# ONNX Runtime reads this when it is imported. Unless told not to, it reports the program and its models to its maker.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
