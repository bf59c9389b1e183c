#!/usr/bin/env python3
"""crash.py COURIERFS DATA MOUNT ROUNDS SEED: kills and starts it again.

Two writers go on all the time: one sends messages to w1, w2, w3, one makes
sandboxes and takes them through their states. Every command has a token; one
whose outcome is unknown is written again after the restart, so each must
have been done exactly once. Prints 'ok WHAT' and 'bad WHAT' lines.
"""
import errno
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request

BIN, DATA, MOUNT = sys.argv[1:4]
ROUNDS, SEED = int(sys.argv[4]), int(sys.argv[5])
P = MOUNT + "/projects/web"
S = P + "/sandboxes"
DEAD = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EACCES,
        errno.ESHUTDOWN, errno.ENODEV, errno.EIO}
rng = random.Random(SEED)
over = threading.Event()
up = threading.Event()
generation = 0


def say(good, what):
    print("ok" if good else "bad", what, flush=True)


def mount():
    r = subprocess.run([BIN, "--data", DATA, MOUNT], capture_output=True,
                       timeout=120, text=True)
    if r.returncode:
        say(False, "it starts again: " + r.stderr.strip())
        os._exit(1)


def pid():
    for line in open(MOUNT + "/status"):
        if line.startswith("pid "):
            return int(line.split()[1])


def read(path):
    with open(path) as f:
        return f.read()


def command(path, line):
    """until it is accepted; the name of an errno when it is refused"""
    while True:
        up.wait()
        at = generation
        try:
            fd = os.open(path, os.O_WRONLY)
            try:
                os.write(fd, (line + "\n").encode())
            finally:
                os.close(fd)
            return "OK"
        except OSError as e:
            # only a daemon that died is no answer
            if up.is_set() and at == generation and alive():
                return errno.errorcode[e.errno]
            if e.errno not in DEAD and e.errno != errno.EBUSY:
                return errno.errorcode[e.errno]
            time.sleep(0.02)


def alive():
    time.sleep(0.05)
    try:
        os.stat(MOUNT + "/status")
        return up.is_set()
    except OSError:
        return False


sent = {"w1": [], "w2": [], "w3": []}
refused = []
kept, purged, drafts = [], [], []


def talk(seed):
    r = random.Random(seed)
    i = 0
    while not over.is_set():
        who = r.choice(sorted(sent))
        if queue_length(who) > 3:
            time.sleep(0.05)
            continue
        lines = r.choice([3, 40, 400])
        text = ("message id=m%d i=0; while [ $i -lt %d ]; do echo "
                "m%d-$i; i=$((i+1)); [ $((i%%20)) != 0 ] || sleep 0.0%d; "
                "done" % (i, lines, i, r.randrange(1, 6)))
        out = command("%s/%s/ctl" % (S, who), text)
        if out == "OK":
            sent[who].append((i, lines))
        else:
            refused.append((who, i, out))
        i += 1
        time.sleep(r.random() * 0.1)


def queue_length(who):
    up.wait()
    try:
        return json.loads(read("%s/%s/info.json" % (S, who)))[
            "messages"]["queued"]
    except (OSError, ValueError):
        return 0


def settle(name, words):
    until = time.time() + 60
    while time.time() < until:
        try:
            if read("%s/%s/status" % (S, name)).strip() in words:
                return True
        except OSError:
            pass
        time.sleep(0.03)
    return False


def lives(seed):
    r = random.Random(seed)
    i = 0

    def do(path, line, want="OK"):
        out = command(path, line)
        if out != want:
            refused.append((line, want, out))

    while not over.is_set():
        n = "x%d" % i
        how = i % 6
        i += 1
        do(S + "/ctl", "create name=%s id=c-%s tool=shell" % (n, n))
        if how == 0:
            do("%s/%s/ctl" % (S, n), "kill id=k")
            kept.append((n, {"killed"}))
            continue
        if not settle(n, {"running"}):
            refused.append((n, "running", "not reached"))
        if how == 1:
            do("%s/%s/ctl" % (S, n), "pause id=p")
            kept.append((n, {"paused"}))
        elif how == 2:
            do("%s/%s/ctl" % (S, n), "kill id=k now")
            settle(n, {"killed"})
            do(S + "/ctl", "delete id=d-%s %s" % (n, n))
            do(S + "/ctl", "purge id=u-%s %s" % (n, n))
            purged.append(n)
        elif how == 3:
            do("%s/%s/ctl" % (S, n), "pause id=p")
            do("%s/%s/ctl" % (S, n), "resume id=r")
            do("%s/%s/ctl" % (S, n), "kill id=k")
            kept.append((n, {"killed"}))
        elif how == 4:
            do("%s/%s/ctl" % (S, n), "kill id=k")
            settle(n, {"killed"})
            do(S + "/ctl", "delete id=d-%s %s" % (n, n))
            do(S + "/ctl", "restore id=b-%s %s" % (n, n))
            kept.append((n, {"killed"}))
        else:
            do("%s/%s/ctl" % (S, n), "message id=q echo said-%s" % n)
            do("%s/%s/ctl" % (S, n), "kill id=k now")
            kept.append((n, {"killed"}))
        time.sleep(r.random() * 0.2)


def wait_file(path, seconds):
    r = subprocess.run(["timeout", str(seconds), "cat", path],
                       capture_output=True, text=True)
    return r.stdout.strip()


