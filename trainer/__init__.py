"""The trainer: data -> batches -> updates -> checkpoints -> scores; `train.train` runs all of it."""
