#!/bin/sh
# Two ranks train for a hundred steps, and the loss falls: learns_test.sh PROGRAM
# Adjust both numbers to the model: the loss of a large one falls slowly. Noise alone moves a mean of ten steps by less
# than 5 %.
set -eu
steps=100 least_fall=0.05
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rank() {
  RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 timeout 100 "$program" \
    --init-method "file://$work/store" --device cpu --max-steps "$steps" --metrics "$work/metrics.jsonl" --quiet
}
program=$1
rank 1 &
rank 0
wait $!
sed -n 's/.*"loss":\([-0-9.e+]*\),.*/\1/p' "$work/metrics.jsonl" |
  awk -v steps="$steps" -v fall="$least_fall" '
    { if (NR <= 10) first += $1 / 10; if (NR > steps - 10) last += $1 / 10 }
    END {
      print NR " steps, mean loss of the first ten " first ", of the last ten " last
      print "expected: " steps " steps, and at most " (1 - fall) * first " at the end"
      exit !(NR == steps && last <= (1 - fall) * first)
    }'
