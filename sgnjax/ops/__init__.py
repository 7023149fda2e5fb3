"""The mathematics: pure functions on arrays, with no parameters and no modules."""
