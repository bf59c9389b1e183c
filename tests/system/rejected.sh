#!/bin/bash
# NAME.rejected: what was refused and why stays there until the next good
# save. In each directory of documents, with each way in which editors save
# and, when that was refused, put the old text back: the old one is in force,
# and nothing that changes nothing loses the reason.
. "$(dirname "$0")/../lib.sh"

start
mkdir "$S/d"
mkdir -p "$P/skills/x"
cat >"$T/save.py" <<'END'
import errno, os, sys
M, T = sys.argv[1:]
P = M + "/projects/web"
passed = 0
def check(what, got, want=True):
    global passed
    if got == want:
        passed += 1
    else:
        print("FAILED: %s: got %r, want %r" % (what, got, want))
def put(p, text, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, fsync=False):
    """the errno's name of what was refused first, or None"""
    code = None
    try:
        fd = os.open(p, flags, 0o600)
    except OSError as e:
        return errno.errorcode[e.errno]
    try:
        data = text
        while data:
            data = data[os.write(fd, data):]
        if fsync:
            os.fsync(fd)
    except OSError as e:
        code = errno.errorcode[e.errno]
    try:
        os.close(fd)
    except OSError as e:
        code = code or errno.errorcode[e.errno]
    return code
def get(p):
    try:
        with open(p, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None
def rename(a, b):
    try:
        os.rename(a, b)
    except OSError as e:
        return errno.errorcode[e.errno]

# ---- ways to save that put the old text back when it was refused ----

def in_place(p, bad, good):
    put(p + "~", good)
    r = put(p, bad)
    put(p, get(p + "~"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.unlink(p + "~")
    return r
def fsynced(p, bad, good):
    r = put(p, bad, fsync=True)
    put(p, good, fsync=True)
    return r
def backup_elsewhere(p, bad, good):
    put(T + "/backup", good)
    r = put(p, bad)
    put(p, get(T + "/backup"))
    return r
def renamed_away(p, bad, good):
    os.rename(p, p + "~")
    r = put(p, bad)
    os.rename(p + "~", p)
    return r
def removed_and_renamed(p, bad, good):
    os.rename(p, p + "~")
    r = put(p, bad)
    if os.path.lexists(p):
        os.unlink(p)
    os.rename(p + "~", p)
    return r
def other_name(p, bad, good):
    os.rename(p, p + "aZ3xYt.bck")
    r = put(p, bad)
    os.rename(p + "aZ3xYt.bck", p)
    return r
def renamed_over(p, bad, good):
    put(p + ".tmp", bad)
    r = rename(p + ".tmp", p)
    os.unlink(p + ".tmp")
    put(p + ".tmp", good)
    rename(p + ".tmp", p)
    return r
def removed_and_made(p, bad, good):
    os.unlink(p)
    r = put(p, bad, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    if os.path.lexists(p):
        os.unlink(p)
    put(p, good, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    return r
def twice(p, bad, good):
    put(p, bad)
    put(p, good)
    r = put(p, bad)
    put(p, good)
    put(p, good)
    return r
def looked_at(p, bad, good):
    os.rename(p, p + "~")
    r = put(p, bad)
    get(p + ".rejected") # a program that watches, quicker than the editor
    os.rename(p + "~", p)
    return r
WAYS = [in_place, fsynced, backup_elsewhere, renamed_away, removed_and_renamed, other_name, looked_at,
        renamed_over, removed_and_made, twice]

# a text, another one, one that is refused in a line, one that is as a whole
DOCS = {
    M + "/config": (b"max_active = 30\n", b"timeout = 20m\n", b"colour = blue\n", None),
    M + "/tools/mine": (b"command = cat\nformat = text\n", b"command = tac\nformat = text\n", b"nonsense\n", b"model = x\n"),
    P + "/config": (b"timeout = 20m\n", b"memory = 512\n", b"colour = blue\n", None),
    P + "/env": (b"A=1\n", b"A=2\nB=1\n", b"1x=2\n", None),
    P + "/personas/p": (b"role = designer\n", b"role = checker\n", b"nonsense\n", None),
    P + "/workflows/w": (b"[step a]\nrole = designer\ninstructions = x\n", b"[step b]\nrole = checker\ninstructions = y\n",
                         b"colour = blue\n", b"[step a]\nrole = designer\ninstructions = x\nloop = z\n"),
    P + "/commands/c.md": (b"Do it.\n", b"Do it now.\n", b"#" * ((1 << 20) + 1), None),
    P + "/sandboxes/d/config": (b"timeout = 20m\n", b"memory = 512\n", b"colour = blue\n", None),
}
for p, (good, other, line, whole) in DOCS.items():
    name = p[len(M) + 1:]
    check(name + ": made", put(p, good), None)
    for bad in filter(None, (line, whole)):
        for way in WAYS:
            what = "%s, %s, %s: " % (name, way.__name__, "line" if bad is line else "whole")
            at = os.stat(p).st_mtime_ns
            r = way(p, bad, good)
            check(what + "refused", r in ("EINVAL", "EFBIG", "EBADMSG"))
            check(what + "the old one is in force", get(p), good)
            check(what + "its time", os.stat(p).st_mtime_ns, at)
            left = [n for n in os.listdir(os.path.dirname(p)) if n.startswith(os.path.basename(p) + "aZ") or n.endswith(("~", ".tmp"))]
            check(what + "nothing is left", left, [])
            why = get(p + ".rejected")
            check(what + "the reason", why and why.startswith(b"# refused"))
            # too large to be kept whole: its beginning tells which it was
            check(what + "the text", bad[:100] in (why or b"") or (r == "EFBIG" and len(bad) > 1000))
            # somebody has looked: any save takes it away
            check(what + "saved again", put(p, good), None)
            check(what + "is a good one", get(p + ".rejected"), None)
            # nobody has: one of another text does
            way(p, bad, good)
            check(what + "another text", put(p, other), None)
            check(what + "takes it away, too", get(p + ".rejected"), None)
            check(what + "as it was", put(p, good), None)
        # the old one is in force when its name was free for a moment
        os.unlink(p)
        check(name + ": made anew, refused", put(p, bad, os.O_WRONLY | os.O_CREAT | os.O_EXCL) is not None)
        check(name + ": the old one is in force at once", get(p), good)
        check(name + ": with the reason", (get(p + ".rejected") or b"").startswith(b"# refused"))
        os.unlink(p + ".rejected")
        check(name + ": which can be removed", get(p + ".rejected"), None)

# one that is not there is not made by a refused save, nor made again
p = P + "/personas/new"
check("new: refused", put(p, b"nonsense\n"), "EINVAL")
check("new: not there", get(p), None)
check("new: the reason", (get(p + ".rejected") or b"").startswith(b"# refused"))
check("new: mended", put(p, b"role = judge\n"), None)
check("new: no reason", get(p + ".rejected"), None)
os.unlink(p)
check("removed for good", get(p), None)

# a document renamed over another is judged as that
put(P + "/commands/c.md", b"nonsense\n")
check("one of another kind over it", rename(P + "/commands/c.md", P + "/personas/p"), "EBADMSG")
check("both as they were", (get(P + "/commands/c.md"), get(P + "/personas/p")), (b"nonsense\n", b"role = designer\n"))
check("and the reason", b"nonsense" in (get(P + "/personas/p.rejected") or b""))
print("%d passed" % passed)
END
timeout 60 python3 "$T/save.py" "$M" "$T" >"$T/py" 2>&1
while IFS= read -r l; do
    case $l in
    FAILED:*) bad "${l#FAILED: }" ;;
    *' passed') passed=$((passed + ${l% *})) && done_=1 ;;
    *) echo "  $l" ;;
    esac
done <"$T/py"
[ "${done_:-}" ] || bad "the program ended early"

# ---- tools ----

echo 'role = designer' >"$P/personas/p"
rm -f "$P/personas/p.rejected"
echo 'timeout = 20m' >"$P/config"
# refused TOOL FILE COMMAND...: it says so, and nothing has changed
refused() {
    local what="$1 on ${2##*/}" f=$2 was
    was=$(cat "$f")
    shift 2
    "$@" >"$T/out" 2>&1 </dev/null && [ "$what" != "perl -i on config" ] && [ "$what" != "perl -i on p" ] && bad "$what: succeeded"
    like "$what: says so" "$(cat "$T/out")" 'Invalid argument|Bad message|canceled|closing|close failed'
    is "$what: nothing changed" "$(cat "$f")" "$was"
    like "$what: the reason" "$(head -n 1 "$f.rejected" 2>&1)" '^# refused'
    cat "$f" >"$T/same"
    cp "$T/same" "$f"
    no "$what: gone after a good one" test -e "$f.rejected"
}
echo nonsense >"$T/bad"
export BAD=$T/bad
for f in "$P/config" "$P/personas/p"; do
    export f
    refused 'sed -i' "$f" sed -i 's/.*/nonsense/' "$f"
    refused 'sed -i.bak' "$f" sed -i.bak 's/.*/nonsense/' "$f"
    refused 'perl -i' "$f" perl -i -pe 's/.*/nonsense/' "$f"
    refused 'perl -i.bak' "$f" perl -i.bak -pe 's/.*/nonsense/' "$f"
    refused cp "$f" cp "$BAD" "$f"
    refused 'cp -b' "$f" cp -b "$BAD" "$f"
    refused 'cp --remove-destination' "$f" cp --remove-destination "$BAD" "$f"
    refused install "$f" install -m600 "$BAD" "$f"
    refused 'install -b' "$f" install -b -m600 "$BAD" "$f"
    refused mv "$f" sh -c 'cp "$BAD" "$BAD.mv"; mv "$BAD.mv" "$f"; r=$?; rm -f "$BAD.mv"; exit $r'
    refused 'rsync -a' "$f" rsync -aI "$BAD" "$f"
    refused 'rsync --inplace' "$f" rsync -I --inplace "$BAD" "$f"
    refused 'tee' "$f" sh -c 'tee "$f" <"$BAD"'
    refused 'dd' "$f" dd if="$BAD" of="$f" status=none
    refused 'sort -o' "$f" sort -o "$f" "$BAD"
    refused patch "$f" sh -c 'diff -u "$f" "$BAD" | patch "$f"'
    refused ed "$f" sh -c 'printf "%s\n" a nonsense . w q | ed "$f"'
    rm -f "${f%/*}"/*.bak "${f%/*}"/*~ "${f%/*}"/*.tmp
done
