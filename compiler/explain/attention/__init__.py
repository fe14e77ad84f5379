"""Shows what each head of a model attends to: the attention weights of an engine for a text, as a page or a figure."""
