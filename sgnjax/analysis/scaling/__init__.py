"""What a longer sequence costs, mixer by mixer: measured, and continued by a fitted law."""
