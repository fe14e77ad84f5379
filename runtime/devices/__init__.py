"""Where engines run that are driven step by step: the processor, and GPUs through ONNX Runtime and TensorRT."""
