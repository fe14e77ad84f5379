"""Training data larger than memory: texts become token ids once, in files that training reads in windows."""
