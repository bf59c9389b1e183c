#!/usr/bin/env python3
"""Checks recorded calls (github.py, GITHUB_RECORD) against an OpenAPI 3.0
description: openapi.py DESCRIPTION RECORD. Knows what of JSON Schema GitHub's
description uses for pull requests and labels."""
import json
import re
import sys
import urllib.parse

TYPES = {"string": str, "boolean": bool, "array": list, "object": dict,
         "integer": int, "number": (int, float)}


class Description:
    def __init__(self, name):
        with open(name) as f:
            self.doc = json.load(f)

    def resolve(self, node):
        while "$ref" in node:
            ref = node["$ref"].split("/")[1:]
            node = self.doc
            for part in ref:
                node = node[part]
        return node

    def operation(self, method, path):
        best = None
        for template, item in self.doc["paths"].items():
            pattern = re.sub(r"\{[^/]+\}", "[^/]+", template)
            if re.fullmatch(pattern, path) and method.lower() in item:
                if best is None or template.count("{") < best.count("{"):
                    best = template
        return best and self.doc["paths"][best][method.lower()]

    def check(self, schema, value, where="answer"):
        """a list of what is wrong"""
        schema = self.resolve(schema)
        if value is None and schema.get("nullable"):
            return []
        for part in schema.get("allOf", []):
            bad = self.check(part, value, where)
            if bad:
                return bad
        for key in ("oneOf", "anyOf"):
            if key in schema:
                tries = [self.check(s, value, where) for s in schema[key]]
                if all(tries):
                    return min(tries, key=len)
        kind = schema.get("type")
        if kind:
            right = isinstance(value, TYPES[kind]) and \
                not (kind in ("integer", "number") and value in (True, False)
                     and isinstance(value, bool))
            if not right:
                return ["%s: %r is no %s" % (where, value, kind)]
        if "enum" in schema and value not in schema["enum"]:
            return ["%s: %r is none of %s" % (where, value, schema["enum"])]
        if isinstance(value, list) and "items" in schema:
            return [b for i, v in enumerate(value)
                    for b in self.check(schema["items"], v,
                                        "%s[%d]" % (where, i))]
        if isinstance(value, dict):
            return self.check_object(schema, value, where)
        return []

    def check_object(self, schema, value, where):
        bad = ["%s: no %s" % (where, key)
               for key in schema.get("required", []) if key not in value]
        for key, part in schema.get("properties", {}).items():
            if key in value:
                bad += self.check(part, value[key], where + "." + key)
        return bad


def content(node):
    return node.get("content", {}).get("application/json", {}).get("schema")


def check_call(d, c):
    path = urllib.parse.urlsplit(c["path"]).path
    op = d.operation(c["method"], path)
    if not op:
        return ["GitHub has no %s %s" % (c["method"], path)]
    bad = []
    if c["body"] and "requestBody" in op:
        schema = content(d.resolve(op["requestBody"]))
        bad += d.check(schema, json.loads(c["body"]), "request")
    elif c["body"]:
        bad.append("a body where none belongs")
    if c["status"] in (401, 429) or c["status"] >= 500:
        schema = {"$ref": "#/components/schemas/basic-error"}
    else:
        answer = op["responses"].get(str(c["status"]))
        if answer is None and c["status"] in (403, 404):
            schema = {"$ref": "#/components/schemas/basic-error"}
        elif answer is None:
            return bad + ["no status %d is described" % c["status"]]
        else:
            schema = content(d.resolve(answer))
    if schema and c["status"] != 304:
        bad += d.check(schema, c["answer"])
    return bad


def main():
    d = Description(sys.argv[1])
    passed = failed = 0
    with open(sys.argv[2]) as f:
        for line in f:
            c = json.loads(line)
            bad = check_call(d, c)
            passed += not bad
            failed += bool(bad)
            for words in bad[:5]:
                print("%s %s %d: %s" % (c["method"], c["path"], c["status"],
                                        words))
    if not passed + failed:
        failed = 1
        print("nothing was recorded")
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
