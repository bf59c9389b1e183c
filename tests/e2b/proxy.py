#!/usr/bin/env python3
"""A proxy that breaks things on purpose, between a client of E2B's protocol
and a server of it (courier-sandboxd).

    proxy.py --to HOST:PORT [--seed N] [--rate 0.3] [--kinds a,b] [--log FILE]

Listens on a free port of 127.0.0.1 and prints "port N". One request a
connection. Which request meets which fault follows from the seed and the
request's number alone. While it runs:

    GET /__proxy/set?rate=0.5&kinds=cut,429&seed=7   from now on
    GET /__proxy/stats                               what was done, as JSON

Kinds:
    delay     the answer comes late
    dribble   the answer comes in pieces of 1 to 7 bytes
    cut       the answer ends after some of its bytes (in the middle of a
              header, a JSON text, a file, a frame of a stream)
    early     the connection ends before the request went on
    late      the request is carried out, and its answer thrown away
    429       too many, with Retry-After: 1, not carried out
    500       a JSON error, not carried out
    502       a gateway's HTML page, not carried out
    502late   the same page, but it was carried out
    504       a gateway's text, but it was carried out
"""
import argparse
import json
import random
import socket
import sys
import threading
import time
import urllib.parse

KINDS = ["delay", "dribble", "cut", "early", "late", "429", "500", "502",
         "502late", "504"]
REFUSALS = {
    "429": (b"429 Too Many Requests", b"application/json", b"Retry-After: 1",
            b'{"code":429,"message":"Rate limit exceeded"}'),
    "500": (b"500 Internal Server Error", b"application/json", b"X-Fault: 1",
            b'{"code":500,"message":"broken on purpose"}'),
    "502": (b"502 Bad Gateway", b"text/html", b"X-Fault: 1",
            b"<html><head><title>502 Bad Gateway</title></head><body>\r\n"
            b"<center><h1>502 Bad Gateway</h1></center></body></html>"),
    "504": (b"504 Gateway Timeout", b"text/plain", b"X-Fault: 1",
            b"upstream request timeout"),
}
REFUSALS["502late"] = REFUSALS["502"]


class Plan:
    """what happens to request number n"""

    def __init__(self, seed, rate, kinds):
        self.lock = threading.Lock()
        self.seed, self.rate, self.kinds = seed, rate, kinds
        self.number = 0
        self.done = {}

    def set(self, query):
        with self.lock:
            if "seed" in query:
                self.seed, self.number = int(query["seed"]), 0
            self.rate = float(query.get("rate", self.rate))
            if "kinds" in query:
                self.kinds = [k for k in query["kinds"].split(",") if k]

    def next(self):
        """(kind or None, a source of numbers)"""
        with self.lock:
            self.number += 1
            dice = random.Random(self.seed * 1000003 + self.number)
            hit = dice.random() < self.rate and self.kinds
            kind = dice.choice(self.kinds) if hit else None
            self.done[kind or "none"] = self.done.get(kind or "none", 0) + 1
            return kind, dice


def read_head(sock):
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return None, b""
        data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    return head, rest


def read_request(sock):
    """the request whole, told to close after it"""
    head, body = read_head(sock)
    if head is None:
        return None
    lines = head.split(b"\r\n")
    length, chunked = 0, False
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        if name.lower() == b"transfer-encoding":
            chunked = b"chunked" in value.lower()
    while (not body.endswith(b"0\r\n\r\n")) if chunked else \
            len(body) < length:
        more = sock.recv(65536)
        if not more:
            return None
        body += more
    keep = [h for h in lines if not h.lower().startswith(b"connection:")]
    return lines[0], b"\r\n".join(keep + [b"Connection: close", b"", b""]) + \
        body


def answer(sock, status, kind, extra, body):
    sock.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind +
                 b"\r\n" + extra + b"\r\nContent-Length: " +
                 str(len(body)).encode() + b"\r\nConnection: close\r\n\r\n" +
                 body)


def dribble(sock, data, dice):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    budget = 200  # small pieces, but not of a whole megabyte
    while data:
        n = dice.randint(1, 7) if budget > 0 else len(data)
        budget -= 1
        sock.sendall(data[:n])
        data = data[n:]


def relay(up, sock, kind, dice):
    """the answer from up to sock, until it ends or is cut"""
    left = None
    if kind == "cut":
        left = dice.choice([dice.randint(0, 300), dice.randint(100, 5000),
                            dice.randint(1000, 300000)])
    while True:
        data = up.recv(65536)
        if not data:
            return
        if left is not None and len(data) >= left:
            sock.sendall(data[:left])
            return
        if left is not None:
            left -= len(data)
        if kind == "dribble":
            dribble(sock, data, dice)
        else:
            sock.sendall(data)


def swallow(up):
    """waits until the request was carried out; a stream goes on without us"""
    up.settimeout(0.5)
    try:
        while up.recv(65536):
            pass
    except OSError:
        pass


def reset(sock):
    """an end without goodbye, at times"""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def own(sock, line, plan):
    target = line.split(b" ")[1].decode()
    path, _, query = target.partition("?")
    if path == "/__proxy/set":
        plan.set(dict(urllib.parse.parse_qsl(query)))
    body = json.dumps(plan.done).encode()
    answer(sock, b"200 OK", b"application/json", b"X-Fault: 0", body)


def serve(sock, to, plan, log):
    try:
        got = read_request(sock)
        if got is None:
            return
        line, request = got
        if b" /__proxy/" in line:
            own(sock, line, plan)
            return
        kind, dice = plan.next()
        log(f"{plan.number} {kind or '-'} {line.decode('latin1')[:100]}")
        if kind == "early":
            if dice.random() < 0.5:
                reset(sock)
            return
        if kind in ("429", "500", "502"):
            answer(sock, *REFUSALS[kind])
            return
        with socket.create_connection(to) as up:
            up.sendall(request)
            if kind in ("late", "502late", "504"):
                swallow(up)
                if kind == "late":
                    reset(sock)
                else:
                    answer(sock, *REFUSALS[kind])
                return
            if kind == "delay":
                time.sleep(dice.uniform(0.05, 0.6))
            relay(up, sock, kind, dice)
    except OSError:
        pass
    finally:
        sock.close()


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--to", required=True)
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--rate", type=float, default=0.3)
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--log")
    a = p.parse_args()
    host, _, port = a.to.rpartition(":")
    plan = Plan(a.seed, a.rate, a.kinds.split(","))
    out = open(a.log, "a", buffering=1) if a.log else None
    listener = socket.create_server(("127.0.0.1", a.port), backlog=256)
    print("port", listener.getsockname()[1], flush=True)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve, daemon=True, args=(
            sock, (host, int(port)), plan,
            (lambda s: out.write(s + "\n")) if out else (lambda s: None)
        )).start()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)
