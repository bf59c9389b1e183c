#!/bin/bash
# What was used and what it cost: from the stream, by rates, per level.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
start --backend local

mkdir -p "$P/home/bin"
cat >"$P/home/bin/fake" <<'END'
#!/usr/bin/env python3
import json, sys
def p(**o):
    print(json.dumps(o), flush=True)
exec(sys.stdin.read())
END
chmod 700 "$P/home/bin/fake"
for f in claude codex opencode pi; do
    printf 'command = bin/fake\nformat = %s\nservice = %s\n' "$f" \
        "$([ "$f" = codex ] && echo openai || echo anthropic)" >"$M/tools/f$f"
done
printf 'learn = off\n' >"$P/config"
makes() {
    local n=$1
    shift
    wr "$S/ctl" "create name=$n $*
" | grep -vx OK
    wait_for "$n" running >/dev/null || bad "$n: $(cat "$S/$n/reason")"
}
used() { jq -rs "[.[] | select(.role == \"assistant\")] | last | .usage | $2" \
    "$S/$1/messages.jsonl"; }
# sum DIR UNIT FIELD
sum() {
    jq -s "[.[] | select(.unit == \"$2\") | .$3] | add // 0" "$1/usage.jsonl"
}
claude_turn() { # INPUT OUTPUT READ WRITE [USD]
    printf 'p(type="system", subtype="init", session_id="s", model="m")
u = {"input_tokens": %s, "output_tokens": %s, "cache_read_input_tokens": %s,
     "cache_creation_input_tokens": %s}
for t in "a", "b":
    p(type="assistant", message={"id": "m1", "model": "m", "content":
      [{"type": "text", "text": t}], "usage": u})
p(type="result", subtype="success", is_error=False, result="b", usage=u%s)
' "$1" "$2" "$3" "$4" "${5:+, total_cost_usd=$5}"
}

# ---- what the tool tells itself ----
makes a tool=fclaude model=claude-sonnet-4-6
is 'a turn' "$(ask a "$(claude_turn 1000 200 5000 300 0.5)")" completed
is 'tokens, each once' "$(used a '[.input_tokens, .output_tokens,
.cache_read_tokens, .cache_write_tokens, .usd] | @csv')" 1000,200,5000,300,0.5
like 'in messages' "$(tail -n 1 "$S/a/messages")" \
    '#2 completed  6300 in  200 out  \$0\.5000$'
is 'a record a unit' "$(jq -r 'select(.service == "anthropic") |
    [.unit, .quantity, .model, .project, .sandbox, .run, .step] | @csv' \
    "$S/a/usage.jsonl" | tr -d '"' | sort)" \
    'cache_read_tokens,5000,m,web,a,,
cache_write_tokens,300,m,web,a,,
input_tokens,1000,m,web,a,,
output_tokens,200,m,web,a,,'
is 'together what the tool said' \
    "$(jq -s 'map(.usd) | add * 10000 | round' "$S/a/usage.jsonl")" 5000
is 'a cost alone counts' "$(ask a 'p(type="result", subtype="success",
is_error=False, result="x", total_cost_usd=0.25)')" completed
is 'too' "$(jq -s 'map(.usd) | add * 10000 | round' "$S/a/usage.jsonl")" 7500

# ---- by rates ----
is 'a turn without a cost' "$(ask a "$(claude_turn 1000000 100000 1000000 \
    100000)")" completed
# 3 + 1.5 + 0.3 + 0.375
is 'by the defaults' "$(used a '.usd * 1000 | round')" 5175
# which model: what the CLI says it is, in the records and for the price; the
# configured one for a name that has none; none of both: that is said
turn_of() { claude_turn 1000000 100000 0 0 | sed "s/\"m\"/\"$1\"/g"; }
model_of() {
    jq -rs 'last | .model' "$S/$1/usage.jsonl"
    jq -rs 'last | .model' "$S/$1/messages.jsonl"
}
makes r tool=fclaude model=claude-sonnet-4-6
is 'another than asked for' "$(ask r "$(turn_of claude-opus-4-6)")" completed
is 'is named' "$(model_of r | xargs)" 'claude-opus-4-6 claude-opus-4-6'
is 'and paid' "$(used r '.usd * 1000 | round')" 7500
is 'one that has no price' "$(ask r "$(turn_of odd)")" completed
is 'is named, too' "$(model_of r | xargs)" 'odd odd'
is 'and costs what was asked for' "$(used r '.usd * 1000 | round')" 4500
makes u tool=fclaude
is 'one that was not asked for' "$(ask u "$(turn_of claude-opus-4-6)")" \
    completed
