#!/usr/bin/env bash
# A command as an ordinary user in a network namespace of its own, while a second user keeps some hundred connections to
# each port on which the first one listens: silent ones, slow ones and random bytes. A word STRANGER of the command is a
# pipe to which it writes the ports of stores: he sets and deletes their keys, again and again.
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
chown daemon "$work/end"
runuser -u nobody -- /usr/bin/python3 -c "$script" flood "$(id -u daemon)" $connections <"$work/end" >"$work/made" &
stranger=$!
exec 3>"$work/end"
status=0
# Not root's PATH: a folder of it that this user cannot search makes "not found" to "permission denied".
TMPDIR=$work/daemon PATH=/usr/local/bin:/usr/bin:/bin \
  setpriv --reuid daemon --regid daemon --clear-groups -- "${@/#STRANGER/$work/end}" || status=$?
exec 3>&-
wait "$stranger"
made=$(awk '$1 == "port" {sum += $3} END {print sum + 0}' "$work/made")
deleted=$(awk '$1 == "store" {sum += $4} END {print sum + 0}' "$work/made")
echo "the second user made $made connections to $(grep -c ^port "$work/made") ports," \
  "and deleted $deleted keys of $(grep -c ^store "$work/made") stores"
rm -r "$work"
((made >= connections)) || { echo "FAILED: the second user found no port"; exit 1; }
[[ " $* " != *" STRANGER "* ]] || ((deleted > 0)) || { echo "FAILED: the second user found no store"; exit 1; }
exit "$status"
