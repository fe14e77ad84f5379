"""What a spec costs, counted from its graph and measured: parameters, operations, memory, path lengths."""
