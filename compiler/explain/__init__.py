"""Explains models: costs (`cost`), pictures (`picture`), and what the heads attend to (`attention`)."""
