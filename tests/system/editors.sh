#!/bin/bash
# Editors in a terminal: create, save, save again, a refused save that is
# shown, undo and save, in each kind of document. An editor has a project of
# its own; all run side by side.
. "$(dirname "$0")/../lib.sh"

start
mkdir "$T/tmux" "$T/home"
export TMUX_TMPDIR=$T/tmux HOME=$T/home
unset TMUX
cat >"$T/drive.py" <<'END'
import os, re, shutil, subprocess, sys, threading, time
M = sys.argv[1]
passed, lock = 0, threading.Lock()
VIM = "vim --clean -N --cmd 'set nomore shortmess=aoOtTF' -c 'set backupskip= noautoindent %s' "
ESC, ENTER = "Escape", "Enter"
BAD = r"(?i)Operation canceled|E514|E512|E667|Invalid argument|Bad message"
# how to: open, replace all by a text, add a line, save, take back, leave
def vim(opts):
    return dict(cmd=VIM % opts, all=[":%d", ENTER, "i", "@TEXT", ESC],
                add=["G", "o", "@TEXT", ESC], save=[":w", ENTER], good=r"written|\[w\]",
                ready=r"(?m)^~|All|\d+,\d+", after=[ENTER], undo=["u"], quit=[":q!", ENTER],
                mark=lambda n: ([":echo 'mark'.%d" % n, ENTER], "mark%d" % n))
nano = dict(cmd="nano -I %s ", all=["M-\\", "C-t" if 0 else "M-T", "@TEXT"], add=["M-/", "@TEXT"],
            save=["C-o", ENTER], good=r"Wrote \d+ line", ready=r"\^X Exit", after=[], undo=["M-u"] ,
            quit=["C-x", "n"], mark=None)
EDITORS = {
    "vim-auto": vim("backupcopy=auto writebackup"),
    "vim-yes": vim("backupcopy=yes backup"),
    "vim-no": vim("backupcopy=no backup"),
    "vim-none": vim("nobackup nowritebackup noswapfile"),
    "nano": dict(nano, cmd="nano -I "),
    "nano-B": dict(nano, cmd="nano -I -B "),
    "ed": dict(cmd="ed -p '*' ", all=["1,$d", ENTER, "a", ENTER, "@TEXT", ENTER, ".", ENTER],
               add=["$a", ENTER, "@TEXT", ENTER, ".", ENTER], save=["w", ENTER],
               good=r"(?m)^\d+$", ready=r"\*", after=["h", ENTER], undo=["u", ENTER], quit=["Q", ENTER], mark=None),
    "micro": dict(cmd="micro ", all=["C-a", "Delete", "@TEXT"], add=["C-End", "@TEXT"], save=["C-s"],
                  good=r"Saved ", ready=r"ft:|\| (unix|dos)", after=[], undo=["C-k"], quit=["C-q", "n"], mark=None),
}
if shutil.which("emacs"):
    EDITORS["emacs"] = dict(cmd="emacs -nw -Q --eval '(setq inhibit-startup-screen t)' ",
        all=["C-x", "h", "C-w", "@TEXT"], add=["M->", ENTER, "@TEXT"], save=["C-x", "C-s"],
        good=r"Wrote ", ready=r"\((Text|Fundamental|Conf|Markdown|Emacs-Lisp|Outline)", after=["C-g"],
        undo=["C-a", "C-k", "BSpace"], quit=["C-x", "C-c", "n", "y", "e", "s", ENTER], mark=None)
