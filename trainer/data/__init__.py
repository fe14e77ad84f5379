"""Reads text and arrays, trains vocabularies, names labels, and forms batches."""
