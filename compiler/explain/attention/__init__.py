"""What each head of a model looks at."""