# a text, another line, a line that is refused
DOCS = {
    "config": ("timeout = 20m", "memory = 512", "colour = blue"),
    "env": ("A=1", "B=2", "1x=2"),
    "personas/p": ("role = designer", "instructions = hello", "nonsense"),
    "workflows/w": ("[step a]\nrole = designer\ninstructions = x", "[step b]\nrole = checker\ninstructions = y", "[loop z]"),
    "skills/x/SKILL.md": ("# A skill", "Do it well.", None),
}
class Tm:
    def __init__(self, name):
        self.s = name
    def run(self, *a):
        return subprocess.run(["tmux", "-L", "ed", "-f", "/dev/null"] + list(a), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout.decode("utf-8", "replace")
    def screen(self):
        return self.run("capture-pane", "-p", "-t", self.s)
    def keys(self, ks, text=""):
        for k in ks:
            if k == "@TEXT":
                for i, line in enumerate(text.split("\n")):
                    if i:
                        self.run("send-keys", "-t", self.s, ENTER)
                    self.run("send-keys", "-t", self.s, "-l", line)
            elif len(k) > 1 and not re.match(r"^(Escape|Enter|Delete|BSpace|[CM]-(.|End))$", k):
                self.run("send-keys", "-t", self.s, "-l", k)
            else:
                self.run("send-keys", "-t", self.s, k)
    def expect(self, rx, secs=12):
        end = time.time() + secs
        while time.time() < end:
            s = self.screen()
            if re.search(rx, s):
                return s
            time.sleep(0.1)
        return None
def until(fn, secs=8):
    end = time.time() + secs
    while time.time() < end:
        try:
            if fn():
                return True
        except OSError:
            pass
        time.sleep(0.05)
    return False
def ok(what, good, tm=None):
    global passed
    with lock:
        if good:
            passed += 1
        else:
            print("FAILED: " + what)
            if tm:
                print("\n".join("  | " + l for l in tm.screen().rstrip().split("\n")[-8:]))
def read(p):
    with open(p) as f:
        return f.read().strip("\n")
def one(name, e, doc):
    p = "%s/projects/%s/%s" % (M, name, doc)
    text, more, bad = DOCS[doc]
    what = "%s %s: " % (name, doc)
    tm = Tm(name + "-" + doc.replace("/", "_").replace(".", "_"))
    before = set(os.listdir(os.path.dirname(p)))
    tm.run("new-session", "-d", "-s", tm.s, "-x", "120", "-y", "24", e["cmd"] + "'" + p + "'")
    try:
        if not tm.expect(e["ready"]):
            ok(what + "opens", False, tm)
            return
        tm.keys(e["all"], text)
        tm.keys(e["save"])
        ok(what + "save", until(lambda: read(p) == text), tm)
        ok(what + "says so", tm.expect(e["good"]), tm)
        tm.keys(e["add"], more)
        tm.keys(e["save"])
        ok(what + "save again", until(lambda: read(p) == text + "\n" + more), tm)
        if bad:
            tm.keys(e["add"], bad)
            tm.keys(e["save"])
            ok(what + "a refused save is shown", tm.expect(BAD), tm)
            ok(what + "the old one is in force", read(p) == text + "\n" + more, tm)
            ok(what + "the reason", until(lambda: read(p + ".rejected").startswith("# refused")), tm)
            tm.keys(e["after"])
            tm.keys(e["undo"])
            tm.keys(e["save"])
            ok(what + "undo and save", until(lambda: not os.path.exists(p + ".rejected")), tm)
            ok(what + "as it was", until(lambda: read(p) == text + "\n" + more), tm)
        tm.keys(e["quit"])
        until(lambda: tm.run("has-session", "-t", tm.s) is not None and not tm.screen(), 3)
    finally:
        tm.run("kill-session", "-t", tm.s)
    left = lambda: [n for n in set(os.listdir(os.path.dirname(p))) - before
                    if n != os.path.basename(p) and not n.endswith("~")]
    ok(what + "nothing is left: %s" % left(), until(lambda: not left()))
def editor(name):
    os.makedirs("%s/projects/%s/skills/x" % (M, name), exist_ok=True)
    for doc in DOCS:
        one(name, EDITORS[name], doc)
only = sys.argv[2:]
names = [n for n in EDITORS if not only or n in only]
for n in names:
    os.mkdir("%s/projects/%s" % (M, n))
threads = [threading.Thread(target=editor, args=(n,)) for n in names]
Tm("x").run("new-session", "-d", "-s", "keep", "sleep 300")
for t in threads:
    t.start()
for t in threads:
    t.join()
Tm("x").run("kill-server")
print("%d passed" % passed)
END
timeout 240 python3 "$T/drive.py" "$M" "$@" >"$T/py" 2>&1
while IFS= read -r l; do
    case $l in
    FAILED:*) bad "${l#FAILED: }" ;;
    *' passed') passed=$((passed + ${l% *})) && done_=1 ;;
    *) echo "  $l" ;;
    esac
done <"$T/py"
[ "${done_:-}" ] || bad "the program ended early"

# ---- VS Code's sequence ----

mkdir -p "$P/skills/x"
cat >"$T/code.js" <<'END'
const fs = require("fs"), p = process.argv[2], text = process.argv[3];
try {
    const fd = fs.openSync(p, fs.existsSync(p) ? "r+" : "w");
    try {
        fs.ftruncateSync(fd, 0);
        fs.writeSync(fd, text);
        fs.fdatasyncSync(fd);
    } catch (e) {
        try { fs.closeSync(fd); } catch (unheard) {}
        throw e;
    }
    fs.closeSync(fd);
    console.log("saved");
} catch (e) {
    console.log(e.errno == -74 ? "EBADMSG" : e.code);
}
END
code() { node "$T/code.js" "$P/$1" "$2"; }
vscode() { # DOC TEXT MORE BAD
    is "code $1: create" "$(code "$1" "$2")" saved
    is "code $1: save again" "$(code "$1" "$2$3")" saved
    is "code $1: is so" "$(cat "$P/$1")" "$(printf %s "$2$3")"
    [ "$4" ] || return 0
    like "code $1: refused" "$(code "$1" "$2$3$4")" '^(EINVAL|EBADMSG)$'
    is "code $1: the old one is in force" "$(cat "$P/$1")" "$(printf %s "$2$3")"
    like "code $1: the reason" "$(head -n 1 "$P/$1.rejected")" '^# refused'
    is "code $1: undo and save" "$(code "$1" "$2$3")" saved
    no "code $1: nothing refused" test -e "$P/$1.rejected"
}
vscode config $'timeout = 20m\n' $'memory = 512\n' $'colour = blue\n'
vscode env $'A=1\n' $'B=2\n' $'1x=2\n'
vscode personas/p $'role = designer\n' $'instructions = x\n' $'nonsense\n'
vscode workflows/w $'[step a]\nrole = designer\ninstructions = x\n' $'# more\n' $'[loop z]\n'
vscode skills/x/SKILL.md $'# A skill\n' $'Do it well.\n' ''
