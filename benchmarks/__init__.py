"""The benchmarks: every figure of the documentation comes from a command in here."""
