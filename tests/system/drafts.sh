#!/bin/bash
# Documents while they are written: who sees what, and when.
. "$(dirname "$0")/../lib.sh"

start
mkdir -p "$P/skills/x"
echo 'role = designer' >"$P/personas/p"

# ---- who writes a document sees what he has written, others do not ----

while read -r l; do
    case $l in ok*) ok ;; *) bad "$l" ;; esac
done < <(python3 - "$P/system-prompt.md" "$P/personas/p" "$P/personas/fresh" "$P/home/f" <<'END'
import os, sys, threading
for p in sys.argv[1:]:
    def check(what, got, want):
        print("ok" if got == want else "%s: %s: %r is not %r" % (os.path.basename(p), what, got, want))
    old = os.stat(p).st_size if os.path.exists(p) else 0
    fd = os.open(p, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, b"instructions = a\n" * 40)
    check("fstat", os.fstat(fd).st_size, 17 * 40)
    check("the end", os.lseek(fd, 0, os.SEEK_END), 17 * 40)
    check("what is read", len(os.pread(fd, 9999, 0)), 17 * 40)
    os.fchmod(fd, 0o600)
    got = []
    t = threading.Thread(target=lambda: got.append(os.fstat(fd).st_size))
    t.start()
    t.join()
    check("another thread", got, [17 * 40])
    if os.fork() == 0: # nobody else: what counts is the old one
        os._exit(os.stat(p).st_size != old)
    check("another process", os.wait()[1], 0)
    os.ftruncate(fd, 17)
    check("cut", os.fstat(fd).st_size, 17)
    os.close(fd)
    check("saved", os.stat(p).st_size, 17)
END
)

# ---- emptied by its open alone: it is so once it is closed ----

# wrong WHAT COUNT OF
wrong() { is "$1: wrong ones of $3" "$2" 0; }
for f in "$P/CLAUDE.md" "$P/config" "$P/personas/p" "$P/skills/x/SKILL.md" "$P/home/new"; do
    n=${f##*/} size=0 added=0 cut=0 away=0 there=0
    for i in $(seq 30); do
        echo "# old $i" >"$f"
        : >"$f"
        [ -s "$f" ] && size=$((size + 1))
        echo "# old $i" >"$f"
        : >"$f"
        echo '# new' >>"$f"
        [ "$(<"$f")" = '# new' ] || added=$((added + 1))
        : >"$f"
        : >"$f.bak"
        cat "$f" >>"$f.bak"
        [ -s "$f.bak" ] && cut=$((cut + 1))
        echo "# old $i" >"$f"
        : >"$f"
        mv "$f" "$f.bak"
        [ -s "$f.bak" ] && away=$((away + 1))
        mv "$f.bak" "$f"
        rm "$f"
        : >"$f"
        [ -e "$f" ] && [ ! -s "$f" ] || there=$((there + 1))
    done
    wrong "$n: its size" $size 30
    wrong "$n: added to" $added 30
    wrong "$n: read" $cut 30
    wrong "$n: moved" $away 30
    wrong "$n: made anew" $there 30
done
# many at once look while it is so
python3 - "$P/CLAUDE.md" <<'END' >"$T/py"
import os, sys, threading
p, bad = sys.argv[1], []
for i in range(20):
    with open(p, "w") as f:
        f.write("old\n")
    open(p, "w").close()
    def look():
        if os.stat(p).st_size or open(p).read():
            bad.append(i)
    ts = [threading.Thread(target=look) for n in range(20)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
print(len(bad))
END
is "20 who look at once" "$(cat "$T/py")" 0
