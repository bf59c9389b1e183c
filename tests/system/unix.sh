#!/bin/bash
# Each cell of the tables of docs/unix.md: that tool on that kind of file does
# on a real mount what the cell says.
. "$(dirname "$0")/../lib.sh"

DOC=$HERE/../docs/unix.md
W=$T/want
KINDS="view stream document control key directory symlink"

start
mk one
ask one 'echo the agent speaks; seq 20' >/dev/null
mkdir -p "$P/skills/x"
echo sk-0123456789abcdefghij >"$M/keys/openai"

# the file of each kind; documents are tried both where names are fixed and
# where they are free
declare -A FILE=(
    [view]=$S/one/info.json [stream]=$S/one/messages
    [document]=$P/system-prompt.md [document2]=$P/personas/p
    [control]=$S/one/ctl [key]=$M/keys/openai
    [directory]=$S/one [symlink]=$P/by-status/running/one
)
echo 0 >"$T/n"
# a text that no file holds yet, for the kind
fresh() {
    local n
    n=$(($(<"$T/n") + 1))
    echo $n >"$T/n"
    case $1 in
    document*) printf 'instructions = a text for the %05dth time\n' $n ;;
    key) printf 'sk-test-0123456789%05d\n' $n ;;
    *) printf 'timeout %ss\n' $((1200 + n * 5)) ;;
    esac
}
# what must differ once a write has been taken
trace() {
    case $1 in
    control) cat "$S/one/expires" ;;
    directory | symlink) stat -c %i/%F "${FILE[$1]}" ;;
    view | stream) head -c 64 "${FILE[$1]}" ;;
    *) cat "${FILE[$1]}" ;;
    esac 2>&1
}
documents() {
    fresh document >"$P/system-prompt.md"
    fresh document >"$P/personas/p"
}
documents

# ---- words ----

# errno_of TEXT: the first errno whose words stand in it
errno_of() {
    local l
    shopt -s nocasematch
    while read -r l; do
        case $l in
        *'read-only file system'* | *EROFS*) echo EROFS; break ;;
        *'permission denied'* | *EACCES*) echo EACCES; break ;;
        *'operation not permitted'* | *EPERM*) echo EPERM; break ;;
        *'is a directory'* | *EISDIR*) echo EISDIR; break ;;
        *'not a directory'* | *ENOTDIR*) echo ENOTDIR; break ;;
        *'directory not empty'* | *ENOTEMPTY*) echo ENOTEMPTY; break ;;
        *'invalid argument'* | *EINVAL*) echo EINVAL; break ;;
        *'no such device'* | *ENODEV*) echo ENODEV; break ;;
        *'resource busy'* | *EBUSY*) echo EBUSY; break ;;
        *'file exists'* | *'existing file'* | *EEXIST*) echo EEXIST; break ;;
        *'bad message'* | *EBADMSG*) echo EBADMSG; break ;;
        *'no such file'* | *ENOENT*) echo ENOENT; break ;;
        esac
    done <<<"$1"
    shopt -u nocasematch
}

# ---- tools that read ----
#
# Each is run on the file and on an ordinary file, directory or symlink of
# the same content; `same` is: same output, same exit code.

