#!/usr/bin/env bash
#SBATCH --job-name=posttrain
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@30
# One stage by a batch queue, and what it needs and nobody has pushed:
#
#   sbatch --wait flows/slurm.sh train@grpo
#   sbatch --wait --array=0-2 flows/slurm.sh train@grpo    seeds 0, 1 and 2 alone, for a job like the first to join
#
# Submit it from a clone with a default DVC remote. A job computes what is committed there when it starts: commit edits
# first. Each stage has a clone of its own beside that one, so jobs do not share a folder, and a job that is queued again
# finds what it had begun. SIGTERM comes 30 s before the time is up; `exec` has it reach the flow, which passes it on to
# the stage and waits.
set -euo pipefail
stage=${1:?name a stage, for example train@grpo}
seed=${SLURM_ARRAY_TASK_ID:-}
source=${SLURM_SUBMIT_DIR:-$PWD}
clone=$source/../stages-of-$(basename "$source")/$stage${seed:+-seed-$seed}
if [ ! -d "$clone" ]; then git clone --quiet "$source" "$clone"; fi
cd "$clone"
git checkout --quiet -- dvc.lock
git fetch --quiet origin HEAD
git checkout --quiet --detach FETCH_HEAD
if [ -n "$seed" ]; then exec python -m flows.seeds --remote "$stage" "$seed"; fi
exec python -m flows.local --remote --max-parallel 1 "$stage"
