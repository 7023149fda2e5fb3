"""CIFAR-100, SGN as published: 12 layers, width 384, a DCT over 64 patches of 4 x 4 pixels.

Command: python launch/main.py --config=configs/sgn_cifar100.py
  (a 2-D DCT over the grid of patches: --config.model.sgn.grid=8,8; baselines:
  --config.model.form=bidirectional --config.model.mixer=softmax, fnet, linear or performer)
Cost: 70,300 steps of 128 images, 200 epochs of 45,000. Hardware: one GPU. Result: not run yet (the
paper prints these hyperparameters, and an accuracy for CIFAR-10 alone).
"""

from configs import base


def get_config():
  c = base.sgn_images()
  c.data.name = 'cifar100'
  c.train.steps = 70_300
  return c
