"""The architecture of a spec as a picture."""
