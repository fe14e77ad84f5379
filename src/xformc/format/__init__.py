"""The engine on disk: its files, its manifest, its certificate, and the words for precisions, targets and tokens."""
