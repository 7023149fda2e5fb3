"""TFDS builders of sets that TFDS lacks; importing this registers them. No TensorFlow is needed.

`tfds.builder('wikitext2/raw')` after `import sgnjax.data.builders`. What they are made from is
fetched by address, or lies in `<data_dir>/downloads/manual/`, and is held to size and SHA-256.
"""

from sgnjax.data.builders.list_ops import ListOps
from sgnjax.data.builders.ptb import Ptb
from sgnjax.data.builders.text_folder import TextFolder
from sgnjax.data.builders.tiny_shakespeare import TinyShakespeare
from sgnjax.data.builders.wikitext import Wikitext2, Wikitext103

__all__ = ['ListOps', 'Ptb', 'TextFolder', 'TinyShakespeare', 'Wikitext2', 'Wikitext103']

# TinyShakespeare is TFDS's own name, so it is not registered a second time.
BUILDERS = {
  builder.name: builder
  for builder in (ListOps, Ptb, TextFolder, TinyShakespeare, Wikitext2, Wikitext103)
}
