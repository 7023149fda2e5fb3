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
# # 3 Catching a leak
#
# Two stories. A model of one's own, audited in three lines. Then the published FourierQK and EGA
# beside their causal forms: a loss that is too good, what the shuffled gap says of it, and what
# the audit says.

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

# %% [markdown]
# ## Any function of tokens to logits
#
# This one norms its features over the whole row, an honest mistake. Nothing is differentiated:
# later tokens are replaced, and the logits before them are compared.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sgnjax
from sgnjax import config as config_lib
from sgnjax.analysis import leakage

table_VD = jax.random.normal(jax.random.key(0), (50, 16))


def model(tokens_BL, over_the_row=True):
  x_BLD = jnp.cumsum(table_VD[tokens_BL], axis=1)
  if over_the_row:
    x_BLD = x_BLD - x_BLD.mean(axis=1, keepdims=True)
  return x_BLD @ table_VD.T


for flag in (True, False):
  report = sgnjax.audit(lambda tokens, flag=flag: model(tokens, flag), vocab=50, length=32)
  print(f'norm over the row: {flag}\n  {report.verdict()}')

# %% [markdown]
# ## Two mechanisms, each in two forms
#
# Small models of the text inside Python, trained alike. A published form trains only when a leak
# is allowed, and then says LEAKY beside its numbers.

# %%
STEPS = 40 if SMALL else 400
FORMS = {
  'attention': ['model.mixer=softmax'],
  'EGA, causal': ['model.mixer=ega'],
  'EGA, published': ['model.mixer=ega', 'model.form=published'],
  'FourierQK, causal': ['model.mixer=fourier_qk'],
  'FourierQK, published': ['model.mixer=fourier_qk', 'model.form=published'],
}
SIZES = [
  *('model.layers=2', 'model.width=64', 'model.heads=2', 'model.context=64', 'optim.lr=3e-3'),
  *(f'train.steps={STEPS}', f'train.eval_every={STEPS}', 'train.batch=16', 'train.progress=false'),
  *('allow_leak=true', 'eval.stride=64'),
]
found = {}
for name, changes in FORMS.items():
  config = config_lib.load('configs/quickstart.py', SIZES + changes)
  folder = 'runs/notebook_3/' + name.replace(', ', '_')
  run = sgnjax.train(config, folder)
  found[name] = leakage.measure(run.workdir)

# %%
print(f'{"":24}{"loss":>9}{"shuffled":>10}{"gap":>8}  the gap reads  the audit says')
for name, r in found.items():
  said = f'LEAKY: first in {r["layer"]}' if r['leaky'] else 'causal'
  numbers = f'{r["loss"]:9.3f}{r["shuffled"]:10.3f}{r["gap"]:8.3f}'
  print(f'{name:24}{numbers}  {r["reading"]:13}  {said}')

# %% [markdown]
# The gap is the loss on shuffled text minus the loss in order. It tells how much the order of the
# text matters to a model, and nothing of who sees whom. The audit compares the logits before a
# place when what follows is replaced: exactly nothing may change.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout='constrained', sharey=True)
for ax, mechanism in zip(axes, ('EGA', 'FourierQK'), strict=True):
  for form, style in (('causal', '-'), ('published', '--')):
    name = f'{mechanism}, {form}'
    change_L = np.max([np.asarray(c) for c in found[name]['changes'].values()], axis=0)
    said = ' LEAKY' if found[name]['leaky'] else ''
    ax.semilogy(np.maximum(change_L, 1e-17), style, label=name + said)
  ax.axhline(1e-9, color='#5a5a5a', ls=':', lw=1)
  ax.set(xlabel='place before the replaced half')
  ax.legend(frameon=False, loc='center right', bbox_to_anchor=(1, 0.68))
axes[0].set_ylabel('largest change')
plt.show()
