#!/usr/bin/env bash
# One run on all workers of a Cloud TPU slice, from a machine with gcloud; arguments are those of
# launch/main.py, and the workdir lies on a file system that all workers mount:
#
#   TPU=my-slice ZONE=us-west4-a launch/cluster/tpu_pod.sh \
#     --config=configs/chiar_400m.py --workdir=/mnt/shared/runs/chiar
#
# Before that, once, on every worker (--worker=all --command=...): the project in FOLDER, and
#   python3 -m venv .venv && .venv/bin/pip install -e . 'jax[tpu]'
# After a preemption or a lost worker the same command resumes.
set -euo pipefail

tpu=${TPU:?TPU=NAME of the slice}
zone=${ZONE:?ZONE=where it is}
folder=${FOLDER:-sgnjax} # of the project, from the home folder of each worker
python=${PYTHON:-.venv/bin/python}

# Quoted for the shell of the workers.
command=$(printf '%q ' cd "$folder")'&& exec '$(printf '%q ' "$python" launch/main.py "$@")
exec gcloud compute tpus tpu-vm ssh "$tpu" --zone="$zone" ${PROJECT:+"--project=$PROJECT"} \
  --worker=all --command="$command"
