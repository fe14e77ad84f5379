"""What each head of a model attends to: the weights of an engine for a text, as a page or a file."""
