"""Every picture of the mechanisms draws, and shows the arrays that it is named after."""

import functools

import numpy as np
import pytest

from sgnjax.analysis.gallery import DRAWN, __main__, chiar, fourier_qk, mechanism_pictures, sgn
from sgnjax.analysis.gallery import augment as augmented
from sgnjax.analysis.plots import save

FEW_WORDS = functools.partial(chiar.chiar_entropy, words=300)


@pytest.mark.slow
@pytest.mark.parametrize('draw', DRAWN, ids=lambda draw: draw.__name__)
def test_every_picture_draws_and_says_what_its_axes_are(draw, tmp_path):
  figure = FEW_WORDS() if draw is chiar.chiar_entropy else draw()
  path = save(figure, tmp_path / 'a.png')
  assert path.read_bytes().startswith(b'\x89PNG')
  assert figure.get_suptitle()
  # A strip of text has no axes; of stacked panels with one axis in common the last is labelled.
  plain = [ax for ax in figure.axes if ax.lines]
  assert all(ax.get_ylabel() for ax in plain)
  assert not plain or plain[-1].get_xlabel()
  for ax in plain:
    assert all(np.isfinite(line.get_ydata()).all() for line in ax.lines)
    legend = ax.get_legend()
    if legend:  # beside the curves, not over them
      figure.canvas.draw()
      assert legend.get_window_extent().x0 >= ax.get_window_extent().x1


def test_the_causal_matrices_are_triangular_and_the_others_are_not():
  panels = [ax for ax in sgn.sgn_operator().axes if ax.images]
  above = [np.abs(np.triu(ax.images[0].get_array(), 1)).max() for ax in panels]
  assert ['causal' in ax.get_title() for ax in panels] == [a < 1e-7 for a in above]
  assert sum(a > 0.05 for a in above) == 2


def test_legends_state_coverage_and_what_is_left_at_frequency_zero():
  def labels(figure):
    return [t.get_text() for ax in figure.axes for t in (ax.get_legend() or ax).texts]

  covered = labels(fourier_qk.fourier_qk_responses())
  assert covered[:3] == ['0.5: 0.8%', '2: 3.9%', '16: 17.8%']
  left = labels(fourier_qk.fourier_qk_taps())
  assert left[3:9] == [
    'a = 2: 0.212', 'a = 8: 0.063', 'a = 32: 0.018', 'a = 2: 0.167', 'a = 8: 0.133', 'a = 32: 0.136'
  ]  # fmt: skip


def test_the_command_draws_into_a_folder(monkeypatch, tmp_path, capsys):
  """Two of them, so that the test is quick."""
  monkeypatch.setattr('sgnjax.analysis.gallery.DRAWN', (sgn.bases, sgn.haar_kernels))
  paths = mechanism_pictures(tmp_path / 'new')
  assert [p.name for p in paths] == ['bases.png', 'haar_kernels.png']
  __main__.main([str(tmp_path / 'again')])
  assert capsys.readouterr().out.split() == [str(tmp_path / 'again' / p.name) for p in paths]
  with pytest.raises(SystemExit, match='usage'):
    __main__.main([])


def test_training_images_are_shown_as_they_are_changed_and_mixed(tmp_path, capsys):
  pytest.importorskip('sklearn', reason='the package scikit-learn is not installed')
  path = tmp_path / 'augment.png'
  augmented.main([str(path)])
  assert capsys.readouterr().out.strip() == str(path)
  assert path.read_bytes().startswith(b'\x89PNG')
  figure = augmented.augment(('digits', augmented.digits(), (8, 8, 1)))
  strips = [ax.images[0].get_array() for ax in figure.axes]
  assert [strip.shape for strip in strips] == [(8, 8 * 8 + 7, 3)] * 4
  assert len({strip.tobytes() for strip in strips}) == 4
  shares = [tick.get_text() for tick in figure.axes[-1].get_xticklabels()]
  assert all(share.rstrip('%').split(': ')[1].isdigit() for s in shares for share in s.split('\n'))
  for wrong, said in (([], 'usage'), ([str(path), 'cifar=a'], "did you mean 'cifar10'"),
                      ([str(path), 'mnist=nowhere'], 'does not exist')):  # fmt: skip
    with pytest.raises(SystemExit, match=said):
      augmented.main(wrong)
