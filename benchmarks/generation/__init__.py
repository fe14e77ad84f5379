"""Language models beside other systems: see `__main__`."""
