"""Quickstart: gated causal SGN on the text inside Python itself.

Command: python launch/main.py --config=configs/quickstart.py
"""

from configs import base


def get_config():
  c = base.get_config()
  c.model.mixer = 'sgn'
  return c
