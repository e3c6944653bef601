#!/usr/bin/env bash
# The first task of a step that fails is named, with its reason; srun's exit code stays the program's.
source "$(dirname "$0")/case.sh"
needs_other_users
ulimit -c 0  # srun passes it on: no core files of the killed ranks

# expect_report CODE COMMAND...: srun ends with CODE, and its one report is left in $work/report.
expect_report() {
  local code=$1 status=0
  shift
  printf '$ %s\n' "$*"
  "$@" >"$work/stdout" 2>"$work/stderr" || status=$?
  cat "$work/stderr"
  ((status == code)) || fail "exit code $status, expected $code"
  grep 'torch-env:' "$work/stderr" >"$work/report" || true
  [[ $(grep -c 'first to fail' "$work/report") == 1 ]] || fail "not one report"
}
expect_in_report() { grep -qE -- "$1" "$work/report" || fail "the report does not match '$1'"; }

# The rank fails after all have started (check=30), because SIGTERM does not end a task that has not. The others never
# end by themselves, so that no other can be first; srun ends them by SIGTERM, so its exit code is 143. Rank 6 is on n2.
others='exec sleep infinity'
expect_report 143 on_login srun -N4 -n8 -K --torch-env=check=30 sh -c "[ \$RANK = 6 ] || $others
printf '%s' '{\"message\": {\"message\": \"ValueError: \\u00e9\", \
\"extraInfo\": {\"py_callstack\": \"Traceback:\\n  line 7\"}}}' >\$TORCHELASTIC_ERROR_FILE
kill -SEGV \$\$"
time='[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]{3}'
first="first to fail: rank 6 on n2, at $time \(local time of n2\)"
expect_in_report "$first: killed by signal 11 \(Segmentation fault\)$"
expect_in_report '    .*"ValueError: '
expect_in_report '^srun: error: torch-env:       line 7'

# The rank that is the cause is named, though those that fail because of it end before, on its own node and on another.
cat >"$work/cause" <<'EOF'
cd "$0"
if [ $RANK != 3 ]; then
  echo $$ >pid.$RANK.new && mv pid.$RANK.new pid.$RANK
  while [ ! -e written ]; do sleep 0.05; done
  exit 1
fi
for rank in 0 1 2; do while [ ! -e pid.$rank ]; do sleep 0.05; done; done
echo 'the reason' >$TORCHELASTIC_ERROR_FILE
touch written
for rank in 0 1 2; do while kill -0 $(cat pid.$rank) 2>/dev/null; do sleep 0.05; done; done
exit 1
EOF
expect_report 1 on_login srun -N2 -n4 --ntasks-per-node=2 -w n0,n1 --torch-env sh -c "$(cat "$work/cause")" "$work"
expect_in_report "first to fail: rank 3 on n1, at $time \(local time of n1\): exit code 1$"
expect_in_report '    the reason$'

expect_report 7 on_login srun -n1 --torch-env sh -c 'exit 7'
expect_in_report 'rank 0 on n[0-3], .*: exit code 7$'
expect_report 139 on_login srun -n1 --torch-env sh -c 'kill -SEGV $$'

# With --export=NONE the report still reaches srun.
expect_report 143 on_login srun -N2 -n2 -K --export=NONE --torch-env=check=30 \
  /bin/sh -c "[ \$RANK = 1 ] && exit 3; PATH=/bin $others"
expect_in_report 'rank 1 on n[0-3], .*: exit code 3$'

# A file that the user may not read is not read. A file that is older than the step is not the reason.
secret=$work/secret
echo canary >"$secret"
chmod 755 "$work"
chmod 600 "$secret"
fails="[ \$RANK = 1 ] && { touch '$secret'; exit 3; }; $others"
as_nobody() { on_login setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
touch -d '1 minute' "$secret"
expect_report 143 as_nobody env TORCHELASTIC_ERROR_FILE="$secret" \
  srun -D / -N2 -n2 -K --torch-env=check=30 sh -c "[ \$RANK = 1 ] && exit 3; $others"
! grep -q canary "$work/report" || fail "a file was read with root's rights"
touch -d '1 minute ago' "$secret"
expect_report 143 on_login env TORCHELASTIC_ERROR_FILE="$secret" \
  srun -N2 -n2 -K --torch-env=check=30 sh -c "[ \$RANK = 1 ] && exit 3; $others"
! grep -q canary "$work/report" || fail "an old file was taken for the reason"
expect_report 143 on_login env TORCHELASTIC_ERROR_FILE="$secret" srun -N2 -n2 -K --torch-env=check=30 sh -c "$fails"
expect_in_report '    canary$'

expect "" on_login srun -N2 -n4 --torch-env true
! grep torch-env "$work/stderr" || fail "it prints although nothing failed"

# Stopped in order (EX_TEMPFAIL) is no failure.
status=0
on_login srun -N2 -n4 --torch-env sh -c 'exit 75' 2>"$work/stderr" || status=$?
((status == 75)) || fail "exit code $status, expected 75"
! grep torch-env "$work/stderr" || fail "exit code 75 is reported as a failure"

# Tasks that Slurm ends are not reported as failed.
for what in step job; do
  : >"$work/out"
  limit=60 on_login srun -N2 -n4 \
    --torch-env sh -c 'echo $SLURM_JOB_ID; exec sleep 1000' >"$work/out" 2>"$work/stderr" & srun=$!
  all_have_started() { (($(wc -l <"$work/out") == 4)); }
  wait_for 30 all_have_started
  job=$(head -n 1 "$work/out")
  [[ $what == job ]] || job+=.0
  on_login scancel "$job"
  ! wait "$srun" || fail "it was not ended"
  grep -q CANCELLED "$work/stderr" || fail "Slurm prints no CANCELLED: $(cat "$work/stderr")"
  ! grep 'first to fail' "$work/stderr" || fail "a task that Slurm ended is reported as the first to fail"
done

# A kill by the kernel for lack of memory, in a memory cgroup of this test.
group=/sys/fs/cgroup/memory/torchbridge-$CLUSTER_NAME limit_file=memory.limit_in_bytes
[[ -e /sys/fs/cgroup/memory/cgroup.procs ]] || group=/sys/fs/cgroup/torchbridge-$CLUSTER_NAME limit_file=memory.max
if mkdir "$group" 2>/dev/null && echo 20M >"$group/$limit_file"; then
  trap 'rmdir "$group" || true; rm -rf "$work"' EXIT
  hungry="echo \$\$ >'$group/cgroup.procs' && exec /usr/bin/python3 -c 'bytearray(200 << 20)'"
  expect_report 143 on_login srun -N2 -n2 -K --torch-env=check=30 sh -c "[ \$RANK = 1 ] && { $hungry; }; $others"
  expect_in_report 'rank 1 on n[0-3], .*: killed by signal 9 \(Killed\), out of memory'
else
  printf 'not tested: this machine cannot make a memory cgroup\n'
fi
