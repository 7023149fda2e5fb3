"""What many tests here would do again is done once in a process: audits and compiled programs."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from sgnjax import audit
from sgnjax.models.shrink import shrink

reports = {}


@pytest.fixture(autouse=True, scope='package')
def _audited_once():
  """Of a twin, whose model and seed are all that an audit depends on."""
  real = audit.twin_report

  def twin_report(config, *, vocab=None, seed=0):
    twin = shrink(config, vocab=vocab or 0)
    asked = twin.model.to_json(), twin.data.task, seed
    if asked not in reports:
      reports[asked] = real(config, vocab=vocab, seed=seed)
    return reports[asked]

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(audit, 'twin_report', twin_report)
    yield


def keep_programs_in(folder: str | None, least_seconds: float) -> None:
  jax.config.update('jax_compilation_cache_dir', folder)
  jax.config.update('jax_persistent_cache_min_compile_time_secs', least_seconds)
  compilation_cache.reset_cache()


@pytest.fixture(autouse=True, scope='package')
def _compiled_once(tmp_path_factory):
  """Each run compiles its steps; those of one config are the same programs."""
  before = (
    jax.config.jax_compilation_cache_dir,
    jax.config.jax_persistent_cache_min_compile_time_secs,
  )
  folder = str(tmp_path_factory.getbasetemp() / 'programs')
  keep_programs_in(folder, 0.0)
  yield folder
  keep_programs_in(*before)


@pytest.fixture
def all_compiled(_compiled_once):
  """For tests that compare with programs of a cache: here every one is compiled."""
  keep_programs_in(None, 0.0)
  yield
  keep_programs_in(_compiled_once, 0.0)
