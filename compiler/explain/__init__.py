"""What explains a model: its cost (`cost`), its picture (`picture`), what its heads attend to (`attention`)."""
