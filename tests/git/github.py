#!/usr/bin/env python3
"""A stand-in for GitHub's REST API: pull requests, labels, errors on demand.

github.py --port N --state DIR [--token T]

Prints its URL on the first line. Knows every repository OWNER/NAME that is
not named "missing". The pull requests are in DIR/pulls.json, each call is a
line of DIR/calls. DIR/faults is a JSON list, read at each call; its first
entry that fits is taken off and answered:

  {"method": "POST", "path": "pulls", "status": 422, "message": "...",
   "errors": [...], "headers": {...}, "count": 1}
  "status": "drop"  carries the call out and closes without an answer
  "status": "lost"  closes without doing anything
  "status": "html"  502 with a page
  "status": "hide"  (GET of a list) an empty list, as if behind

GITHUB_RECORD=FILE in the environment: calls and answers, a JSON line each.
POST /_/OWNER/NAME/pulls/N {"state": "closed", "merged": true} changes one.
DIR/checks.json, what CI says of any commit: {"runs": {NAME: CONCLUSION, or
null while it runs}, "statuses": {NAME: STATE}}.
Ends by a signal, or with
--until-eof at the end of its standard input.
"""
import argparse
import hashlib
import http.server
import json
import os
import re
import sys
import threading
import urllib.parse

sys.dont_write_bytecode = True
import github_shapes as shapes  # noqa: E402

lock = threading.Lock()


class State:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def load(self, name, default):
        try:
            with open(self.path(name)) as f:
                return json.load(f)
        except (FileNotFoundError, ValueError):
            return default

    def store(self, name, value):
        with open(self.path(name) + ".new", "w") as f:
            json.dump(value, f, indent=1)
        os.rename(self.path(name) + ".new", self.path(name))

    def take_fault(self, method, path):
        faults = self.load("faults", [])
        for i, f in enumerate(faults):
            if f.get("method", method) == method and \
                    f.get("path", "") in path:
                f["count"] = f.get("count", 1) - 1
                if f["count"] <= 0:
                    del faults[i]
                self.store("faults", faults)
                return f
        return None


