"""CIFAR-10, SGN as published: the settings that its paper prints for CIFAR-100.

Command: python launch/main.py --config=configs/sgn_cifar10.py
  (a 2-D DCT over the grid of patches: --config.model.sgn.grid=8,8; baselines:
  --config.model.form=bidirectional --config.model.mixer=softmax, fnet, linear or performer; files
  instead of TFDS: --config.data.path=FOLDER)
Cost: 70,300 steps of 128 images, 200 epochs of 45,000. Hardware: one GPU. Result: not run yet (the
paper: accuracy 94.7 %, against 92.3 % of its Transformer, with settings that it does not print).
"""

from configs import base


def get_config():
  c = base.sgn_images()
  c.data.name = 'cifar10'
  c.train.steps = 70_300
  return c
