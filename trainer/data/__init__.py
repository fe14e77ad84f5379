"""From files to batches: text and arrays, their vocabularies and labels."""
