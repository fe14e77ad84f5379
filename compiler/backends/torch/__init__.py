"""Graphs as PyTorch modules."""
