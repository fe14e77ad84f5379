"""What a training run needs, before it is paid for: memory, communication, time and cost."""
