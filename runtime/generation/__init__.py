"""Continuations of a prompt by sampling: options, drafts, stop strings, and streams of tokens."""
