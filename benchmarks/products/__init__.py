"""How fast the kernels' matrix products are, beside what the processor's instructions can do."""
