#!/usr/bin/env bash
# The plugin is loaded into srun and slurmstepd: it needs only libc and exports only SPANK's names.
source "$(dirname "$0")/case.sh"
needed() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
exported() { nm -D --defined-only "$1" | awk '{print $3}'; }
memory_written() { printf '%d\n' "$(readelf -lW "$1" | awk '/ LOAD .* RW /{print $6}')"; }
size_stripped() { strip -o "$work/stripped.so" "$1" && stat -c %s "$work/stripped.so"; }

if nm -D "$1" | grep -qE '__(asan|tsan)_'; then skip "a sanitizer's runtime is linked"; fi
expect $'ld-linux-x86-64.so.2\nlibc.so.6' needed "$1"
expect "plugin_name
plugin_type
plugin_version
slurm_spank_exit
slurm_spank_init
slurm_spank_init_post_opt
slurm_spank_local_user_init
slurm_spank_task_exit
slurm_spank_task_init
slurm_spank_task_post_fork
spank_plugin_version" exported "$1"
# The plugin never starts a shell or another program, so that no value of the user's reaches one.
called() { nm -D --undefined-only "$1" | awk '{print $2}' | sed 's/@.*//'; }
starts_programs=$(called "$1" | grep -E '^(system|popen|exec.*|posix_spawn.*|wordexp)$') || true
[[ -z $starts_programs ]] || fail "it calls $starts_programs"
called "$1" | grep -q '^_exit$' || fail "the names of what it calls are not found"
# Each srun and slurmstepd that loads it copies the written pages, at most three; the others are shared.
(($(memory_written "$1") <= 8192)) || fail "it has $(memory_written "$1") bytes that are written, more than 8192"
# A fifth of libslurmfull.so, which srun maps too. Of libstdc++ it holds 20 to 30 kB more with GCC 14 than with GCC 12.
(($(size_stripped "$1") < 400000)) || fail "it has $(size_stripped "$1") bytes, more than 400 kB"
