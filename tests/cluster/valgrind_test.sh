#!/usr/bin/env bash
# srun, slurmstepd and the tasks before they become programs, under valgrind: the plugin has no invalid access and no
# leak, and is unloaded. Leaks of Slurm itself are not counted.
source "$(dirname "$0")/case.sh"
needs_other_users
command -v valgrind >/dev/null || skip "no valgrind: run scripts/setup --tests"
if nm -D "$1" | grep -qE '__(asan|tsan)_'; then skip "a sanitizer's runtime is linked"; fi
name=$(basename "$1")
limit=120
chmod 755 "$work"
mkdir -m 1777 "$work/logs"  # tasks write as the user
valgrind="/usr/bin/valgrind --verbose --trace-children=no --leak-check=full --show-leak-kinds=definite,indirect,possible
  --keep-debuginfo=yes --num-callers=60 --log-file=$work/logs/%p.log"

# Each report is a paragraph of lines ==PID==. Those with a frame of the plugin, with or without debug symbols, are the
# plugin's, except those about memory that Slurm allocated for itself.
reports() {
  sed -nE 's/^==[0-9]+== ?//p' "$work"/logs/*.log |
    awk -v RS= '/(torch_env[^ ]*[.]so|torchbridge::|slurm_spank_)/ && !/: slurm_x[a-z]*alloc /'
}
expect_clean() {  # expect_clean LOGS: at least that many processes have loaded the plugin, without a report
  local found
  (($(grep -l "Reading syms from .*/$name" "$work"/logs/*.log | wc -l) >= $1)) ||
    fail "too few processes have loaded the plugin"
  grep -qE "(Archiving|Discarding) syms at .*/$name" "$work"/logs/*.log || fail "it was not unloaded"
  found=$(reports)
  [[ -z $found ]] || fail "$found"
  rm "$work"/logs/*
}

on_login runuser -u nobody -- $valgrind srun -N1 -n2 --torch-env=verbose,ranks=block true
TORCHBRIDGE_OPTIONS=verbose on_login $valgrind srun -N1 -n1 true
on_login $valgrind srun --torch-env=nonsense true && fail "a wrong option was accepted"
on_login $valgrind sbatch -w n3 -o /dev/null --torch-env --wrap true
expect_clean 4

with_slurmstepd n1 "${valgrind//$'\n'/ }"
all_ended() { ! pgrep -f "^/usr/bin/valgrind.* $work/slurmstepd" >/dev/null; }

expect $'0\n1' on_login runuser -u nobody -- srun -Q -N1 -n2 -w n1 --torch-env=verbose,ranks=block sh -c 'echo $RANK'
RANK=0 expect_error "^srun: error: torch-env: RANK='0' is exported" 60 on_login srun -Q -N1 -n2 -w n1 --torch-env true
expect $'0\n1' on_login srun -Q -N2 -n2 -w n0,n1 --torch-env=check=30 sh -c 'echo $RANK'  # n1 connects to n0
expect $'0\n1' on_login srun -Q -N2 -n2 -w n1,n2 --torch-env=check=30 sh -c 'echo $RANK'  # n2 connects to n1
wait_for 30 all_ended
expect_clean 4
