"""Models outside of a run: safetensors, programs for jax alone, a card, and the way back."""
