"""The small twin of every variant is a model that can be built."""

import pytest

from configs import base
from sgnjax.analysis.flops import counting_twin
from sgnjax.errors import UserError
from sgnjax.models import build
from sgnjax.models.shrink import shrink
from sgnjax.models.variants import VARIANTS, variant


def sized(**model):
  config = base.get_config().unlock()
  config.model.update(model)
  return config


@pytest.mark.parametrize('name', VARIANTS)
def test_every_variant_has_a_twin_at_any_size(name):
  for sizes in ({}, {'width': 1024, 'heads': 16, 'context': 2048, 'layers': 6}):
    config = variant(sized(**sizes), name)
    build(config, vocab=100)
    for twin in (shrink(config), shrink(config, context=40), counting_twin(config)):
      build(twin)
      for key in ('width', 'context', 'heads', 'layers'):
        assert twin.model[key] <= config.model[key]
      assert (twin.model.mixer, twin.model.form) == (config.model.mixer, config.model.form)


def test_options_stay_within_the_twin():
  config = sized(mixer='sgn', form='published', width=768, context=4096)
  config.model.sgn.update(retained=3000, groups=6, basis='adaptive')
  config.model.sgn.retained = 2000
  twin = shrink(config).model
  assert (twin.sgn.retained, twin.sgn.groups, twin.context) == (513, 2, 1024)
  config = sized(mixer='sgn', context=4096)
  config.model.sgn.resolutions = 13
  assert shrink(config).model.sgn.resolutions == 11
  config = sized(mixer='fourier_qk', context=4096)
  config.model.fourier_qk.bins = (2.0, 2048.0)
  assert shrink(config).model.fourier_qk.bins == (2.0, 512)
  config = sized(mixer='ega', context=4096)
  config.model.ega.update(energy='packet', levels=12, tau=tuple(float(i) for i in range(13)))
  twin = shrink(config).model.ega
  assert (twin.levels, twin.tau, twin.alpha) == (10, tuple(float(i) for i in range(11)), (2.0,))
  build(shrink(config))


def test_a_grid_keeps_its_shape_and_the_context_follows():
  config = sized(mixer='sgn', form='published', context=60 * 80)
  config.model.sgn.grid = (60, 80)
  twin = shrink(config).model
  assert (twin.sgn.grid, twin.context) == ((30, 20), 600)
  config.model.mixer = 'softmax'  # which has none
  assert shrink(config).model.context == 1024


@pytest.mark.parametrize(
  ('option', 'value', 'said'), [('grid', (60, 81), 'grid'), ('groups', 0, 'groups')]
)
def test_what_contradicts_itself_is_still_refused(option, value, said):
  config = sized(mixer='sgn', form='published', context=60 * 80)
  config.model.sgn.basis = 'dct' if option == 'grid' else 'adaptive'
  config.model.sgn[option] = value
  with pytest.raises(UserError, match=said):
    build(shrink(config))


def test_a_config_of_an_older_version_is_refused_by_its_missing_key():
  config = sized(mixer='sgn', vocab=61)
  del config.model.sgn.groups
  for use in (shrink, build):
    with pytest.raises(UserError, match=r"no key 'model\.sgn\.groups'"):
      use(config)
  config.model.mixer = 'softmax'  # whose options are all there
  shrink(config)
