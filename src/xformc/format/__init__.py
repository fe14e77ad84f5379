"""The engine on disk: its files, manifest and certificate, and the names of precisions, targets, tasks and tokens."""
