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
# # 1 Quickstart: audit, train, write
#
# A small language model on the English text inside Python itself: no download. Its layers filter
# the sequence by a learned, one-sided kernel (gated causal SGN) in the place of attention.

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
import matplotlib.pyplot as plt
from IPython.display import Image, display

import sgnjax
from sgnjax import config as config_lib

STEPS = 60 if SMALL else 300
config = config_lib.load(
  'configs/quickstart.py',
  [f'train.steps={STEPS}', f'train.eval_every={STEPS // 3}', 'train.progress=false'],
)
m = config.model
print(f'{m.mixer}, {m.form}: {m.layers} layers of width {m.width}, context {m.context}')

# %% [markdown]
# ## May it see the future?
#
# Later tokens are replaced, and every logit before them is compared in float64. Training makes
# the same audit first, and stops where a model fails it.

# %%
report = sgnjax.audit(config)
print(report.table())
print(report.verdict())

# %% [markdown]
# ## Train
#
# The same line again resumes, or returns at once when it is finished.

# %%
run = sgnjax.train(config, 'runs/notebook_1')
final = run.final
print(f'{run.status}: {final["loss"]:.3f} nats a character, {final["bits_per_byte"]:.3f} bits/byte')
print(f'token frequencies alone: {final["unigram_bits_per_byte"]:.3f} bits/byte')

# %%
records = run.records()
losses = [loss for r in records if r['kind'] == 'train' for loss in r['losses']]
held_out = [r for r in records if r['kind'] == 'evaluation']
figure, ax = plt.subplots(figsize=(7, 3.2), layout='constrained')
ax.plot(range(1, len(losses) + 1), losses, color='#9ecae1', lw=1, label='training, each step')
steps, values = [r['step'] for r in held_out], [r['loss'] for r in held_out]
ax.plot(steps, values, 'o-', color='#0072B2', label='validation, the whole split')
ax.axhline(final['unigram'], color='#5a5a5a', ls=':', label='token frequencies alone')
ax.set(xlabel='step', ylabel='nats a character')
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Write
#
# One token at a time, from a cache.

# %%
print(run.write('The ', tokens=80 if SMALL else 300, temperature=0.8, seed=1))

# %% [markdown]
# ## What the layers learned
#
# The gate of a layer is the real part of a filter's response; its kernel is what the layer does
# along the text. The report has both, the losses, the audit and the settings in one page.

# %%
print(run.report())
for picture in sorted((run.workdir / 'pictures').glob('*.png')):
  display(Image(str(picture), width=640))
