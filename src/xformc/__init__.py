"""xformc: one YAML spec becomes a PyTorch module to train and a certified ONNX engine to ship."""

__version__ = "0.1.0"
