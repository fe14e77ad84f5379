"""ONNX models of graphs."""
