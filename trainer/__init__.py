"""The trainer: text -> batches -> steps -> checkpoints -> evaluation; `train.train` does all of it."""
