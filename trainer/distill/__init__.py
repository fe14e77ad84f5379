"""Training data from the texts that an engine writes."""
