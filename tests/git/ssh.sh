#!/bin/bash
# A repository behind a real sshd (a private one, on a port of its own): the
# sandbox comes in with a key of the project's home/.ssh, the daemon with the
# agent of SSH_AUTH_SOCK; what is missing is told in words.
PATH=$PATH:/usr/sbin
if ! command -v sshd >/dev/null; then
    echo "skipped: there is no sshd (package openssh-server)"
    echo "0 passed, 0 failed"
    exit 0
fi
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
K=$T/keys me=$(id -un)
mkdir -m 700 "$K" "$T/home" "$T/home/.ssh"
ssh-keygen -q -t ed25519 -N '' -f "$K/host"
ssh-keygen -q -t ed25519 -N '' -f "$K/user"
[ -z "$root" ] || mkdir -p /run/sshd
serve() { # on a free port, ours to end
    for port in $(shuf -i 20000-30000 -n 20); do
        "$(command -v sshd)" -D -f /dev/null -p "$port" \
            -o ListenAddress=127.0.0.1 -o HostKey="$K/host" \
            -o AuthorizedKeysFile="$K/user.pub" -o StrictModes=no \
            -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes \
            -E "$T/sshd.log" &
        sshd=$!
        soon 5 ssh -n -i "$K/user" -p "$port" -o BatchMode=yes \
            -o StrictHostKeyChecking=accept-new \
            -o UserKnownHostsFile="$T/home/.ssh/known_hosts" \
            "$me@127.0.0.1" true && return
        kill "$sshd"
    done
    bad 'sshd does not answer'
    exit 1
}
serve
export SSH_AUTH_SOCK=$T/agent
ssh-agent -a "$SSH_AUTH_SOCK" >/dev/null
ssh-add -q "$K/user"
again() { # the daemon, with this agent
    local p
    p=$(pid)
    kill "$p"
    soon 10 sh -c "! kill -0 $p" || bad 'the daemon does not end'
    SSH_AUTH_SOCK=$1 HOME=$T/home mount_ --backend local ||
        bad "no start: $(cat "$T/start")"
}

git init -q --bare -b main "$T/r.git"
git clone -q "$T/r.git" "$T/w" 2>/dev/null
(cd "$T/w" && echo one >one && git add one &&
    git -c user.name=t -c user.email=t@example.org commit -qm one && git push -q)
HOME=$T/home start --backend local
mkdir -p "$P/home/.ssh"
cp "$K/user" "$P/home/.ssh/id_ed25519"
printf 'network = host\nrepo = ssh://%s@127.0.0.1:%s%s\n' "$me" "$port" \
    "$T/r.git" >"$P/config"

wr "$S/ctl" 'create one tool=shell
' >/dev/null
is 'it is cloned' "$(wait_for one running)" running
is 'a turn' "$(ask one 'cat one && echo two >two && git add two && git commit -qm Two')" completed
echo kill >"$S/one/ctl"
is 'the end' "$(wait_for one ended)" killed
like 'the work is pushed' "$(cat "$S/one/reason")" 'pushed courier/one'
is 'and there' "$(git -C "$T/r.git" log -1 --format=%s courier/one)" Two
like 'the daemon has fetched it' "$(cat "$S/one/diff")" '^\+two$'
unlike 'the key is nowhere in the log' "$(cat "$S/one/setup.log")" 'PRIVATE'

# ---- without an agent for the daemon ----

again ''
wr "$S/ctl" 'create two tool=shell
' >/dev/null
is 'no agent: no start' "$(wait_for two ended)" error
like 'it says what is missing' "$(cat "$S/two/error")" \
    'ssh agent.*SSH_AUTH_SOCK'
ssh-agent -a "$T/empty" >/dev/null
again "$T/empty"
wr "$S/ctl" 'create three tool=shell
' >/dev/null
is 'an agent without the key' "$(wait_for three ended)" error
like 'in words' "$(cat "$S/three/error")" 'ssh agent.*SSH_AUTH_SOCK'

# ---- without a key for the sandbox ----

rm "$P/home/.ssh/id_ed25519"
again "$T/agent"
wr "$S/ctl" 'create four tool=shell
' >/dev/null
is 'no key in home/.ssh' "$(wait_for four ended)" error
like 'in words' "$(cat "$S/four/error")" 'Permission denied.*publickey'
kill "$sshd"
wait "$sshd" 2>/dev/null
