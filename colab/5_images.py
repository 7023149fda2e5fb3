# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 5 Images
#
# An encoder sees the whole of its input, so that the published transforms are as they should be.
# Here scikit-learn's digits, 8 x 8 pixels in patches of 2 x 2: no download.

# %%
# Nothing to do where sgnjax is installed. Colab: its GPU or TPU keeps a JAX of its own kind.
import importlib.util
import os
import shutil
import subprocess
import sys

SOURCE = 'sgnjax'  # a name of PyPI, a git address, or the path of a checkout or of a wheel
if importlib.util.find_spec('sgnjax') is None:
  kind = 'cuda12' if shutil.which('nvidia-smi') else 'tpu' if os.path.exists('/dev/accel0') else ''
  jax_for_here = f'jax[{kind}]' if kind else 'jax'
  subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', SOURCE, jax_for_here], check=True)

SMALL = bool(os.environ.get('SGNJAX_SMALL'))  # a quick pass, as the tests make it

# %%
if importlib.util.find_spec('sklearn') is None:
  subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', 'scikit-learn'], check=True)

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import sgnjax
from sgnjax import config as config_lib
from sgnjax.data import pipeline

STEPS = 60 if SMALL else 600
SIZES = [f'train.steps={STEPS}', f'train.eval_every={STEPS}', f'train.checkpoint_every={STEPS}']
runs = {}
for name, mixer in {'SGN': 'sgn', 'attention': 'softmax', 'FNet': 'fnet'}.items():
  changes = [*SIZES, f'model.mixer={mixer}', 'train.progress=false']
  config = config_lib.load('configs/digits.py', changes)
  runs[name] = sgnjax.train(config, f'runs/notebook_5/{mixer}')
for name, run in runs.items():
  print(f'{name:10} {run.final["accuracy"]:.1%} of {run.final["examples"]} held-out images; '
        f'the most frequent class: {run.final["majority"]:.1%}')  # fmt: skip

# %% [markdown]
# ## What is mistaken for what

# %%
run = runs['SGN']
model, params, _ = run.load()
data = pipeline.load(run.config)
apply = jax.jit(lambda images: model.apply({'params': params}, images).y_BLD)
images, labels, said = [], [], []
for batch in pipeline.eval_windows(run.config, data, 'validation'):
  images.append(batch['image'])
  labels.append(batch['label'])
  said.append(np.argmax(np.asarray(apply(batch['image'])), axis=-1))
images, labels, said = map(np.concatenate, (images, labels, said))
kept = labels >= 0  # the last batch is filled up
images, labels, said = images[kept], labels[kept], said[kept]

confusion = np.zeros((10, 10), int)
np.add.at(confusion, (labels, said), 1)
figure, ax = plt.subplots(figsize=(4.6, 4), layout='constrained')
ax.imshow(np.log1p(confusion), cmap='Blues')
for i, j in zip(*np.nonzero(confusion), strict=True):
  ink = 'white' if confusion[i, j] > confusion.max() / 3 else 'black'
  ax.text(j, i, confusion[i, j], ha='center', va='center', color=ink, fontsize=8)
ax.set(xticks=range(10), yticks=range(10), xlabel='said', ylabel='is')
plt.show()

# %%
wrong = np.flatnonzero(labels != said)[:10]
figure, axes = plt.subplots(1, max(1, len(wrong)), figsize=(9, 1.6), squeeze=False)
for ax, i in zip(axes[0], wrong, strict=False):
  ax.imshow(images[i, :, :, 0], cmap='gray_r')
  ax.set_title(f'{labels[i]}, said {said[i]}', fontsize=9)
for ax in axes[0]:
  ax.axis('off')
plt.show()