declare -A READ=(
    [stat]='stat -c "%F" "$F"; test -d "$F" || stat -c %s "$F"'
    [cat]='cat "$F"'
    [head]='head -n 3 "$F"; head -c 100 "$F"'
    [tail]='tail -n 3 "$F"; tail -c 100 "$F"; tail -n +2 "$F"'
    [tac]='tac "$F"'
    [less]='less "$F" | cat'
    [wc]='wc -l <"$F"; wc -c "$F"; wc "$F"'
    [grep]='grep -c . "$F"; grep -n a "$F"'
    ['grep -r']='grep -rc . "$F" | sort'
    [rg]='rg -n . "$F" | sort'
    ['rg --mmap']='rg --mmap -n . "$F" | sort'
    [find]='listing "$F"'
    ['ls -lt']='ls -lt "$F" | awk "{ print \$1, \$3, \$1 ~ /^d/ ? 0 : \$5, \$9 }" | grep -v ^total'
    ['cp -r']='rm -rf "$T/o"; cp -r "$F" "$T/o"; look "$T/o"'
    ['rsync -a']='rm -rf "$T/o"; rsync -a "$F" "$T/o"; look "$T/o"'
    [tar]='rm -rf "$T/o"; mkdir "$T/o"; tar -C "${F%/*}" -cf - "${F##*/}" | tar -C "$T/o" --warning=no-timestamp -xf -; look "$T/o"'
    ['dd if=']='dd if="$F" bs=37 status=none; dd if="$F" bs=1M status=none'
    [sort]='sort "$F"'
    [diff]='diff "$F" "$W"'
    [cmp]='cmp "$F" "$W"'
    [awk]='awk "{ print NR, \$0 }" "$F"'
    [jq]='jq -Rs length "$F"'
    [perl]='perl -ne "print" "$F"'
    ['git hash-object']='git hash-object "$F"'
    [xargs]='xargs -d "\n" -n 1 echo <"$F"'
    [sha256sum]='sha256sum "$F"'
    ['curl file:']='curl -sS "file://$F"'
    ['curl -T']='curl -sS -T "$F" "file://$T/up/"; look "$T/up"; rm -rf "$T/up"; mkdir "$T/up"'
    [make]='printf "all: %s\n\t@cat \$<\n" "$F" | make -sf -'
    [python]='python3 -c "import sys; sys.stdout.write(open(sys.argv[1]).read())" "$F"'
    ['python mmap']='python3 -c "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
sys.stdout.write(mmap.mmap(f, 0, prot=mmap.PROT_READ).read().decode())" "$F"'
    ['python mmap private']='python3 -c "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
sys.stdout.write(mmap.mmap(f, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).read().decode())" "$F"'
    [node]='node -e "process.stdout.write(require(\"fs\").readFileSync(process.argv[1]))" "$F"'
    [base64]='base64 "$F"'
    [install]='rm -rf "$T/o"; install -m600 "$F" "$T/o"; look "$T/o"'
)
mkdir "$T/up"
# the content of a copy
listing() { find "$1" -type d -printf '%P/\n' -o -printf '%P %y %s %l\n' | sort; }
look() { (cd "$1" 2>/dev/null && listing . && find . -type f | sort | xargs cat) || cat "$1"; }
export -f look listing
export T W LESS='' LESSOPEN=''

