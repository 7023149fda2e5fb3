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
# # 4 Scaling the sequence
#
# A step of gated causal SGN and of attention, the same width and depth, from short to long:
# seconds, memory, and the exponent of each. On a GPU or TPU the same cells go further.

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
import jax
import matplotlib.pyplot as plt

from sgnjax import config as config_lib
from sgnjax.analysis.benchmark import timing
from sgnjax.analysis.benchmark.step import Bare
from sgnjax.analysis.scaling import law

LENGTHS = (128, 256) if SMALL else (256, 512, 1024, 2048, 4096)
MIXERS = {'SGN': 'sgn', 'attention': 'softmax'}


def step(mixer, length):
  """The compiled training step of one row of so many tokens."""
  sizes = ['model.layers=2', 'model.width=128', 'model.heads=4', 'model.vocab=256']
  sizes += [f'model.mixer={mixer}', f'model.context={length}', 'train.batch=1', 'mesh.data=1']
  return Bare(config_lib.load('configs/quickstart.py', sizes))


# %%
seconds, memory = {name: [] for name in MIXERS}, {name: [] for name in MIXERS}
for length in LENGTHS:
  steps = {name: step(mixer, length) for name, mixer in MIXERS.items()}
  took = timing.interleaved(steps, 3 if SMALL else 7)
  for name, one in steps.items():
    seconds[name].append(took[name])
    memory[name].append(one.program.peak / 2**20)
  print(f'{length:6,} tokens: ' + ', '.join(f'{n} {1e3 * seconds[n][-1]:.0f} ms' for n in MIXERS))
print(jax.devices()[0].device_kind)

# %% [markdown]
# The slope of a line is its exponent: 1 is a cost in proportion to the length.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout='constrained')
for ax, values, label in zip(
  axes, (seconds, memory), ('seconds a step', 'MiB at the peak'), strict=True
):
  for (name, ys), style in zip(values.items(), ('o-', 's--'), strict=True):
    exponent = law.fit(LENGTHS, ys).exponent
    ax.loglog(LENGTHS, ys, style, label=f'{name}: exponent {exponent:.2f}')
  ax.set(xlabel='tokens', ylabel=label)
  ax.set_xticks(LENGTHS, [f'{n:,}' for n in LENGTHS])
  ax.minorticks_off()
  ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## A million tokens
#
# The length can lie over several devices (`mesh.sequence`): tokens are traded for channels around
# what runs along the length, so that no device holds a whole row. `configs/sgn_million.py` is
# such a run, and a plan says what each device holds:
#
# ```
# sgnjax --config=configs/sgn_million.py --job=plan --config.target=cpu-8
# ```
