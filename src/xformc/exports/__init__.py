"""Exports runs and engines as models of other libraries; the families' tables are read backwards."""
