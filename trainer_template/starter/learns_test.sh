#!/bin/sh
# Two ranks train for sixty steps, and the loss falls: learns_test.sh PROGRAM
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rank() {
  RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 timeout 100 "$program" \
    --init-method "file://$work/store" --device cpu --max-steps 60 --metrics "$work/metrics.jsonl" --quiet
}
program=$1
rank 1 &
rank 0
wait $!
sed -n 's/.*"loss":\([-0-9.e+]*\),.*/\1/p' "$work/metrics.jsonl" |
  awk '{ if (NR <= 10) first += $1 / 10; if (NR > 50) last += $1 / 10 }
       END { print NR " steps, loss " first " to " last; exit !(NR == 60 && last < 0.8 * first) }'
