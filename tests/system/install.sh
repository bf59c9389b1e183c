#!/bin/bash
# make install into a directory, the installed programs at work, uninstall.
. "$(dirname "$0")/../lib.sh"
root=$HERE/.. dest=$T/dest prefix=/opt/courier
# what is built is in BIN: nothing is compiled here
make_() {
    make -s -C "$root" -o "$BIN/courierfs" -o "$BIN/courier-sandboxd" \
        BUILD="$BIN" DESTDIR="$dest" PREFIX=$prefix "$@" >"$T/make" 2>&1
}
tree() { (cd "$dest" && find . ! -type d | sort); }

make_ install
is 'make install' "$?" 0
[ -s "$T/make" ] && cat "$T/make"
is 'what is installed' "$(tree | grep -v /doc/)" "./opt/courier/bin/courierfs
./opt/courier/libexec/courier/courier-sandboxd
./opt/courier/share/bash-completion/completions/courierfs
./opt/courier/share/courierfs/courier-ctl.bash
./opt/courier/share/courierfs/courier.vim
./opt/courier/share/man/man1/courierfs.1
./opt/courier/share/man/man5/courier.5
./opt/courier/share/man/man8/courier-sandboxd.8
./opt/courier/share/systemd/user/courierfs.service
./opt/courier/share/zsh/site-functions/_courierfs"
for f in README.md docs/recipes.md; do
    yes "$f" cmp "$root/$f" "$dest$prefix/share/doc/courierfs/$f"
done
like 'the unit' "$(cat "$dest$prefix/share/systemd/user/courierfs.service")" \
    "^ExecStart=$prefix/bin/courierfs -f "
unlike 'the unit' "$(cat "$dest$prefix/share/systemd/user/courierfs.service")" '@BIN@'
if command -v systemd-analyze >/dev/null; then
    unit=$T/courierfs.service
    sed "s|$prefix/bin|$dest$prefix/bin|" \
        "$dest$prefix/share/systemd/user/courierfs.service" >"$unit"
    XDG_RUNTIME_DIR=$T yes 'systemd takes the unit' \
        systemd-analyze --user verify --man=no "$unit"
fi

# the local host is found in libexec, from the directory of courierfs
is 'version' "$("$dest$prefix/bin/courierfs" --version)" \
    "$("$BIN/courierfs" --version)"
yes 'mounts' timeout 60 "$dest$prefix/bin/courierfs" --data "$D" "$M"
yes 'a project' mkdir "$P"
yes 'a sandbox' sh -c "echo 'create one tool=shell prompt=\"echo works\"' > $S/ctl"
is 'its turn' "$(wait_for one "done")" completed
like 'its output' "$(cat "$S/one/messages")" '^works'
# there is no other one that it could have found
no 'no host on the PATH' command -v courier-sandboxd
echo 'shutdown all' >"$M/ctl"
soon 20 sh -c "! mountpoint -q $M" || bad 'it does not end'

# the unit's command: in the foreground, tells when it is there, ended by SIGTERM
python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
s.settimeout(30)
print(s.recv(100).decode())
' "$T/notify" >"$T/told" &
soon 10 test -S "$T/notify" || bad 'no socket'
NOTIFY_SOCKET=$T/notify "$dest$prefix/bin/courierfs" -f --data "$D" "$M" >"$T/fore" 2>&1 &
fore=$!
soon 20 test -s "$M/status" || bad 'not mounted in the foreground'
like 'says so' "$(cat "$T/fore")" "mounted on $M"
soon 10 grep -qx READY=1 "$T/told" || bad 'systemd is not told'
is 'its pid' "$(pid)" "$fore"
kill $fore
wait $fore
is 'SIGTERM' "$?" 0
no 'unmounted' mountpoint -q "$M"

make_ uninstall
is 'make uninstall' "$?" 0
is 'nothing is left' "$(tree)" ''

# ---- into the home of a user: the data directory is ~/.local/share/courier,
# and is not touched by an installation ----
dest='' prefix=$T/home/.local
data=$prefix/share/courier
install -d -m 700 "$data"
touch "$data/courier.db"
before=$(stat -c '%a %Y' "$data")
make_ install
is 'into ~/.local' "$?" 0
is 'the data directory' "$(stat -c '%a %Y' "$data")" "$before"
if command -v systemd-analyze >/dev/null; then
    paths=$(HOME=$T/home XDG_RUNTIME_DIR=$T systemd-analyze --user unit-paths)
    yes 'systemd looks for the unit there' \
        grep -qx "$prefix/share/systemd/user" <<<"$paths"
    yes 'and in /usr/local' grep -qx /usr/local/share/systemd/user <<<"$paths"
fi
make_ uninstall
is 'out of it' "$(cat "$T/make")" ''
is 'the data is left' "$(cd "$prefix" && find . ! -type d)" ./share/courier/courier.db
