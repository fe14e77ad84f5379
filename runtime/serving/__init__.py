"""Servers: the texts of many callers share one batch, which each of them joins and leaves."""
