"""What one GPU gives: MFU of chiar_400m, SGN against cuDNN's attention, the DCT's crossover.

Command: python launch/main.py --job=benchmark --config=configs/bench_gpu.py
Cost: under 10 minutes, most of it compiling. Hardware: one H200 (or another GPU; on a CPU it says
that nothing was run). Result: not run yet.
"""

from configs import base


def get_config():
  c = base.chiar_400m()
  c.model.context = 1024
  c.model.dropout = 0.0
  c.train.batch = 16  # of the context: as many tokens a step at every context
  c.benchmark.parts = 'gpu'
  c.benchmark.repeats = 10
  c.benchmark.seconds = 15.0
  c.benchmark.contexts = (1024, 4096)
  c.benchmark.lengths = (1024, 4096, 16_384, 65_536, 262_144)
  return c
