#!/bin/bash
# The grammar of control files (§3) and the errnos of §2: quoting, bodies'
# marks, short writes, poisoned files, unfinished last lines, tokens, reading.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start

# py: a small language of our own would be longer than Python
cat >"$T/fd.py" <<'E2'
import errno, os, subprocess, sys
S = os.environ["S"]
def name(e): return errno.errorcode.get(e.errno, str(e.errno))
class F:
    def __init__(self, path, flags=os.O_WRONLY):
        self.fd = os.open(path if path[0] == "/" else S + "/" + path, flags)
    def w(self, text):
        try:
            return os.write(self.fd, text if isinstance(text, bytes) else text.encode())
        except OSError as e:
            return name(e)
    def c(self):
        try:
            os.close(self.fd)
            return "OK"
        except OSError as e:
            return name(e)
    def r(self, n=65536):
        try:
            return os.read(self.fd, n).decode()
        except OSError as e:
            return name(e)
def there(n): return os.path.isdir(S + "/" + n)
def text(p): return open(p if p[0] == "/" else S + "/" + p).read()
exec(sys.argv[1])
E2
export S M P
py() { timeout 60 python3 "$T/fd.py" "$1" 2>&1; }
names() { ls "$S" | grep -vx ctl | xargs; }
clear() { local d; for d in "$S"/*/; do [ -d "$d" ] && wr "$S/ctl" "kill $(basename "$d")"$'\n' >/dev/null; done; }
prompt() { cat "$S/$1/prompt"; }

### quoting: drafts with a prompt, made through create's body mark never start
# a VM costs too much here: create waits for room
mk full
echo 'max_active = 1' >"$M/config"
k=0
# quoted TEXT WANT: what prompt= becomes
quoted() {
    k=$((k + 1))
    is "quoting: $1" "$(wr "$S/ctl" "create name=q$k tool=shell prompt=$1"$'\n')" OK
    is "quoting: $1 is" "$(cat "$S/q$k/prompt")" "$2"
}
quoted '"a b"' 'a b'
quoted "'a b'" 'a b'
quoted 'a\ b' 'a b'
quoted '"a"'"'b'"'c' abc
quoted "'it'\\''s'" "it's"
quoted '"say \"hi\" \\ there"' 'say "hi" \ there'
quoted "'\$HOME \`id\` * ~'" "\$HOME \`id\` * ~"
quoted '"$HOME `id` $(id) *"' '$HOME `id` $(id) *'
quoted '$HOME' '$HOME'
quoted '*' '*'
quoted 'a=b=c' 'a=b=c'
quoted '"#no comment"' '#no comment'
quoted 'x#y' 'x#y'
quoted '"a	b"' $'a\tb'
quoted "'<<'" '<<'
quoted '"grüße – 日本"' 'grüße – 日本'
quoted "''" ''
for bad in '"a b' "'a b" 'a\' "\"a b'" "'a\" b"; do
    is "an open quote: $bad" "$(wr "$S/ctl" "create name=bad tool=shell prompt=$bad"$'\n')" EINVAL
    like "it says so" "$(grep -v '^# [a-z]' "$S/ctl" | tail -n 2)" "quote|backslash|end of the line"
done
for line in 'create name=bad name2=x' 'create a b' 'create name=a b' 'create name=bad tool=nobody' \
    'create name=bad timeout=59' 'create name=bad timeout=5h' 'create name=bad timeout=-1m' \
    'create name=bad memory=1' 'create name=bad memory=9999' 'create name=bad cpu=0' \
    'create name=bad cpu=9' 'create name=bad network=maybe' 'create name=bad on_timeout=explode' \
    'create name=bad budget=-1' 'create name=bad budget=lots' 'create name=bad max_active=3' \
    'create name=bad repo' 'CREATE name=bad' 'creat name=bad' 'create name=bad <<END' \
    'create name=bad <<-' 'create name=bad prompt=x <<' 'create name=' "create ''" 'create name=.hidden' \
    'create name=a/b' 'create name=..' 'create name=a..b' 'create name=a.' 'create name=a.lock' \
    'create name=a.rejected' 'create name=ctl' 'create name=-x' 'create name=grün' 'start' 'kill' \
    'killall now' 'pause x=y' "create name=$(printf 'n%.0s' {1..64})"; do
    is "refused: $line" "$(wr "$S/ctl" "$line tool=shell"$'\n' | sed s/EMSGSIZE/EINVAL/)" \
        "$(case $line in kill* | pause* | start*) echo EINVAL ;; *) echo EINVAL ;; esac)"
done
no "nothing was made" test -e "$S/bad"
is "a name of 63" "$(wr "$S/ctl" "create name=$(printf 'n%.0s' {1..63}) tool=shell"$'\n')" OK
is "a name left out is made up" "$(wr "$S/ctl" $'create tool=shell\n')" OK
made=$(grep -v '^# [a-z]' "$S/ctl" | grep -oE 'ok create [a-z]+-[a-z]+-[0-9]+' | awk '{print $3}')
yes "and told ($made)" test -n "$made" -a -d "$S/$made"
is "a key given twice" "$(wr "$S/ctl" $'create name=tw tool=shell timeout=5m timeout=6m\n')" OK
like "the last wins" "$(jq -r .config.timeout.value "$S/tw/info.json")" '^6m$'

### lines
is "comments and blanks" "$(wr "$S/ctl" $'# create name=c1\n\n   \n\t# x\n')" OK
no "a comment commands nothing" test -e "$S/c1"
is "two lines" "$(wr "$S/ctl" $'create name=l1 tool=shell\ncreate name=l2 tool=shell\n')" OK
yes "both" test -d "$S/l1" -a -d "$S/l2"
is "white space around" "$(wr "$S/ctl" $'  create\t name=l3   tool=shell  \n')" OK
is "carriage return" "$(wr "$S/ctl" $'create name=l4 tool=shell\r\n')" OK
yes "both are there" test -d "$S/l3" -a -d "$S/l4"
is "a last line without its newline" "$(wr "$S/ctl" 'create name=l5 tool=shell')" OK
yes "is carried out at close" test -d "$S/l5"
is "and its error arrives" "$(wr "$S/ctl" 'create name=l5 tool=shell')" EEXIST
is "a NUL" "$(py 'f = F("ctl"); print(f.w(b"create name=n\0x\n"))')" EINVAL
is "not UTF-8" "$(py 'f = F("ctl"); print(f.w(b"create name=n\xff\n"))')" EINVAL
is "in pieces" "$(py '
f = F("ctl")
print(f.w("create na"), there("p1"), f.w("me=p1 tool=sh"), there("p1"), f.w("ell\ncreatx"), there("p1"), f.c())')" \
    "9 False 13 False 10 True EINVAL"
is "a byte at a time" "$(py '
f = F("ctl")
print({f.w(c) for c in "create name=p2 tool=shell\n"}, there("p2"), f.c())')" "{1} True OK"
is "O_TRUNC, O_APPEND, offsets" "$(py '
f = F("ctl", os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
print(f.w("create name=o1 tool=shell\n"))
print(os.pwrite(f.fd, b"create name=o2 tool=shell\n", 1000), f.c(), there("o1"), there("o2"))' | xargs)" \
    "26 26 OK True True"
yes "truncate(1) does nothing" truncate -s 0 "$S/ctl"
yes "open and close do nothing" eval ': > "$S/ctl"; : >> "$S/ctl"'
yes "dd" dd if=<(echo create name=dd1 tool=shell) of="$S/ctl" bs=5 status=none
yes "tee" eval 'echo create name=tee1 tool=shell | tee "$S/ctl" >/dev/null'
yes "cp" eval 'echo create name=cp1 tool=shell > "$T/x"; cp "$T/x" "$S/ctl"'
for n in dd1 tee1 cp1; do yes "$n is there" test -d "$S/$n"; done

### errors in the middle
is "line 2 of 3 fails" "$(py '
f = F("ctl")
print(f.w("create name=s1 tool=shell\nfrob\ncreate name=s2 tool=shell\n"), f.w("frob\ncreate name=s2 tool=shell\n"), f.w("create name=s3 tool=shell\n"), f.c())')" \
    "26 EINVAL ECANCELED OK"
yes "what came before is done" test -d "$S/s1"
no "what came after isn't" test -e "$S/s2" -o -e "$S/s3"
is "after a failure, the rest is nothing" "$(py '
f = F("ctl")
print(f.w("frob\n"), f.w("create name=s4 tool=shell\n"), f.w("create name=s4"), f.c())')" "EINVAL ECANCELED ECANCELED OK"
no "not even at close" test -e "$S/s4"
is "an unfinished line before the bad one" "$(py '
f = F("ctl")
print(f.w("create name=s5"), f.w(" tool=shell\nfrob\n"), f.w("frob\n"), there("s5"))')" "14 12 EINVAL True"
( echo frobnicate >"$S/ctl" ) 2>"$T/e"; is "bash sees it" $? 1
like "with its words" "$(cat "$T/e")" "Invalid argument"
no "cp sees it" cp /dev/stdin "$S/ctl" <<<'frobnicate'
no "dd sees it" dd of="$S/ctl" status=none <<<'frobnicate'
no "tee sees it" tee "$S/ctl" <<<'frobnicate'
no "the close of a line without newline is seen by cat" eval 'printf frob | cat > "$S/ctl"'
long=$(printf 'x%.0s' {1..30000})
is "a line of 60,000 bytes" "$(wr "$S/ctl" "create name=big tool=shell prompt=$long$long"$'\n')" OK
is "is whole" "$(wc -c <"$S/big/prompt")" 60000
is "one above 64 KiB" "$(wr "$S/ctl" "create name=big2 tool=shell prompt=$long$long$long"$'\n')" EMSGSIZE
is "one above 64 KiB without an end" "$(py '
f = F("ctl")
n = 0
for k in range(40):
    r = f.w("x" * 4096)
    if not isinstance(r, int): break
    n += r
print(r, n <= 65536 + 4096)')" "EMSGSIZE True"
no "nothing was made" test -e "$S/big2"

### what is told
like "in errors" "$(tail -n 12 "$M/errors")" $'\tprojects/web/sandboxes/ctl\t'
like "and the project's" "$(cat "$P/errors")" $'\tprojects/web/sandboxes/ctl\t'
is "errors has three columns" "$(awk -F'\t' 'NF != 3' "$M/errors" | head -n 3)" ""
wr "$S/ctl" $'frob sk-ant-api03-SECRETSECRETSECRETSECRET one\n' >/dev/null
wr "$S/ctl" "create name=x tool=shell prompt='ghp_0123456789abcdefghij0123456789abcdef' frob=1"$'\n' >/dev/null
unlike "no key in ctl" "$(cat "$S/ctl")" 'SECRET|ghp_0123'
unlike "no key in errors" "$(cat "$M/errors" "$P/errors" "$M/status")" 'SECRET|ghp_0123'
wr "$S/ctl" "frob $(printf '\e[31mred\a')"$'\n' >/dev/null
is "no escapes in ctl" "$(LC_ALL=C tr -d '[:print:]\n\t\200-\377' <"$S/ctl" | wc -c)" 0
is "no escapes in errors" "$(LC_ALL=C tr -d '[:print:]\n\t\200-\377' <"$M/errors" | wc -c)" 0
for i in 1 2 3 4 5; do wr "$S/ctl" $'folded five\n' >/dev/null; done
is "repeats are folded" "$(grep -c 'folded five' "$M/errors")" 1
like "with a count" "$(grep 'folded five' "$M/errors")" 5
like "a long line is cut" "$(wr "$S/ctl" "frob $long"$'\n'; tail -n 1 "$M/errors" | wc -c)" '^[A-Z]*.?[0-9]{1,3}$'
like "status has the last error" "$(val "$M/status" last_error)" frob

### reading
is "every line begins with #" "$(cat "$S/ctl" "$S/full/ctl" "$M/ctl" "$P/ctl" | grep -vc '^#')" 0
like "its verbs" "$(cat "$S/ctl")" '^# create '
like "the outcome with its time" "$(cat "$S/ctl")" '^# 20[0-9-]+T[0-9:]+Z (ok|error) '
before=$(names)
for f in "$S/ctl" "$S/full/ctl" "$M/ctl" "$P/ctl" "$S/l1/ctl"; do
    cp "$f" "$T/copy" && yes "written over itself: ${f#"$M"}" cp "$T/copy" "$f"
done
is "commands nothing" "$(names)" "$before"
is "size is what is read" "$(stat -c %s "$S/ctl")" "$(wc -c <"$S/ctl")"
is "read-write reads its own" "$(
    exec 3<>"$S/ctl"
    echo 'create name=rw1 tool=shell' >&3
    timeout 5 cat <&3 | grep -c .
)" 1
is "a made-up name is told there" "$(
    exec 3<>"$S/ctl"
    echo create tool=shell >&3
    d=$(timeout 5 cat <&3 | grep -oE 'ok create .*' | awk '{print $3}')
    [ -n "$d" ] && [ -d "$S/$d" ] && echo yes
)" yes
like "an error, too" "$(
    exec 3<>"$S/ctl"
    echo frobnicate >&3 2>/dev/null
    timeout 5 cat <&3
)" 'error frobnicate'
is "only its own" "$(py '
a = F("ctl", os.O_RDWR); b = F("ctl", os.O_RDWR)
a.w("create name=own1 tool=shell\n"); b.w("create name=own2 tool=shell\n")
x = a.r(); y = b.r()
print("own1" in x, "own2" in x, "own2" in y, "own1" in y, repr(a.r()))')" "True False True False ''"

### tokens
t() { wr "$S/ctl" "$1"$'\n'; }
is "with a token" "$(t 'create name=tk1 id=abc tool=shell')" OK
is "the same again" "$(t 'create name=tk1 id=abc tool=shell')" OK
is "another text" "$(t 'create name=tk2 id=abc tool=shell')" EEXIST
no "does nothing" test -e "$S/tk2"
is "elsewhere it is another" "$(wr "$S/full/ctl" $'message id=abc echo once-$((1+1))\n')" OK
is "message: the same again" "$(wr "$S/full/ctl" $'message id=abc echo once-$((1+1))\n')" OK
is "message: another text" "$(wr "$S/full/ctl" $'message id=abc echo twice\n')" EEXIST
is "message: done" "$(wait_for full done)" completed
is "once" "$(grep -c '^once-2' "$S/full/messages")" 1
unlike "without its token" "$(cat "$S/full/messages")" 'id=abc'
is "a body with a token" "$(t $'create name=tk3 id=body tool=shell <<\necho 1')" OK
is "the same body again" "$(t $'create name=tk3 id=body tool=shell <<\necho 1')" OK
t $'create name=tk3 id=body tool=shell <<\necho 2' >/dev/null
yes "another body is refused" soon 10 grep -q 'error create name=tk3 id=body.*used for another' "$S/ctl"
is "and changes nothing" "$(cat "$S/tk3/prompt")" "echo 1"
is "message body with a token" "$(wr "$S/full/ctl" $'message id=mb <<\necho mb-$((1+1))\n')" OK
is "the same again" "$(wr "$S/full/ctl" $'message id=mb <<\necho mb-$((1+1))\n')" OK
is "done" "$(wait_for full done)" completed
is "once" "$(grep -c '^mb-2' "$S/full/messages")" 1
is "a refused one leaves the token free" "$(t 'create name=tk1 id=free tool=shell')" EEXIST
is "for another try" "$(t 'create name=tk9 id=free tool=shell')" OK
is "an empty token" "$(t 'create name=tk8 id= tool=shell')" EINVAL

### message takes the line as it stands
is "apostrophes and all" "$(wr "$S/full/ctl" "message echo \"it's \$((1+1)) \\\\ <<\" # y"$'\n')" OK
is "done" "$(wait_for full done)" completed
like "it stands" "$(cat "$S/full/messages")" "^it's 2 \\\\ <<$"
is "message <<END is a text" "$(wr "$S/full/ctl" $'message echo a <<END\n' )" OK
is "message alone" "$(wr "$S/full/ctl" $'message\n')" EINVAL
is "message of blanks" "$(wr "$S/full/ctl" $'message   \n')" EINVAL
is "exec takes the line" "$(wr "$S/full/ctl" $'exec printf %s "it\'s x"\n')" OK
wait_for full done >/dev/null
yes "done" soon 20 grep -q "it's x" "$S/full/exec/1/stdout"

### errnos at the door
is "unlink of ctl" "$(eno unlink "$S/ctl")" EPERM
is "unlink of a view" "$(eno unlink "$S/full/status")" EPERM
is "rename of ctl" "$(eno rename "$S/ctl" "$S/ctl2")" EPERM
is "mkdir in a sandbox" "$(eno mkdir "$S/full/sub")" EPERM
is "mkdir in by-status" "$(eno mkdir "$P/by-status/x")" EPERM
is "a name with .." "$(eno mkdir "$S/a..b")" EINVAL
is "a name in use" "$(eno mkdir "$S/full")" EEXIST
like "a name of 64" "$(eno mkdir "$S/$(printf 'n%.0s' {1..64})")" 'EINVAL|ENAMETOOLONG'
is "a name of 256" "$(eno mkdir "$S/$(printf 'n%.0s' {1..256})")" ENAMETOOLONG
if [ -n "$root" ]; then
    is "writing a view" "$(wr "$S/full/status" x)" EROFS
else
    is "writing a view" "$(wr "$S/full/status" x)" EACCES
fi
is "a link" "$(eno link "$S/full/status" "$S/full/x")" EPERM
is "a symlink" "$(eno symlink x "$S/full/x")" EPERM
is "a fifo" "$(eno mkfifo "$S/full/x")" EPERM
is "rmdir of a fixed one" "$(eno rmdir "$S")" EPERM
is "expires: nonsense" "$(wr "$S/full/expires" $'soon\n')" EINVAL
is "expires: 59s" "$(wr "$S/full/expires" $'59s\n')" EINVAL
is "expires: 5h" "$(wr "$S/full/expires" $'5h\n')" EINVAL
is "expires: yesterday" "$(wr "$S/full/expires" $'2020-01-01T00:00:00Z\n')" EINVAL
is "expires: 30m" "$(wr "$S/full/expires" $'30m\n')" OK
t=$(($(date -d "$(cat "$S/full/expires")" +%s) - $(date +%s)))
yes "is 30 minutes from now ($t)" test "$t" -ge 1790 -a "$t" -le 1800
is "expires: 30m without newline" "$(wr "$S/full/expires" 20m)" OK
is "expires: a time" "$(wr "$S/full/expires" "$(date -u -d '+40 min' +%FT%TZ)"$'\n')" OK
yes "touch -d" touch -d '+50 min' "$S/full/expires"
t=$(($(stat -c %Y "$S/full/expires") - $(date +%s)))
yes "is 50 minutes from now ($t)" test "$t" -ge 2990 -a "$t" -le 3001
yes "a plain touch" touch "$S/full/expires"
t=$(($(stat -c %Y "$S/full/expires") - $(date +%s)))
yes "is the timeout from now ($t)" test "$t" -ge 890 -a "$t" -le 901
no "touch too far" touch -d '+5 hours' "$S/full/expires"
no "touch into the past" touch -d '-1 hour' "$S/full/expires"
