"""The benchmarks behind every figure of the documentation."""
