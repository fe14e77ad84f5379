"""The devices that run searches step by step: the CPU, and GPUs through ONNX Runtime and TensorRT."""
