#!/usr/bin/env bash
# The numbers of docs/performance.md: three nodes and the load on this machine, one run after the other.
#   RAFTMQ_BIN=/path/to/raftmq docs/bench.sh [seconds per row]
set -euo pipefail
seconds=${1:-8}
raftmq=${RAFTMQ_BIN:-raftmq}
data=$(mktemp -d)
trap '"$raftmq" playground stop --data "$data" >/dev/null 2>&1; rm -rf "$data"' EXIT
"$raftmq" playground --nodes 3 --data "$data" --port 0 --detach >/dev/null 2>&1
"$raftmq" topic create bench --data "$data" >/dev/null
pids=$(python3 -c 'import json,sys; print(",".join(str(n["pid"]) for n in json.load(open(sys.argv[1]))["nodes"]))' "$data/playground.json")
for batch in 1 64; do
  for in_flight in 1 64 512 4000; do
    # With many messages a request, `in_flight` counts messages.
    calls=$((in_flight / batch)); [ "$calls" -ge 1 ] || calls=1
    echo "== send: batch $batch, $((calls * batch)) messages in flight"
    "$raftmq" bench send --topic bench --size 1024 --in-flight "$calls" --batch "$batch" --seconds "$seconds" --pids "$pids" --data "$data"
  done
done
