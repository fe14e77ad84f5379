"""The ids with a meaning of their own, the same in every vocabulary, model and engine."""

PAD, UNKNOWN, BEGIN, END = 0, 1, 2, 3
SPECIAL = {"pad": PAD, "unknown": UNKNOWN, "begin": BEGIN, "end": END}
"""Under their names in engine.json."""

IGNORE = -100
"""The label of a position that has none, where labels are given; elsewhere it is PAD."""
