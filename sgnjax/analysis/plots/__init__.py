"""Pictures: what all of them share, those of a run, and panels for everything else."""

from sgnjax.analysis.plots.activations import periods, power_spectra, scalograms
from sgnjax.analysis.plots.runs import (
  attention_by_piece,
  attention_shares,
  filter_responses,
  gate_responses,
  kernels,
  loss_curves,
  meta_gate,
  text_heat,
)
from sgnjax.analysis.plots.style import save

__all__ = [
  'attention_by_piece',
  'attention_shares',
  'filter_responses',
  'gate_responses',
  'kernels',
  'loss_curves',
  'meta_gate',
  'periods',
  'power_spectra',
  'save',
  'scalograms',
  'text_heat',
]
