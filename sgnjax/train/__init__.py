"""Training: optimiser, step, loop, checkpoints, logs."""
