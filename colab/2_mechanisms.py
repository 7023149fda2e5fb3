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
# # 2 The four mechanisms, seen
#
# Filters, gates and routes, before any training. Each has a form that a language model may use,
# and the published one, which sees what comes later.

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
import io

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display

from sgnjax.analysis.gallery import chiar, ega, fourier_qk, sgn


def show(figure):
  picture = io.BytesIO()
  figure.savefig(picture, format='png', dpi=100)
  display(Image(picture.getvalue()))


# %% [markdown]
# ## SGN: a gate on the DCT of the sequence
#
# As published the gate acts on a transform of the whole sequence: as a matrix, it is a
# convolution and its reflection at the ends, and half of it lies above the diagonal, in the
# future. The causal form keeps the gate as the real part of the response of a one-sided kernel.

# %%
show(sgn.sgn_operator())

# %%
show(sgn.sgn_kernels())

# %% [markdown]
# ## FourierQK: queries and keys band-passed
#
# A filter over the whole sequence is circular: the first query is mixed with the last one. In its
# place, the same one-sided kernel of the filter, or 128 taps into the past.

# %%
show(fourier_qk.fourier_qk_responses())

# %%
show(fourier_qk.fourier_qk_taps())

# %% [markdown]
# ## CHIAR-Former: tokens routed by their spectral entropy
#
# The entropy of a token's DCT over its own channels decides between mixing channels and
# attention. White noise has nearly the entropy that the paper calibrates its threshold by.

# %%
show(chiar.chiar_entropy(300 if SMALL else 1500))

# %% [markdown]
# ## EGA: a gate on the keys
#
# A sigmoid of a token's energy says how much it may be attended to. What the energy is compared
# with decides who sees whom: with the whole sequence (published), with what the query sees, with
# what came before the key.

# %%
show(ega.ega_gates())

# %%
show(ega.ega_wavelets())

# %% [markdown]
# ## A scalogram
#
# The same text as energies of four octaves of a causal wavelet transform: words and spaces are
# events of different length.

# %%
import jax.numpy as jnp

from sgnjax.ops.wavelets import atrous, filters

TEXT = 'A gate on the keys of attention, driven by an energy of each token.'
signal_L = np.array([float(c.isalpha()) for c in TEXT], np.float32)
low, high = (jnp.asarray(f, jnp.float32)[None] for f in filters('db2'))
detail_SL = np.asarray(atrous(jnp.asarray(signal_L)[None, None], low, high, 4)[0])[0, 0]
figure, ax = plt.subplots(figsize=(9, 2.4), layout='constrained')
image = ax.imshow(detail_SL**2, aspect='auto', cmap='viridis', interpolation='nearest')
ax.set_xticks(range(len(TEXT)), list(TEXT))
ax.set_yticks(range(4), [f'{2**s} to {2 ** (s + 1)} tokens' for s in range(4)])
figure.colorbar(image, label='energy')
plt.show()
