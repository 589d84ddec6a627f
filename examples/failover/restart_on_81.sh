#!/usr/bin/env bash
# Start the agent of a node, and start it again whenever it asks to be replaced (exit code 81).
#
#     restart_on_81.sh dlrover-run --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host:29400 train.py
#
# Every other exit code ends the loop and is passed on. A signal to this script goes to the agent and
# ends the loop, too. TRIES is how often the agent may be replaced.
set -uo pipefail
set -m # else the agent would be started with SIGINT ignored

tries=${TRIES:-10}
agent=
stopping=

stop() {
    stopping=1
    [[ -z $agent ]] || kill -s "$1" -- "$agent" 2>/dev/null
}
for name in INT TERM HUP; do
    # shellcheck disable=SC2064
    trap "stop $name" "$name"
done

for ((try = 0; ; try++)); do
    "$@" &
    agent=$!
    wait "$agent"
    status=$?
    while kill -0 "$agent" 2>/dev/null; do # a signal ended the wait, not the agent
        wait "$agent"
        status=$?
    done
    agent=
    if ((status != 81)) || [[ -n $stopping ]] || ((try >= tries)); then
        exit "$status"
    fi
    printf 'restart_on_81: this node is replaced (%d of %d)\n' "$((try + 1))" "$tries" >&2
done
