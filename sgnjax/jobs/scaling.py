"""Measures what a longer sequence costs, mixer by mixer; writes scaling.md and its pictures.

Stopped, it goes on where it was: what lies in the workdir is not measured again.
"""

from pathlib import Path

from ml_collections import ConfigDict

from sgnjax.analysis.scaling import measure
from sgnjax.analysis.scaling.page import write
from sgnjax.train.log import check_writable, mark


def run(config: ConfigDict, workdir: Path) -> int:
  workdir = Path(workdir)
  check_writable(workdir)
  for record in measure.measure(config, workdir):
    print(f'{record["mixer"]} at {record["length"]:,}: {_told(record)}', flush=True)
  records = measure.read(workdir, config)
  print(write(config, records, workdir / 'scaling.md', workdir / 'pictures'))
  return 0


def _told(record: dict) -> str:
  said = mark(record['leaky'])
  if 'peak' in record:
    return (
      f'{record["peak"] / measure.GIB:,.3f} GiB{said}, {record["flops"] / 1e9:,.2f} GFLOP{said}'
    )
  if 'collectives' in record:
    return (
      f'{sum(record["collectives"].values()) / 2**20:,.2f} MiB{said} sent by one of several devices'
    )
  if 'seconds' in record:
    return f'{record["seconds"]:.4g} s{said}'
  return record.get('skipped') or record['refused']
