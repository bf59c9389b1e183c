#!/bin/bash
# Documents that several have open (§1): renames and removals under open
# files, writers beside each other, what is not saved yet. Each is as a Unix
# user expects: a file that is open goes with its name, one that was replaced
# or removed is nobody's any more.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
mkdir "$M/projects/two"
cat >"$T/fd.py" <<'E2'
import errno, os, sys
P, M = os.environ["P"], os.environ["M"]
os.chdir(P + "/home")
def name(e): return errno.errorcode.get(e.errno, str(e.errno))
def call(f, *a):
    try:
        r = f(*a)
        return "OK" if r is None else r
    except OSError as e:
        return name(e)
def at(p): return p if p[0] == "/" else P + "/" + p
def w(fd, text): return call(os.write, fd, text.encode())
def c(fd): return call(os.close, fd)
def put(p, text):
    with open(at(p), "w") as f:
        f.write(text)
def new(p): return os.open(at(p), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
def old(p): return os.open(at(p), os.O_WRONLY)
def mv(a, b): return call(os.rename, at(a), at(b))
def rd(p):
    try:
        return repr(open(at(p)).read())
    except OSError as e:
        return name(e)
def names(d): return " ".join(sorted(os.listdir(at(d)))) or "-"
exec(sys.argv[1])
E2
export P M
py() { timeout 60 python3 "$T/fd.py" "$1" 2>&1; }

### the byte order mark of some editors is no part of a document
mark=$'\xef\xbb\xbf'
# marked FILE TEXT: is written with a mark, and kept with it
marked() {
    is "$1 takes a mark" "$(wr "$1" "$mark$2")" OK
    is "and keeps it" "$(cat "$1")" "$mark$2"
}
marked "$P/config" 'timeout = 17m'
is 'what it says holds' "$(jq -r .config.timeout.value \
    <(mkdir "$S/bom" && cat "$S/bom/info.json"))" 17m
rmdir "$S/bom"
marked "$P/config" $'# a comment\ntimeout = 18m'
marked "$P/config" ''
marked "$P/env" 'A=b'
marked "$M/tools/bom" $'# mine\ncommand = echo \\\n  x\nformat = text'
rm "$M/tools/bom"
marked "$P/personas/bom" $'role = designer\ninstructions = x'
marked "$P/workflows/bom" $'[step one]\npersona = bom'
rm "$P/workflows/bom" "$P/personas/bom"
marked "$M/rates" 'local * sandbox_seconds 0'
is 'one elsewhere is refused' "$(wr "$P/config" "time${mark}out = 1h")" EINVAL
wr "$P/config" '' >/dev/null

### a file that is open is renamed
is "a new name under a writer" "$(py '
put("home/f", "1"); d = old("home/f"); w(d, "2"); print(mv("home/f", "home/g"), w(d, "3"), c(d), rd("home/f"), rd("home/g"))')" \
    "OK 1 OK ENOENT '23'"
is "a directory above a writer" "$(py '
os.makedirs("r/s"); put("home/r/s/f", "old"); d = new("home/r/s/f"); w(d, "new")
print(mv("home/r", "home/q"), c(d), rd("home/q/s/f"), rd("home/r/s/f"), names("home/q/s"))')" \
    "OK OK 'new' ENOENT f"
is "and above what is not there yet" "$(py '
d = new("home/q/s/fresh"); e = new("home/q/s/x.tmp"); w(e, "scratch")
print(mv("home/q", "home/r"), names("home/r/s"), w(d, "a"), c(d), rd("home/r/s/fresh"), w(e, "!"), c(e), rd("home/r/s/x.tmp"))
print(mv("home/r/s/x.tmp", "home/r/s/f"), rd("home/r/s/f"), names("home/r/s"), names("home"))')" \
    $'OK f fresh x.tmp 1 OK \'a\' 1 OK \'scratch!\'\nOK \'scratch!\' f fresh g r'
is "a refused rename leaves the writer where it was" "$(py '
put("home/r/f", "x"); d = old("home/r/f"); print(mv("home/r/f", "home/r/s"), w(d, "y"), c(d), rd("home/r/f"), names("home/r"))')" \
    "EISDIR 1 OK 'y' f s"
is "a reader goes on with it" "$(py '
put("home/f", "12345"); d = os.open(at("home/f"), os.O_RDONLY); print(os.read(d, 2), mv("home/f", "home/f2"), os.read(d, 9))')" \
    "b'12' OK b'345'"

### over a file that is open
is "the replaced one is nobody's" "$(py '
put("home/k", "k"); d = new("home/g"); w(d, "late"); print(mv("home/k", "home/g"), c(d), rd("home/g"), rd("home/k"))')" \
    "OK OK 'k' ENOENT"
is "also by a scratch file" "$(py '
put("home/k.tmp", "k2"); d = new("home/g"); w(d, "late"); print(mv("home/k.tmp", "home/g"), w(d, "er"), c(d), rd("home/g"))')" \
    "OK 2 OK 'k2'"
is "and a fixed document" "$(py '
put("config.new", "timeout = 5m\n"); d = new("config"); w(d, "timeout = 6m\n"); print(mv("config.new", "config"), c(d), rd("config"))')" \
    "OK OK 'timeout = 5m\\n'"
is "then it can be written again" "$(py '
put("config", "timeout = 7m\n"); put("home/g", "g"); print(rd("config"), rd("home/g"))')" "'timeout = 7m\\n' 'g'"

### renamed into place while it is being written
is "what comes after the rename counts" "$(py '
d = new("home/t.tmp"); w(d, "one "); print(mv("home/t.tmp", "home/t"), rd("home/t"), w(d, "two"), c(d), rd("home/t"), names("home"))')" \
    "OK 'one ' 3 OK 'one two' f2 g r t"
is "also all of it" "$(py '
d = new("config.tmp"); print(mv("config.tmp", "config"), rd("config"), w(d, "timeout = 9m\n"), c(d), rd("config"))')" \
    "OK '' 13 OK 'timeout = 9m\\n'"
is "and is judged" "$(py '
d = new("config.tmp"); w(d, "timeout = 8m\n"); print(mv("config.tmp", "config"), w(d, "frob = 1\n"), rd("config"))')" \
    "OK EINVAL 'timeout = 8m\\n'"
is "from another project" "$(py '
d = new(M + "/projects/two/CLAUDE.md"); w(d, "a"); os.fsync(d); print(mv(M + "/projects/two/CLAUDE.md", "CLAUDE.md"), rd("CLAUDE.md"))')" \
    "OK 'a'"

### several writers
is "who wrote nothing saves nothing of the other" "$(py '
put("home/h", "whole"); d = new("home/h"); w(d, "ha"); e = old("home/h"); print(c(e), rd("home/h"), w(d, "lf"), c(d), rd("home/h"))')" \
    "OK 'whole' 2 OK 'half'"
is "nor does a touch" "$(py '
d = new("home/h"); w(d, "next"); call(os.utime, at("home/h")); os.system("touch " + at("home/h")); print(rd("home/h"), c(d), rd("home/h"))')" \
    "'half' OK 'next'"
is "nor a child that inherited it" "$(py '
d = new("home/h"); os.set_inheritable(d, True); w(d, "ha"); os.spawnlp(os.P_WAIT, "true", "true"); print(rd("home/h"), w(d, "lf"), c(d), rd("home/h"))')" \
    "'next' 2 OK 'half'"
{
    echo one
    /bin/echo two
    (exit 0)
    echo three
} >"$P/home/many"
is "many writers of one open file" "$(cat "$P/home/many")" $'one\ntwo\nthree'
rm "$P/home/many"
is "who truncates it saves that" "$(py '
put("home/h", "12345"); d = old("home/h"); os.ftruncate(d, 2); print(c(d), rd("home/h"))')" "OK '12'"
is "fsync saves" "$(py '
d = new("home/h"); w(d, "syn"); print(call(os.fsync, d), rd("home/h"), w(d, "ced"), c(d), rd("home/h"))')" \
    "OK 'syn' 3 OK 'synced'"
is "two who append" "$(py '
a = os.open(at("config"), os.O_WRONLY | os.O_APPEND); b = os.open(at("config"), os.O_WRONLY | os.O_APPEND)
print(w(a, "cpu = 1\n"), w(b, "memory = 512\n"), c(a), c(b), rd("config"))')" \
    "8 13 OK OK 'timeout = 8m\\ncpu = 1\\nmemory = 512\\n'"
is "removed while it is written" "$(py '
d = new("home/h"); w(d, "x"); print(call(os.unlink, at("home/h")), w(d, "y"), c(d), rd("home/h"))')" "OK 1 OK ENOENT"
is "and made anew" "$(py '
put("home/h", "1"); d = new("home/h"); w(d, "x"); call(os.unlink, at("home/h")); put("home/h", "2"); print(c(d), rd("home/h"))')" "OK '2'"

### directories
is "a directory with scratch is not empty" "$(py '
os.mkdir("d"); put("home/d/x.tmp", "x"); print(call(os.rmdir, at("home/d")), rd("home/d/x.tmp"))
os.mkdir("d2"); print(mv("home/d2", "home/d"), call(os.unlink, at("home/d/x.tmp")), mv("home/d2", "home/d"), call(os.rmdir, at("home/d")))')" \
    $'ENOTEMPTY \'x\'\nENOTEMPTY OK OK OK'
is "as deep as a path may be" "$(py '
n, k = "d" * 200, 0
try:
    while True:
        os.mkdir(n); os.chdir(n); k += 1
except OSError as e:
    print(name(e), k)
os.mkdir("e" * 150)
os.chdir(P + "/home")
print(call(os.rename, n, n + "d" * 50), os.path.isdir(n + "/" + n), call(os.rename, n, "d"), os.path.isdir("d/" + n))')" \
    $'ENAMETOOLONG 19\nENAMETOOLONG True OK True'
yes "goes as a whole" rm -r "$P/home/d"
is "no scratch is left" "$(find "$P" -maxdepth 2 \( -name "*.tmp" -o -name "*.new" \))" ""
