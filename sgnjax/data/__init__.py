"""Text to batches: where text comes from, how it becomes tokens, in which order they are read."""
