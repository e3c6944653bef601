#!/usr/bin/env bash
# The plugin runs out of memory, at once or later (call 1 is what libstdc++ keeps for throwing just then): no exception reaches Slurm, which would abort, and
# no program starts without the whole environment.
source "$(dirname "$0")/case.sh"
if nm -D "$1" | grep -qE '__(asan|tsan)_'; then skip "a sanitizer's runtime is linked"; fi

for ((at = 2; at <= 60; at += at < 12 ? 1 : 8)); do
  status=0
  on_login env FAIL_AT="$at" LD_PRELOAD="$2" srun --torch-env=verbose,ranks=block,port=29520 -n1 env -u LD_PRELOAD true >"$work/srun.$at" 2>&1 || status=$?
  ((status < 129 || status == 255)) || fail "srun died of signal $((status - 128)) at call $at: $(cat "$work/srun.$at")"
  ((status == 0)) || grep -qE 'torch-env|torch_env' "$work/srun.$at" || fail "no word about it at call $at: $(cat "$work/srun.$at")"
done
grep -q 'bad_alloc' "$work"/srun.* || fail "memory was never short in srun"

slurmstepd=$(readlink -f "$(PATH=$PATH:/usr/sbin type -P slurmstepd)")
cp "$slurmstepd" "$work/slurmstepd"
cat >"$work/wrapper" <<WRAPPER
#!/bin/sh
FAIL_AT=\$(cat $work/fail_at) LD_PRELOAD=$2 exec $work/slurmstepd "\$@"
WRAPPER
chmod 755 "$work" "$work/wrapper"
on_node n1 mount --bind "$work/wrapper" "$slurmstepd"
trap 'on_node n1 umount "$slurmstepd"; rm -rf "$work"' EXIT
whole='test "$RANK/$LOCAL_RANK/$WORLD_SIZE/$GROUP_RANK/$MASTER_PORT/$TORCHELASTIC_RUN_ID" = "0/0/1/0/29520/slurm-$SLURM_JOB_ID.0" && echo whole'
short=0
for ((at = 2; at <= 3000; at += at < 8 ? 1 : at < 60 ? 20 : at < 700 ? 200 : 600)); do
  echo "$at" >"$work/fail_at"
  status=0
  on_login srun -Q -n1 -w n1 --torch-env=verbose,ranks=block,port=29520 sh -c "$whole || echo started" >"$work/stdout" 2>"$work/stderr" || status=$?
  ! grep -q started "$work/stdout" || fail "it started with half an environment at call $at"
  if ((status == 0)); then grep -q whole "$work/stdout" || fail "no program ran at call $at"; continue; fi
  grep -q '^.*torch-env: ' "$work/stderr" || fail "no word about it at call $at: $(cat "$work/stderr")"
  short=$((short + 1))
done
((short > 3)) || fail "memory was never short in slurmstepd"
((status == 0)) || fail "the last call was not reached"
