"""The audit's job: what it prints, and an exit status that tells the truth."""

import pytest

from configs import base
from sgnjax import config as config_lib
from sgnjax.data import tokenizers
from sgnjax.jobs import audit
from sgnjax.models import build
from sgnjax.parallel.mesh import make_mesh
from sgnjax.train import state
from sgnjax.train.checkpoint import Checkpoints
from sgnjax.train.optim import make_optimiser


def config_of(form, allow_leak=False):
  config = base.get_config().unlock()
  config.model.mixer, config.model.form, config.allow_leak = 'sgn', form, allow_leak
  config.model.layers, config.model.width, config.model.context = 1, 16, 24
  return config.lock()


@pytest.mark.parametrize(
  ('form', 'allow_leak', 'status'),
  [('causal', False, 0), ('published', False, 3), ('published', True, 3)],
)
def test_the_exit_status_tells_the_truth(capsys, tmp_path, form, allow_leak, status):
  assert audit.run(config_of(form, allow_leak), tmp_path) == status
  text = capsys.readouterr().out
  assert text.count('later tokens') >= 5
  assert ('LEAKY: sgn sees later tokens' in text) == (status == 3)
  assert ('CAUSAL: sgn is blind to' in text) == (status == 0)


def test_the_weights_of_the_workdir_are_audited_at_their_own_size(capsys, tmp_path):
  config = config_of('published', allow_leak=True)
  tokenizer = tokenizers.make('char', 'some text')
  model = build(config, vocab=tokenizer.vocab_size)
  fresh = state.create(config, model, make_optimiser(config), make_mesh(config))
  checkpoints = Checkpoints(tmp_path, config, tokenizer)
  checkpoints.save(fresh, {})
  checkpoints.close()
  # The workdir's weights leak, whatever form the command line asks for.
  assert audit.run(config_lib.deserialise(config_lib.serialise(config_of('causal'))), tmp_path) == 3
  twin, trained, _ = capsys.readouterr().out.split('\n\n')
  assert twin.splitlines()[-1].startswith('CAUSAL')
  assert trained.splitlines()[0] == f'the weights of {tmp_path} at step 0, in their own config'
  assert trained.splitlines()[-1].startswith('LEAKY')
  assert '2 x 24 tokens' in trained
