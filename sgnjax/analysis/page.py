"""Pieces of a self-contained HTML page."""

import base64
import html
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from sgnjax.analysis.plots.style import save

STYLE = """
:root { color-scheme: light; --ink: #1a1a1a; --soft: #5a5a5a; --line: #d9d9d9; --paper: #f6f6f4;
  --blue: #0072B2; --red: #B34700; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1.5rem 1rem 4rem; background: white;
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; border-bottom: 1px solid var(--line);
  padding-bottom: .25rem; }
p { margin: .5rem 0; } .soft, figcaption { color: var(--soft); font-size: .9rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem;
  margin: 1rem 0; }
.tile { background: var(--paper); border-left: .25rem solid var(--blue); padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.2; }
.leaky { background: #fdeee4; border: 2px solid var(--red); padding: .6rem .8rem; color: var(--red);
  font-weight: 600; }
figure { margin: 0 0 1.75rem; } figure img { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; font-variant-numeric: tabular-nums; }
th, td:not(:last-child) { white-space: nowrap; }
pre { background: var(--paper); padding: .8rem; white-space: pre-wrap; font-size: .9rem;
  margin: .5rem 0; }
summary { cursor: pointer; color: var(--blue); }
.bad { color: var(--red); font-weight: 600; }
@media print { details > * { display: block; } }
"""


class Picture(NamedTuple):
  """A figure, the file name it is saved under, and a sentence that says how to read it."""

  name: str
  figure: Figure
  caption: str


def escape(text) -> str:
  """Any value as text of a page."""
  return html.escape(str(text))


def section(title: str, *parts: str) -> str:
  """A part of the page under its title; empty parts are left out."""
  return f'<section>\n<h2>{escape(title)}</h2>\n' + '\n'.join(filter(None, parts)) + '\n</section>'


def table(rows, head=()) -> str:
  """Rows of cells, already escaped."""
  top = '<tr>' + ''.join(f'<th>{cell}</th>' for cell in head) + '</tr>\n' if head else ''
  body = '\n'.join('<tr>' + ''.join(f'<td>{c}</td>' for c in row) + '</tr>' for row in rows)
  return f'<div class="wide"><table>\n{top}{body}\n</table></div>'


def image(picture: Picture, folder: Path) -> str:
  """Saves the picture in the folder; gives it as a part of a page that needs no other file."""
  path = save(picture.figure, folder / f'{picture.name}.png')
  data = base64.b64encode(path.read_bytes()).decode('ascii')
  alt = picture.figure.get_suptitle()
  return (
    f'<figure><img src="data:image/png;base64,{data}" alt="{escape(alt)}">'
    f'<figcaption>{escape(picture.caption)}</figcaption></figure>'
  )


def whole(title: str, parts: Iterable[str]) -> str:
  """The page of these parts; empty ones are left out."""
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n'
    + '\n'.join(filter(None, parts))
    + '\n</body>\n</html>\n'
  )
