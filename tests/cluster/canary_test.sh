#!/usr/bin/env bash
# Secrets in the user's environment, under names near ours too, are in nothing that is printed, logged or left behind.
source "$(dirname "$0")/case.sh"
secret=canary-$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
export API_KEY=$secret RANK_TOKEN=$secret MASTER_ADDR_KEY=$secret TORCH_ENV_KEY=$secret TORCHELASTIC_KEY=$secret \
  SLURM_KEY=$secret PET_KEY=$secret
logs=$(on_login sh -c 'dirname "$SLURM_CONF"')/log

run() { on_login srun -v "$@" >>"$work/output" 2>&1 || true; }
run -N2 -n4 --torch-env=verbose,explain true
run -N2 -n4 -m cyclic --torch-env=verbose,check sh -c 'echo $RANK'
run -N1 -n2 --torch-env=nonsense true
run -N1 -n2 --torch-env=gpus=closest true
TORCHBRIDGE_OPTIONS=nonsense run -N1 -n2 true
RANK=7 run -N1 -n2 --torch-env true
MASTER_PORT=high run -N1 -n2 --torch-env true
MASTER_ADDR=n3 run -N2 -n2 --torch-env true
MASTER_ADDR=nohost.invalid run -N2 -n2 --torch-env true
run -N2 -n2 --torch-env env SLURM_STEP_NODELIST='n[' "$BUILD_DIR/bin/torchbridge" exec -- true
run -N2 -n2 --torch-env "$BUILD_DIR/bin/torchbridge" explain
run -N2 -n2 "$BUILD_DIR/bin/torchbridge" exec --torch-env=verbose -- true
grep -q '^srun: error: torch-env: .*MASTER_ADDR=nohost.invalid' "$work/output" ||
  fail "the runs did not come to their errors: $(cat "$work/output")"
(($(grep -c 'torch-env: ' "$work/output") >= 8)) || fail "too few lines of ours: $(cat "$work/output")"

found=$(grep -rlaF "$secret" "$work/output" "$logs" /tmp/torch-env-0) || true
[[ -z $found ]] || fail "the secret is in $found"
run -N1 -n1 --torch-env sh -c 'echo $API_KEY'
grep -qF "$secret" "$work/output" || fail "the search finds nothing"