is 'has its price' "$(used u '.usd * 1000 | round')" 7500
is 'nobody knows what it costs' "$(ask u "$(turn_of odd)")" completed
like 'that is said' "$(tail -n 1 "$S/u/messages")" \
    ' 1000000 in  100000 out  \$0\.0000  cost unknown: no such model in rates$'
is 'a number in the record' "$(used u .usd)" 0
makes n tool=fcodex
is 'no model at all' "$(ask n 'p(type="turn.completed", usage={
"input_tokens": 10, "output_tokens": 10})')" completed
like 'that is said, too' "$(tail -n 1 "$S/n/messages")" 'cost unknown'
unlike 'a known price of nothing is one' "$(tail -n 1 "$S/a/messages")" \
    unknown
for bad in 'anthropic x input_tokens' 'anthropic x input_tokens -1 per 1M' \
    'anthropic x tokens 1 per 1M' 'anthropic x input_tokens 1 each 1M' \
    'a b input_tokens 1 per 0'; do
    is "rates: $bad" "$(wr "$M/rates" "# mine

$bad
")" EINVAL
    like 'which line' "$(cat "$M/rates.rejected" "$M/errors")" 'line 3'
done
cp "$M/rates" "$T/rates"
echo 'anthropic claude-sonnet-4-6 input_tokens 7 per 1M' >>"$M/rates"
ask a "$(claude_turn 1000000 0 0 0)" >/dev/null
is 'an own rate wins' "$(used a .usd)" 7
is 'what was, stays' "$(sum "$S/a" cache_write_tokens usd)" \
    "$(jq -s '[.[] | select(.unit == "cache_write_tokens") | .usd] | add' \
        "$P/usage.jsonl")"
cp "$T/rates" "$M/rates"

# ---- the other grammars ----
codex_turn() { # TOTALS: input cached output
    printf 'p(type="thread.started", thread_id="t1")
p(type="turn.started")
p(type="item.completed", item={"id": "item_0", "type": "agent_message",
  "text": "x"})
p(type="turn.completed", usage={"input_tokens": %s,
  "cached_input_tokens": %s, "output_tokens": %s})
' "$1" "$2" "$3"
}
makes c tool=fcodex model=gpt-5.5
ask c "$(codex_turn 1000 400 50)" >/dev/null
is 'codex: cached ones apart' \
    "$(used c '[.input_tokens, .cache_read_tokens, .output_tokens] | @csv')" \
    600,400,50
ask c "$(codex_turn 2500 1000 80)" >/dev/null
is 'codex: its total less the turns before' \
    "$(used c '[.input_tokens, .cache_read_tokens, .output_tokens] | @csv')" \
    900,600,30
is 'codex: summed once' "$(sum "$S/c" input_tokens quantity)" 1500
like 'codex: paid to openai' "$(cat "$S/c/usage")" '^openai +input_tokens +1500 '
makes p tool=fpi model=x
ask p 'm = {"role": "assistant", "content": [{"type": "text", "text": "t"}],
 "usage": {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 2,
 "totalTokens": 20, "cost": {"total": 0.125}}, "stopReason": "stop"}
p(type="session", id="s"); p(type="message_end", message=m)
p(type="message_end", message=m)
p(type="turn_end", message=m); p(type="agent_end", messages=[m])' >/dev/null
is 'pi: two messages' "$(used p '[.input_tokens, .output_tokens,
.cache_read_tokens, .cache_write_tokens, .usd] | @csv')" 20,10,6,4,0.25
makes o tool=fopencode model=x
ask o 'for i in 1, 2:
    p(type="step_finish", sessionID="s", part={"reason": "stop", "cost": 0.5,
      "tokens": {"input": 7, "output": 3, "reasoning": 1,
                 "cache": {"read": 2, "write": 1}}})' >/dev/null
