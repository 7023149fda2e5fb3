"""ImageNet, SGN as published: 12 layers, width 768, a DCT over 196 patches of 16 x 16 pixels.

Command: python launch/main.py --config=configs/sgn_imagenet.py --job=plan
  (a 2-D DCT over the grid of patches: --config.model.sgn.grid=14,14; baselines:
  --config.model.form=bidirectional --config.model.mixer=softmax, fnet, linear or performer)
Cost: 1,501,000 steps of 256 images, 300 epochs. Hardware: 8 GPUs or a TPU slice. Result: not run
yet (the paper: accuracy 78.4 %, against 76.1 % of its Transformer).
"""

from configs import base


def get_config():
  c = base.sgn_images()
  c.model.width = 768
  c.model.heads = 12
  c.model.context = 196
  c.model.image = (224, 224, 3)
  c.model.patch = 16
  c.data.name = 'imagenet2012'
  c.data.image_size = 224
  c.train.steps = 1_501_000
  c.train.batch = 256
  c.optim.warmup = 10_000
  return c
