#!/usr/bin/env bash
# torture.py, with its arguments, in a network namespace of its own, while an unprivileged second user keeps some
# hundred connections to each port on which a rank listens: silent ones, slow ones and random bytes.
set -euo pipefail
if [[ ${1:-} != --inside ]]; then
  unshare --net true 2>/dev/null || { echo "SKIPPED: a network namespace needs root"; exit 77; }
  exec unshare --net "$0" --inside "$@"
fi
shift
ip link set lo up
here=$(dirname "$(readlink -f "$0")")
connections=300
# The second user may not be able to read the checkout.
script=$(cat "$here/stranger.py")
work=$(mktemp -d)
mkfifo "$work/end"
runuser -u nobody -- /usr/bin/python3 -c "$script" flood "$(id -u)" $connections <"$work/end" >"$work/made" &
stranger=$!
exec 3>"$work/end"
status=0
"$here/torture.py" "$@" || status=$?
exec 3>&-
wait "$stranger"
made=$(awk '{sum += $2} END {print sum + 0}' "$work/made")
echo "the second user made $made connections to $(wc -l <"$work/made") ports"
rm -r "$work"
((made >= connections)) || { echo "FAILED: the second user found no port"; exit 1; }
exit "$status"