def check_output():
    for who, list_ in sent.items():
        got = wait_file("%s/%s/wait/done" % (S, who), 240)
        say(got == "completed", "%s: all turns are done: '%s'" % (who, got))
        log = read("%s/%s/log" % (S, who))
        messages = read("%s/%s/messages" % (S, who))
        want = "".join("m%d-%d\n" % (i, k) for i, n in list_
                       for k in range(n))
        if log == want:
            say(True, "%s: the log is whole" % who)
        else:
            a, b = log.split("\n"), want.split("\n")
            k = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y),
                     min(len(a), len(b)))
            say(False, "%s: the log has %d lines, wants %d; differs at %d: "
                "%r, wants %r" % (who, len(a), len(b), k, a[k:k + 3],
                                  b[k:k + 3]))
        said = "".join(x + "\n" for x in messages.split("\n")
                       if re.fullmatch(r"m\d+-\d+", x))
        say(said == want, "%s: messages has every line once" % who)
        n = len(re.findall("^── .*  user  #", messages, re.M))
        say(n == len(list_), "%s: %d messages, sent %d" % (who, n,
                                                           len(list_)))
        n = len(re.findall("^── .* #[0-9]+ completed", messages, re.M))
        say(n == len(list_), "%s: %d completed, sent %d" % (who, n,
                                                            len(list_)))
        js = [json.loads(x) for x in
              read("%s/%s/messages.jsonl" % (S, who)).splitlines()]
        n = sum(x["role"] == "assistant" and x["status"] == "completed"
                for x in js)
        say(n == len(list_), "%s: %d in messages.jsonl" % (who, n))
        say([x["seq"] for x in js] == list(range(1, len(js) + 1)),
            "%s: numbered in order" % who)


def check_lives():
    for n, words in kept:
        good = settle(n, words)
        say(good, "%s ends %s" % (n, "/".join(words)))
    for n in purged:
        say(not os.path.exists("%s/%s" % (S, n)) and
            not os.path.exists("%s/trash/%s" % (P, n)), n + " is gone")
    names = os.listdir(S)
    say(len(names) == len(set(names)), "no name twice")
    extra = set(names) - {n for n, _ in kept} - set(sent) - {"ctl"}
    say(not extra, "nobody else there: %s" % sorted(extra))


def check_counts():
    n = sum(read("%s/%s/status" % (S, x)).strip() == "running"
            for x in os.listdir(S) if x != "ctl")
    for line in open(P + "/status"):
        if line.startswith("active "):
            say(int(line.split()[1]) == n, "active is %d: %s" % (n, line.strip()))
    for st in "draft creating running paused killed error".split():
        a = set(os.listdir("%s/by-status/%s" % (P, st)))
        b = {x for x in os.listdir(S) if x != "ctl" and
             read("%s/%s/status" % (S, x)).strip() == st}
        say(a == b, "by-status/%s is true" % st)
    seq = [json.loads(x)["seq"] for x in open(MOUNT + "/events")]
    say(seq == list(range(seq[0], seq[0] + len(seq))),
        "events are numbered without a gap")


def vms():
    env = dict(x.strip().split("=", 1) for x in open(MOUNT + "/local.env")
               if "=" in x)
    env = {k: v.strip("'\"") for k, v in env.items()}
    out, url = [], env["E2B_API_URL"] + "/v2/sandboxes?limit=100"
    token = None
    while True:
        req = urllib.request.Request(
            url + ("&nextToken=" + token if token else ""),
            headers={"X-API-KEY": env["E2B_API_KEY"]})
        with urllib.request.urlopen(req, timeout=30) as r:
            out += [x["sandboxID"] for x in json.load(r)]
            token = r.headers.get("X-Next-Token")
        if not token:
            return sorted(out)


def check_vms():
    def owned():
        return sorted(
            json.loads(read("%s/%s/info.json" % (S, x)))["provider_id"]
            for x in os.listdir(S) if x != "ctl" and
            read("%s/%s/status" % (S, x)).strip() in ("running", "paused"))

    until = time.time() + 90
    while time.time() < until and vms() != owned():
        time.sleep(0.5)
    a, b = vms(), owned()
    say(a == b, "every VM has its record: %d and %d" % (len(a), len(b)))


def main():
    global generation
    up.set()
    threads = [threading.Thread(target=f, args=(SEED + k,), daemon=True)
               for k, f in enumerate((talk, lives))]
    for t in threads:
        t.start()
    slowest = 0.0
    for k in range(ROUNDS):
        time.sleep(rng.random() * rng.choice([0.02, 0.1, 0.5, 1.0]))
        p = pid()
        up.clear()
        generation += 1
        os.kill(p, 9)
        if rng.random() < 0.3:
            time.sleep(rng.random() * 0.5)
        t = time.time()
        mount()
        slowest = max(slowest, time.time() - t)
        up.set()
    over.set()
    for t in threads:
        t.join(120)
    say(not any(t.is_alive() for t in threads), "the writers end")
    say(not refused, "nothing was refused: %s" % refused[:5])
    check_output()
    check_lives()
    check_counts()
    check_vms()
    print("figure rounds %d, messages %d, lines %d, sandboxes %d, "
          "slowest start %.2f s" %
          (ROUNDS, sum(len(x) for x in sent.values()),
           sum(n for x in sent.values() for _, n in x),
           len(kept) + len(purged), slowest), flush=True)


main()
