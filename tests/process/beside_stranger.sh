#!/usr/bin/env bash
# A command as an ordinary user in a network namespace of its own, while a second user keeps some hundred connections to
# each port on which the first one listens: silent ones, slow ones and random bytes.
# beside_stranger.sh PROGRAM COMMAND...: skipped where other users cannot start PROGRAM, which the command starts.
set -euo pipefail
if [[ ${1:-} != --inside ]]; then
  "$(dirname "$0")/../support/other_users_can_run" "$1"
  shift
  exec unshare --net "$0" --inside "$@"
fi
shift
ip link set lo up
ip address add 10.66.0.1/32 dev lo  # one that other hosts could reach
here=$(dirname "$(readlink -f "$0")")
connections=300
# The second user may not be able to read the checkout.
script=$(cat "$here/stranger.py")
work=$(mktemp -d)
mkdir -m 755 "$work/daemon"
chmod 711 "$work"
chown daemon "$work/daemon"
mkfifo "$work/end"
runuser -u nobody -- /usr/bin/python3 -c "$script" flood "$(id -u daemon)" $connections <"$work/end" >"$work/made" &
stranger=$!
exec 3>"$work/end"
status=0
# Not root's PATH: a folder of it that this user cannot search makes "not found" to "permission denied".
TMPDIR=$work/daemon PATH=/usr/local/bin:/usr/bin:/bin \
  setpriv --reuid daemon --regid daemon --clear-groups -- "$@" || status=$?
exec 3>&-
wait "$stranger"
made=$(awk '{sum += $2} END {print sum + 0}' "$work/made")
echo "the second user made $made connections to $(wc -l <"$work/made") ports"
rm -r "$work"
((made >= connections)) || { echo "FAILED: the second user found no port"; exit 1; }
exit "$status"
