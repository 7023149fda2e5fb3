#!/usr/bin/env bash
# One run on the nodes of a SLURM job, which comes back by itself until the run is finished. From the
# project's folder, on a file system that all nodes share; arguments are those of launch/main.py:
#
#   sbatch --nodes=2 --gpus-per-node=8 --time=12:00:00 launch/cluster/slurm.sh \
#     --config=configs/chiar_400m.py --workdir=/shared/runs/chiar
#
# One process a node: it drives all GPUs of the node, and text, audit and compiling are paid once.
#SBATCH --job-name=sgnjax
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# The processes, not this script, hear of a limit that comes too soon: two minutes to save.
#SBATCH --signal=TERM@120
set -euo pipefail

python=${PYTHON:-.venv/bin/python}
margin=${MARGIN_MINUTES:-5} # minutes before the limit at which the run saves and leaves
retries=${RETRIES:-3}       # failures in a row after which this stays away
unfinished=85               # our exit status for a run that left before the limit

cd "${SLURM_SUBMIT_DIR:?start this with sbatch}"
failures=slurm-$SLURM_JOB_ID.failures

end=${SLURM_JOB_END_TIME:-}
if [ -z "$end" ]; then
  end=$(scontrol show job -o "$SLURM_JOB_ID" | sed -n 's/.* EndTime=\([^ ]*\).*/\1/p')
  case $end in
    '' | Unknown) end= ;; # no limit
    *) end=$(date -d "$end" +%s) ;;
  esac
fi
limit=()
if [ -n "$end" ]; then
  minutes=$(((end - $(date +%s)) / 60 - margin))
  limit=("--config.train.wall_minutes=$((minutes > 1 ? minutes : 1))"
    "--config.train.wall_status=$unfinished")
fi

status=0
# When one process dies the others must live to say so; they end by themselves.
srun --kill-on-bad-exit=0 "$python" launch/main.py "${limit[@]}" "$@" || status=$?

case $status in
  0) # finished
    rm -f "$failures"
    exit 0
    ;;
  2 | 3 | 130) exit "$status" ;;           # a mistake, a leak, Ctrl-C: again would be the same
  "$unfinished" | 143) rm -f "$failures" ;; # saved
  *)
    count=$(($(cat "$failures" 2>/dev/null || echo 0) + 1))
    if [ "$count" -gt "$retries" ]; then
      echo "exit status $status, and $retries retries before it failed too: not started again" >&2
      rm -f "$failures"
      exit "$status"
    fi
    echo "$count" >"$failures"
    ;;
esac
echo "exit status $status: started again, to resume from what is saved"
scontrol requeue "$SLURM_JOB_ID"
