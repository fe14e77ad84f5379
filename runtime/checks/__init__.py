"""What is found out about an engine: its own consistency, its agreement with libxformc, its speed and memory."""
