#!/bin/bash
# workflow.sh: a run with the real claude CLI against a fake model server: a
# designer and a checker in one VM, each in a conversation of its own. Needs
# node and npm.
# shellcheck disable=SC2154,SC2016
cd "$(dirname "$0")/../.." || exit 2
# shellcheck source=tests/agents/clis.sh
. tests/agents/clis.sh
install_clis claude || exit 0
# shellcheck source=tests/lib.sh
. tests/lib.sh

# what is asked decides what is answered; the first that fits counts
mkdir "$T/fixtures"
python3 - >"$T/fixtures/10-run.json" <<'END'
import json
def block(v, f):
    return "I looked.\n\n```json\n%s\n```\n" % json.dumps({"verdict": v, "feedback": f})
said = [
    ("[[judge it]]", block("fail", "there are no tests")),
    ("exactly of this form", block("pass", "")),
    ("there are no tests", "Tests added."),
    ("[[build it]]", "Built."),
]
print(json.dumps({"fixtures": [{"match": {"userMessage": m}, "response": {
    "content": c, "usage": {"prompt_tokens": 1000, "completion_tokens": 20,
    "total_tokens": 1020}}} for m, c in said]}))
END
cp tests/agents/fixtures/00-side.json tests/agents/fixtures/99-default.json \
    "$T/fixtures/"
start_model "$T/fixtures" || exit 1
start --backend local
printf 'local_bind = %s\nlocal_path = %s\n' "$cache/node_modules" \
    "$cache/node_modules/.bin" >"$M/config"
printf 'tool = claude\nnetwork = host\nlearn = off\nmemory = 2048\n' >"$P/config"
printf 'ANTHROPIC_BASE_URL=http://127.0.0.1:%s\nCLAUDE_CODE_MAX_RETRIES=1\n' \
    "$port" >"$P/env"
echo sk-ant-fake-000000001234 >"$P/keys/anthropic"
R=$P/runs
cat >"$P/workflows/two" <<'END'
[step design]
persona = designer
instructions = [[build it]]
loop = l
[step check]
persona = checker
instructions = [[judge it]]
model = claude-sonnet-4-6
loop = l
[loop l]
END
echo 'create name=r workflow=two prompt="The task"' >"$R/ctl"
is "the run" "$(timeout 180 cat "$R/r/wait/done")" completed
is "its steps" "$(ls "$R/r/steps" | xargs)" "01-design 01-design.2 02-check 02-check.2"
is "built" "$(cat "$R/r/steps/01-design/output")" "Built."
is "sent back" "$(cat "$R/r/steps/02-check/verdict")" fail
is "with words" "$(cat "$R/r/steps/02-check/feedback")" "there are no tests"
is "heard" "$(cat "$R/r/steps/01-design.2/output")" "Tests added."
is "passed" "$(cat "$R/r/steps/02-check.2/verdict")" pass
unlike "the designer remembers its task" "$(cat "$R/r/steps/01-design.2/prompt")" "The task"
like "what it cost" "$(grep '^01-design.2' "$R/r/usage")" " 20 "
# the CLI itself says which conversation it is in, once a turn
sessions() {
    grep -o '"type":"system","subtype":"init".*' "$P"/sandboxes/r-l/log |
        grep -o '"session_id":"[^"]*"' | cut -d '"' -f 4
}
is "four turns" "$(sessions | wc -l)" 4
is "in two conversations" "$(sessions | sort -u | wc -l)" 2
is "the designer goes on with its own" "$(sessions | sed -n 1p)" "$(sessions | sed -n 3p)"
is "the checker, too" "$(sessions | sed -n 2p)" "$(sessions | sed -n 4p)"
kill "$server"
