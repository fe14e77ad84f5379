"""The architecture of a spec as a picture: an outline of its frames, laid out and drawn."""