def refusal(message, *errors):
    out = {"message": message,
           "documentation_url": "https://docs.github.com/rest"}
    if errors:
        out["errors"] = list(errors)
    return out


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state = None
    token = None

    def log_message(self, *a):
        pass

    def answer(self, status, value, headers=None):
        self.record(status, value)
        body = b"" if status == 304 else json.dumps(value).encode()
        etag = 'W/"%s"' % hashlib.sha1(json.dumps(value).encode()).hexdigest()
        if status == 200 and self.command == "GET" and \
                self.headers.get("If-None-Match") == etag:
            status, body = 304, b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("X-RateLimit-Remaining", "4999")
        self.send_header("ETag", etag)
        for k, v in (headers or {}).items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def record(self, status, value):
        if os.environ.get("GITHUB_RECORD") and "/_/" not in self.path:
            with open(os.environ["GITHUB_RECORD"], "a") as f:
                f.write(json.dumps({
                    "method": self.command, "path": self.path,
                    "body": self.raw, "status": status,
                    "answer": value}) + "\n")

    def cut(self):
        self.close_connection = True
        self.connection.close()

    def serve(self):
        n = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(n)
        self.raw = raw.decode("utf-8", "replace")
        with lock:
            with open(self.state.path("calls"), "a") as f:
                f.write("%s %s %s\n" % (self.command, self.path, self.raw))
            fault = self.state.take_fault(self.command, self.path)
            kind = fault["status"] if fault else None
            if kind == "lost":
                self.cut()
                return
            if kind == "html":
                page = b"<html><h1>Unicorn!</h1></html>"
                self.send_response(502)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)
                return
            if kind == "hide":
                self.answer(200, [])
                return
            if isinstance(kind, int):
                out = refusal(fault.get("message", "no"),
                              *fault.get("errors", []))
                self.answer(kind, out, fault.get("headers"))
                return
            try:
                body = json.loads(raw) if raw else None
            except ValueError:
                self.answer(400, refusal("Problems parsing JSON"))
                return
            status, value = self.route(body)
            if kind == "drop":
                self.cut()
            else:
                self.answer(status, value)

    do_GET = do_POST = do_PATCH = serve

    def route(self, body):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        pulls = self.state.load("pulls.json", [])
        m = re.fullmatch(r"/_/([^/]+)/([^/]+)/pulls/(\d+)", url.path)
        if m:
            return self.change(pulls, m.group(1), m.group(2),
                               int(m.group(3)), body)
        if self.token and self.headers.get("Authorization") != \
                "Bearer " + self.token:
            return 401, refusal("Bad credentials")
        if not self.headers.get("User-Agent"):
            return 403, refusal("Request forbidden: no User-Agent")
        m = re.fullmatch(r"/repos/([^/]+)/([^/]+)/(.*)", url.path)
        if not m or m.group(2) == "missing":
            return 404, refusal("Not Found")
        owner, name, rest = m.groups()
        mine = [p for p in pulls if p["repo"] == owner + "/" + name]
        if rest == "pulls" and self.command == "GET":
            return 200, self.listed(mine, owner, query)
        if rest == "pulls" and self.command == "POST":
            return self.create(pulls, mine, owner, name, body)
        m = re.fullmatch(r"pulls/(\d+)", rest)
        if m:
            return self.one(pulls, mine, int(m.group(1)), body)
        m = re.fullmatch(r"commits/([0-9a-f]{40})/(check-runs|status)", rest)
        if m and self.command == "GET":
            checks = self.state.load("checks.json", {})
            make = shapes.check_runs if m.group(2) == "check-runs" \
                else shapes.combined_status
            return 200, make(owner + "/" + name, m.group(1), checks)
        m = re.fullmatch(r"issues/(\d+)/labels", rest)
        if m and self.command == "POST":
            return self.label(pulls, mine, int(m.group(1)), body)
        return 404, refusal("Not Found")

    def listed(self, mine, owner, query):
        state = query.get("state", ["open"])[0]
        head = query.get("head", [""])[0]
        out = [p for p in mine if state in ("all", p["state"])]
        if ":" in head: # else GitHub lists all
            out = [p for p in out if owner + ":" + p["head"] == head]
        return [shapes.simple(p) for p in out]

    def create(self, pulls, mine, owner, name, body):
        for key in ("title", "head", "base"):
            if not isinstance(body.get(key), str) or not body[key]:
                return 422, refusal("Invalid request.\n\n\"%s\" wasn't "
                                    "supplied." % key)
        head = body["head"].split(":")[-1]
        if any(p["state"] == "open" and p["head"] == head and
               p["base"] == body["base"] for p in mine):
            return 422, refusal("Validation Failed", {
                "resource": "PullRequest", "code": "custom",
                "message": "A pull request already exists for %s:%s."
                           % (owner, head)})
        p = {"repo": owner + "/" + name, "number": len(mine) + 1,
             "state": "open", "title": body["title"],
             "body": body.get("body"), "draft": bool(body.get("draft")),
             "merged": False, "labels": [], "head": head,
             "base": body["base"]}
        pulls.append(p)
        self.state.store("pulls.json", pulls)
        return 201, shapes.full(p)

    def one(self, pulls, mine, number, body):
        for p in mine:
            if p["number"] != number:
                continue
            if self.command == "PATCH":
                for key in ("title", "body", "state"):
                    if key in body:
                        p[key] = body[key]
                self.state.store("pulls.json", pulls)
            return 200, shapes.full(p)
        return 404, refusal("Not Found")

    def label(self, pulls, mine, number, body):
        for p in mine:
            if p["number"] == number:
                p["labels"] += [x for x in body["labels"]
                                if x not in p["labels"]]
                self.state.store("pulls.json", pulls)
                return 200, shapes.labels(p)
        return 404, refusal("Not Found")

    def change(self, pulls, owner, name, number, body):
        for p in pulls:
            if p["number"] == number and p["repo"] == owner + "/" + name:
                p.update(body)
                self.state.store("pulls.json", pulls)
                return 200, p
        return 404, refusal("Not Found")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--state", required=True)
    p.add_argument("--token")
    p.add_argument("--until-eof", action="store_true")
    args = p.parse_args()
    Handler.state = State(args.state)
    Handler.token = args.token
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port),
                                             Handler)
    server.daemon_threads = True
    print("http://127.0.0.1:%d" % server.server_address[1], flush=True)
    if not args.until_eof:
        server.serve_forever()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
