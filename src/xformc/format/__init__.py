"""The engine on disk: its files, its manifest, and the words for numbers, targets and tokens."""
