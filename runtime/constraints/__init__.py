"""What a text must match: automata of tokens, which regular expressions and JSON schemas become."""
