#!/usr/bin/env bash
# A training step of a CI pipeline: run it, and let the exit code say what to do next.
#
#     examples/ci_job.sh [arguments of train_ddp.py]
#
# Set LAUNCHER to start something other than the dlrover-run on the PATH, WORKERS for the number of
# workers, TRIES for how often a failure that was nobody's fault is tried again.
set -uo pipefail

launcher=${LAUNCHER:-dlrover-run}
workers=${WORKERS:-2}
tries=${TRIES:-2}
status=1
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

say() { printf 'ci_job: %s\n' "$*" >&2; }

for ((try = 1; try <= tries; try++)); do
    "$launcher" --standalone --nproc-per-node="$workers" --max-restarts=1 \
        "$here/train_ddp.py" "$@"
    status=$?
    case $status in
        0)
            say "training succeeded"
            exit 0
            ;;
        2)
            say "the command line, a setting or a plugin is wrong: mend the job, a retry cannot help"
            exit 2
            ;;
        80)
            say "the workers' nodes did not find each other (try $try of $tries)"
            ;;
        81)
            say "this node should be replaced (try $try of $tries)"
            ;;
        82)
            say "the failover policy aborted the job: do not retry"
            exit 82
            ;;
        83 | 84)
            say "recovery was tried until its budget was spent ($status)"
            exit "$status"
            ;;
        85)
            say "preempted or out of time (try $try of $tries)"
            ;;
        130 | 143)
            say "cancelled"
            exit "$status"
            ;;
        *)
            if ((status > 128)) && name=$(kill -l "$((status - 128))" 2>/dev/null); then
                say "a worker died of SIG$name"
            else
                say "the training script failed with exit code $status"
            fi
            exit "$status"
            ;;
    esac
done

say "giving up after $tries tries"
exit "$status"
