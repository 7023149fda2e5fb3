"""TinyShakespeare, softmax attention on the EGA paper's scaffold: 4,816,640 parameters.

Command: python launch/main.py --config=configs/shakespeare_softmax.py
  (a local file instead of TFDS: --config.data.name=text --config.data.path=input.txt)
Cost: 5,000 steps of 64 x 256 tokens. Hardware: one GPU. Result: not run yet at full size (the
paper: 1.4742 nats).
"""

from configs import base


def get_config():
  return base.tiny_shakespeare()
