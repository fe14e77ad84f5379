"""TensorRT plans of ONNX models."""
