"""The ids of special tokens, the same in every vocabulary, model and engine."""

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
SPECIAL = {"pad": PAD, "unknown": UNKNOWN, "begin": BEGIN, "end": END}
"""The special tokens by their names in engine.json."""

IGNORE = -100
"""The label of a position without one in training labels; elsewhere such a position is PAD."""