plain=
# plain_copy KIND: an ordinary twin of the file, with its time, into $W
plain_copy() {
    rm -rf "$T/plain"
    mkdir "$T/plain"
    W=$T/plain/${FILE[$1]##*/}
    if [ "$1" = symlink ]; then # what it points to is there, too
        W=$T/plain/by-status/running/one
        mkdir -p "${W%/*}" "$T/plain/sandboxes"
        cp -P "${FILE[symlink]}" "$W"
        touch -hr "${FILE[symlink]}" "$W"
        cp -rp "$S/one" "$T/plain/sandboxes/one"
        return
    fi
    python3 - "${FILE[$1]}" "$W" <<'END'
import os, sys
def copy(a, b):
    st = os.lstat(a)
    if os.path.islink(a):
        os.symlink(os.readlink(a), b)
    elif os.path.isdir(a):
        os.mkdir(b, st.st_mode & 0o777)
        for n in sorted(os.listdir(a)):
            copy(a + "/" + n, b + "/" + n)
    else:
        with open(a, "rb") as f, open(b, "wb") as g:
            g.write(f.read())
        os.chmod(b, st.st_mode & 0o777)
    os.utime(b, ns=(st.st_atime_ns, st.st_mtime_ns), follow_symlinks=False)
copy(*sys.argv[1:])
END
}

run_read() { # TOOL FILE: output and code, paths made alike
    (
        F=$2
        eval "${READ[$1]}"
        echo "rc $?"
    ) 2>&1 </dev/null | sed "s,$2,FILE,g; s,${2#/},FILE,g"
}
cell_read() { # TOOL KIND: its word in $word
    local a b
    # made once for a kind, and again when the first look was not right
    [ "$plain" = "$2" ] || plain_copy "$2"
    plain=$2
    export W
    a=$(run_read "$1" "${FILE[$2]}")
    b=$(run_read "$1" "$W")
    word=same
    [ "$a" = "$b" ] && return
    plain=
    word=$(errno_of "$a")
    word=${word:-other}
    diff <(echo "$b") <(echo "$a") >"$T/why"
}

# ---- tools that write: $F becomes, or is told, what is in $NEW ----

declare -A WRITE=(
    [bash]='bash -c '\''cat "$NEW" >"$F"'\'
    ['bash echo']='bash -c '\''read -r l <"$NEW"; echo "$l" >"$F"'\'
    ['dash echo']='dash -c '\''read -r l <"$NEW"; echo "$l" >"$F"'\'
    ['zsh echo']='zsh -fc '\''read -r l <"$NEW"; echo "$l" >"$F"'\'
    ['bash set -C']='bash -Cec '\''cat "$NEW" >"$F"'\'
    ['dash set -C']='dash -Cec '\''cat "$NEW" >"$F"'\'
    ['zsh set -C']='zsh -fCec '\''cat "$NEW" >"$F"'\'
    ['bash set -C, forced']='bash -Cec '\''cat "$NEW" >|"$F"'\'
    ['dash set -C, forced']='dash -Cec '\''cat "$NEW" >|"$F"'\'
    ['zsh set -C, forced']='zsh -fCec '\''cat "$NEW" >|"$F"'\'
    ['>>']='bash -c '\''cat "$NEW" >>"$F"'\'
    [tee]='tee "$F" <"$NEW" >/dev/null'
    ['tee -a']='tee -a "$F" <"$NEW" >/dev/null'
    [cp]='cp "$NEW" "$F"'
    ['cp --remove-destination']='cp --remove-destination "$NEW" "$F"'
    [mv]='cp "$NEW" "$NEW.mv" && mv -f "$NEW.mv" "$F"'
    [install]='install -m600 "$NEW" "$F"'
    ['rsync -a']='rsync -a -I --no-times "$NEW" "$F"'
    ['rsync --inplace']='rsync -I --inplace "$NEW" "$F"'
    ['dd of=']='dd of="$F" if="$NEW" status=none'
    ['dd conv=notrunc']='truncate -s 0 "$F" 2>/dev/null; dd of="$F" if="$NEW" status=none conv=notrunc'
    [sponge]='sponge "$F" <"$NEW"'
    ['sed -i']='sed -i -e "1r $NEW" -e "1,\$d" "$F"'
    ['perl -i']='perl -i -e "BEGIN { open my \$n, q(<), \$ENV{NEW}; \$t = join q(), <\$n> } while (<>) { print \$t if \$. == 1 }" "$F"'
    [patch]='diff -u "$F" "$NEW" >"$T/diff"; patch -s "$F" "$T/diff"'
    [sort]='sort -o "$F" "$NEW"'
    ['jq > tmp && mv']='(cd "$(dirname "$F")" && jq -Rr . "$NEW" >f.tmp && mv -f f.tmp "$F"; r=$?; rm -f f.tmp; exit $r)'
    ['curl -o']='curl -sS -o "$F" "file://$NEW"'
    [python]='python3 -c "import sys; open(sys.argv[1], \"w\").write(open(sys.argv[2]).read())" "$F" "$NEW"'
    ['python r+']='python3 -c "
import sys
f = open(sys.argv[1], \"r+\"); t = open(sys.argv[2]).read()
f.seek(0); f.truncate(); f.write(t); f.close()" "$F" "$NEW"'
    ['python mmap']='python3 -c "
import mmap, os, sys
t = open(sys.argv[2], \"rb\").read()
f = open(sys.argv[1], \"r+b\"); f.truncate(len(t))
m = mmap.mmap(f.fileno(), len(t)); m[:] = t; m.flush(); m.close(); f.close()" "$F" "$NEW"'
    [node]='node -e "const fs = require(\"fs\"); fs.writeFileSync(process.argv[1], fs.readFileSync(process.argv[2]))" "$F" "$NEW"'
    [awk]='awk -v f="$F" "{ print > f }" "$NEW"'
    [ed]='printf "%s\n" "1,\$d" "0r $NEW" w q | ed -s "$F"'
    [truncate]='truncate -s 0 "$F"'
    [touch]='touch "$F"'
    [chmod]='chmod 600 "$F"'
    [rm]='rm -f "$F"'
    ['rm -r']='rm -rf "$F"'
    [rmdir]='rmdir "$F"'
    [mkdir]='mkdir "$F"'
    [ln]='ln "$F" "$F.bak"'
    ['ln -sf']='ln -sfn target "$F"'
    ['mv away']='mv "$F" "$T/away"'
    [mkfifo]='mkfifo "$F.bak"'
)

# heal KIND: as it was before the tool
heal() {
    case $1 in
    document) fresh document >"${FILE[document]}" ;;
    document2) mkdir -p "$P/personas"; fresh document >"${FILE[document2]}" ;;
    key) fresh key >"${FILE[key]}" ;;
    esac 2>/dev/null
    rm -rf "$T/away"
}
write_word() {
    local F=${FILE[$2]} NEW=$T/new before after out rc e
    heal "$2"
    fresh "$2" >"$NEW"
    [ "$2" = directory ] && [ "$1" = mkdir ] && F=$S/one
    before=$(trace "$2")
    export F NEW
    out=$(eval "${WRITE[$1]}" 2>&1 </dev/null)
    rc=$?
    after=$(trace "$2")
    printf '%s\nrc %s\nbefore %s\nafter %s\n' "$out" "$rc" "$before" "$after" >"$T/why"
    e=$(errno_of "$out")
    # others than root are stopped by the mode bits
    case $2 in view | stream) [ "${root:-}$e" = EACCES ] && e=EROFS ;; esac
    if [ "$before" != "$after" ]; then
        case $1:$2 in
        rm*:* | 'mv away':*) e=${e:-removes} ;;
        touch:*) e=changes ;;
        *:control) e=${e:+$e,}runs ;;
        *:key) e=${e:+$e,}sets ;;
        *:document*) e=${e:+$e,}saves ;;
        *) e=changes ;;
        esac
    elif [ -z "$e" ]; then
        [ $rc = 0 ] && e=nothing || e=fails
    fi
    echo "$e"
}
cell_write() {
    local a
    word=$(write_word "$1" "$2")
    [ "$2" = document ] || return
    a=$(write_word "$1" document2)
    [ "$a" = "$word" ] || word="$word/$a"
}

