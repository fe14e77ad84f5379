"""What explains a model: its cost, its picture, its attention."""
