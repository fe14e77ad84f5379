"""The cost of a spec, counted from its graph and measured: parameters, operations, memory, path lengths."""
