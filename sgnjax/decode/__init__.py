"""Writing with a trained model: `generate` for tokens, `write` for text."""