# ---- tools that watch: end well once they have seen a change of $F ----

declare -A WATCH=(
    ['tail -f']='tail -n 0 -f "$F" | grep -m 1 -q .'
    ['tail -F']='tail -n 0 -F "$F" 2>/dev/null | grep -m 1 -q .'
    [watch]='TERM=xterm watch -g -n 0.2 "ls -la $F | md5sum; cat $F 2>&1 | md5sum"'
    [inotifywait]='inotifywait -qq -e modify,attrib,move,create,delete "$F"'
    [entr]='echo "$F" | entr -npz true'
    ['entr -d']='echo "$F/ctl" | entr -npdz true; test $? = 2'
    ['fs.watch']='node -e "require(\"fs\").watch(process.argv[1], () => process.exit(0))" "$F"'
    ['fs.watchFile']='node -e "require(\"fs\").watchFile(process.argv[1], {interval: 200}, () => process.exit(0))" "$F"'
    [poll]='python3 -c "
import os, select, sys
f = os.open(sys.argv[1], os.O_RDONLY)
while os.read(f, 65536): pass
p = select.poll(); p.register(f, select.POLLIN)
sys.exit(not p.poll(8000))" "$F"'
)
declare -A WATCHED=(
    [view]=$P/status [stream]=$S/one/messages [document]=$P/env
    [control]=$S/one/ctl [key]=$M/keys/openai [directory]=$P/sandboxes
)
watcher() { # TOOL KIND: into its own file
    export F=${WATCHED[$2]}
    if timeout 15 bash -c "${WATCH[$1]}" >/dev/null 2>&1 </dev/null; then
        echo sees
    else
        echo blind
    fi >"$T/watch/$1.$2"
}
# all at once: one change of each file for all who watch it
watch_all() {
    local t k
    mkdir -p "$T/watch"
    echo A=1 >"$P/env"
    while IFS=$'\t' read -r k _ t _; do
        [ -n "${WATCH[$t]:-}" ] && [ -n "${WATCHED[$k]:-}" ] &&
            watcher "$t" "$k" &
    done
    sleep 4
    for t in 1 2 3; do # tools that begin late on a slow machine see the next
        mkdir "$S/draft$t"
        echo "A=1$t" >"$P/env"
        fresh key >"$M/keys/openai"
        ask one "echo again $t" >/dev/null
        echo interrupt >"$S/one/ctl"
        [ -z "$(pgrep -f "$T/" | grep -vx -e $$ -e "$(pid)" )" ] && break
        sleep 1
    done
    wait
}
cell_watch() { word=$(cat "$T/watch/$1.$2" 2>/dev/null); }

