"""Imports models of other libraries: a table of each family says which spec and which weights are its own."""
