"""How a run's mechanisms changed while it trained: routes, gates and thresholds over the steps."""

from sgnjax.analysis.page import Picture
from sgnjax.analysis.plots.over_training import Band, Panel, figure

# Of a record, by the start of a key: the axis, and its limits.
LOGGED = {
  'meta_gate/': ('MetaRouter: gate of the first layer', (0, 1)),
  'attention_share/': ('share of tokens at attention', (0, 1)),
}
LEARNED = {
  'tau': 'tau, threshold of the energy gates',
  'alpha': 'alpha, slope of the energy gates',
  'log_centre': "log of the filters' centres (cycles per token)",
}


def panels(records: list[dict], *, leaky: bool) -> list[Panel]:
  """A panel for each quantity that the records tell over at least two steps."""
  found = []
  train = [r for r in records if r['kind'] == 'train']
  for start, (ylabel, ylim) in LOGGED.items():
    keys = dict.fromkeys(k for r in train for k in r if k.startswith(start))
    bands = []
    for key in keys:
      told = [(r['step'], r[key]) for r in train if key in r]
      label = f'layer {int(key.rpartition("/")[2]) + 1}'
      bands.append(Band(label, *zip(*told, strict=True), leaky=leaky))
    bands = [b for b in bands if len(b.steps) > 1]
    found += [Panel(ylabel, bands, ylim=ylim)] if bands else []
  learned = [r for r in records if r['kind'] == 'evaluation' and 'learned' in r]
  for name, ylabel in LEARNED.items():
    told = [(r['step'], *r['learned'][name]) for r in learned if name in r['learned']]
    if len(told) > 1:
      band = Band('mean over heads and layers; band: all of them', *zip(*told, strict=True))
      found.append(Panel(ylabel, [band._replace(leaky=leaky)]))
  return found


def history(records: list[dict], *, leaky: bool) -> list[Picture]:
  """One picture with all panels; none where nothing was logged."""
  shown = panels(records, leaky=leaky)
  if not shown:
    return []
  caption = 'Means over the steps between two marks; what is learned, at each evaluation.'
  return [Picture('history', figure('While it trained', shown, leaky=leaky), caption)]
