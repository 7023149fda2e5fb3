"""Training: state, step, loop, evaluation, checkpoints. `sgnjax.train(config)` trains."""

from sgnjax.called import also_called

also_called(__name__)