is 'opencode: the steps of a turn' "$(used o '[.input_tokens, .output_tokens,
.cache_read_tokens, .usd] | @csv')" 14,8,4,1

# ---- the levels ----
mkdir "$M/projects/other"
mk plain
is 'a turn of a shell' "$(ask plain true)" completed
is 'has no tokens' "$(used plain '.input_tokens + .usd')" 0
for n in a c p o r u n plain; do wr "$S/$n/ctl" 'kill now
' >/dev/null; done
for n in a c p o r u n plain; do wait_for "$n" ended >/dev/null; done
like 'seconds of the VM' "$(cat "$S/plain/usage")" \
    '^local +sandbox_seconds +[0-9.]+ +0\.0000$'
for what in input_tokens output_tokens cache_read_tokens sandbox_seconds; do
    n=$(for s in a c p o r u n plain; do sum "$S/$s" $what quantity; done |
        awk '{ n += $1 } END { printf "%d", n + 0.0001 }')
    is "the project sums $what" \
        "$(sum "$P" $what quantity | cut -d. -f1)" "$n"
    is "the root, too: $what" \
        "$(sum "$M" $what quantity | cut -d. -f1)" "$n"
done
is 'another project has none' "$(wc -l <"$M/projects/other/usage.jsonl")" 0
is 'csv has a head' "$(head -n 1 "$P/usage.csv")" \
    'time,service,model,unit,quantity,usd,project,sandbox,run,step'
is 'and the same records' "$(($(wc -l <"$P/usage.csv") - 1))" \
    "$(wc -l <"$P/usage.jsonl")"
is 'column by column' "$(tail -n +2 "$P/usage.csv" | cut -d, -f1-6)" \
    "$(jq -r '[.time, .service, .model, .unit, .quantity] | join(",")' \
        "$P/usage.jsonl" | paste -d, - <(tail -n +2 "$P/usage.csv" |
        cut -d, -f6))"
like 'times in UTC' "$(jq -r .time "$P/usage.jsonl" | sort -u)" \
    '^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$'
like 'the table has a total' "$(tail -n 1 "$P/usage")" '^total +[0-9]+\.[0-9]{4}$'
for f in usage usage.jsonl usage.csv; do
    is "$f: its size is true" "$(stat -c %s "$P/$f")" "$(wc -c <"$P/$f")"
done
like 'cost in status' "$(cat "$P/status")" '^cost_?[a-z ]+ [0-9.]+'
like 'an event' "$(cat "$P/events")" '"event":"usage"'
rows=$(wc -l <"$M/usage.jsonl")
rmdir "$S/plain" && rmdir "$P/trash/plain"
is 'a purged sandbox stays paid' "$(wc -l <"$M/usage.jsonl")" "$rows"

# ---- budget ----
makes b tool=fclaude budget=1
is 'below the budget' "$(ask b "$(claude_turn 1 1 0 0 0.4)")" completed
is 'still running' "$(cat "$S/b/status")" running
printf '%s' "$(claude_turn 1 1 0 0 0.7)" >"$S/b/message"
is 'reaching it pauses' "$(wait_for b paused)" paused
is 'and says so' "$(cat "$S/b/reason")" 'budget 1.00 reached'
is 'the turn itself was completed' \
    "$(jq -rs 'last | .status' "$S/b/messages.jsonl")" completed
is 'no message then' "$(wr "$S/b/message" x)" EBUSY
is 'nor resume' "$(wr "$S/b/ctl" 'resume
')" EDQUOT
like 'in words' "$(cat "$S/b/ctl")" 'budget of 1.00 is spent: raise budget'
echo 'budget = 3' >>"$S/b/config"
is 'after raising it' "$(wr "$S/b/ctl" 'resume
')" OK
is 'it runs' "$(wait_for b running)" running
is 'and answers' "$(ask b "$(claude_turn 1 1 0 0 0.1)")" completed

# a VM that costs by the second
echo 'local * sandbox_seconds 3600 per 3600' >>"$M/rates"
makes v tool=shell budget=2
is 'an idle VM reaches it, too' "$(wait_for v paused 90)" paused
is 'in words too' "$(cat "$S/v/reason")" 'budget 2.00 reached'
like 'what it cost' "$(cat "$S/v/usage")" '^total +([2-9]|[1-9][0-9])'