# ---- a mode and an owner that are so already ----

yes "a directory" chmod 700 "$S/one" "$S" "$P" "$M/projects"
yes "made with it" mkdir -m 700 "$S/withmode"
yes "and by install" install -d -m 700 "$S/withmode"
rmdir "$S/withmode"
yes "a view" chmod 400 "$S/one/status" "$P/board" "$S/one/messages"
yes "an owner" chown "$(id -u):$(id -g)" "$S/one" "$S/one/status" "$P/env"
no "another mode of a directory" chmod 755 "$S/one"
no "another mode of a view" chmod 600 "$S/one/status"

# ---- the tables ----

# cells: KIND TAB TABLE TAB TOOL TAB WORD for each cell of the doc
cells() {
    awk -F' *\\| *' -v kinds="$KINDS" '
        /^## / { table = tolower($0) }
        /^\| tool / { for (i = 3; i < NF; i++) head[i] = $i; on = 1; next }
        /^\|-/ { next }
        on && /^\|/ {
            tool = $2; gsub(/`/, "", tool)
            for (i = 3; i < NF; i++) {
                w = $i; sub(/ .*/, "", w)
                if (w != "-")
                    printf "%s\t%s\t%s\t%s\n", head[i], table, tool, w
            }
        }
        !/^\|/ { on = 0 }' "$DOC"
}

if [ "${1:-}" = print ]; then # what it is now, as rows for the doc
    declare -A row
    for k in $KINDS; do
        for t in "${!READ[@]}"; do
            cell_read "$t" "$k"
            [ $word = same ] || sed "s/^/$t $k: /" "$T/why" >&2
            row["r $t"]+=" $word |"
        done
        for t in "${!WRITE[@]}"; do
            cell_write "$t" "$k"
            row["w $t"]+=" $word |"
        done
    done
    for t in "${!WATCH[@]}"; do
        for k in $KINDS; do printf '%s\t-\t%s\t\n' "$k" "$t"; done
    done | watch_all
    for t in "${!WATCH[@]}"; do
        for k in $KINDS; do
            cell_watch "$t" "$k"
            row["z $t"]+=" $word |"
        done
    done
    for t in "${!row[@]}"; do
        echo "${t%% *} | \`${t#* }\` |${row[$t]}"
    done | sort
    exit 0
fi

seen=0 shares=
[ "$(printf '6.6\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.6 ] && shares=1
cells | grep watch | watch_all
while IFS=$'\t' read -r kind table tool want; do
    seen=$((seen + 1))
    case $table in
    *read*) fn=cell_read known=${READ[$tool]:-} ;;
    *write*) fn=cell_write known=${WRITE[$tool]:-} ;;
    *watch*) fn=cell_watch known=${WATCH[$tool]:-} ;;
    *) continue ;;
    esac
    if [ -z "$known" ]; then
        bad "no test for the row '$tool'"
        continue
    fi
    # no shared mappings of what is not cached before Linux 6.6
    case $tool:$kind in
    'python mmap':stream | 'python mmap':directory | 'python mmap':symlink) ;;
    'python mmap':*) [ $shares ] || continue ;;
    esac
    $fn "$tool" "$kind"
    # a minute may have ended between the two looks
    [ "$word" = "$want" ] || $fn "$tool" "$kind"
    is "$tool on a $kind" "$word" "$want"
    [ "$word" = "$want" ] || head -n 12 "$T/why"
done < <(cells | sort)
yes "the doc has tables" [ $seen -gt 100 ]
