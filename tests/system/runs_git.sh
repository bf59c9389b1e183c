#!/bin/bash
# Runs on a repository: the branch goes from VM to VM, parallel attempts and
# their judge, two runs at once, the pull request.
# shellcheck disable=SC2154,SC2016
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/agents_fake.bash
. "$(dirname "$0")/agents_fake.bash"
start
fake_tools
mkdir "$T/acme"
G=$T/gh
mkdir -p "$G"
python3 "$HERE/git/github.py" --state "$G" --token "ghp_0123456789abcdefTOKEN" \
    >"$T/url" 2>"$T/gh.err" &
disown
soon 20 test -s "$T/url"
repo acme/web
REPO=$T/acme/web.git
pulls() { jq -r "$1" "$G/pulls.json"; }
echo ghp_0123456789abcdefTOKEN >"$P/keys/github"
printf 'tool = fake\nlearn = off\nrepo = %s\ngithub_api = %s\n' "$REPO" \
    "$(cat "$T/url")" >"$P/config"
log_of() { git -C "$REPO" log --format=%s "$1" 2>/dev/null | tr '\n' ' '; }

# ---- from VM to VM ----

workflow hand <<'END'
description = three VMs
[step plan]
instructions = Plan.
  $ cd ~/project; echo plan >plan; git add plan; git commit -qm "the plan"; echo planned
[step design]
loop = l
role = designer
instructions = Design.
  $ cd ~/project; cat plan; echo "$N" >>code; git add code; git commit -qm "code $N"
[step check]
loop = l
role = checker
instructions = Check.
  $ cd ~/project; if [ $(wc -l <code) = 2 ]; then verdict pass "well done"; else verdict fail more; fi
[step last]
role = optimizer
instructions = Last.
  $ cd ~/project; cat plan code | tr '\n' ' '; echo uncommitted >loose; git log --oneline | wc -l
[step score]
role = evaluator
instructions = Score.
  $ cd ~/project; cat loose; block '{"score": 91}'
[loop l]
END
run_ hand hand "'prompt=Make the thing | work with a title that is much longer than any title should ever be'" >/dev/null
is "hand: done" "$(run_done hand 90)" completed
is "the second VM has the first's work" "$(step hand 02-design/output)" plan
is "and the third theirs" "$(step hand 04-last/output | tr '\n' ' ')" "plan 1 2 4 "
like "what wasn't committed goes along" "$(step hand 05-score/output)" "^uncommitted"
like "the branch has all" "$(log_of courier/hand)" "code 2 code 1 the plan first"
is "branch" "$(jq -r .git.branch "$R/hand/info.json")" courier/hand
is "base" "$(jq -r .git.base "$R/hand/info.json")" main
is "the pull request" "$(cat "$R/hand/pr/status")" created
like "its url" "$(cat "$R/hand/pr_url")" "/pull/1$"
is "url is pr_url" "$(cat "$R/hand/pr/url")" "$(cat "$R/hand/pr_url")"
like "title from the prompt" "$(pulls '.[0].title')" "^Make the thing \| work with a title"
yes "cut at a word" test "$(pulls '.[0].title | length')" -lt 73
body=$(pulls '.[0].body')
like "body: the steps" "$body" '^\| 03-check.2 \| checker \| fake \|.*\| pass \|'
like "body: the score" "$body" '^\| 05-score .*\| 91 \|$'
like "body: the verdict" "$body" "^well done"
like "body: the task" "$body" "^Make the thing"
like "body: commits" "$body" "^- [0-9a-f]{12} code 2"
is "one request" "$(pulls length)" 1

# ---- two at once ----

workflow slow <<'END'
[step one]
instructions = One.
  $ cd ~/project; gate both; date +%s%N >f$$; git add .; git commit -qm "$(cat f$$)"
[step two]
instructions = Two.
  $ cd ~/project; ls | wc -l
END
run_ left slow pr=off >/dev/null
run_ right slow pr=off >/dev/null
at left both
at right both
open_gate both
is "left" "$(run_done left)" completed
is "right" "$(run_done right)" completed
is "left sees its own work only" "$(step left 02-two/output)" 1
is "right, too" "$(step right 02-two/output)" 1
no "they differ" [ "$(git -C "$REPO" rev-parse courier/left)" = \
    "$(git -C "$REPO" rev-parse courier/right)" ]
is "pr=off" "$(cat "$R/left/pr/status")" ""

# ---- attempts, and a judge ----

workflow contest <<'END'
[step try]
instructions = Try.
  $ cd ~/project; b=$(git branch --show-current); gate try; echo $b >f; git add f; git commit -qm "$b"; case $b in *-4) exit 1;; esac; echo "tried $b"
[step judge]
persona = judge
instructions = Judge.
  $ cd ~/project; git fetch -q origin; git log -1 --format=%s origin/courier/try-2; block '{"choice":"try-2","feedback":"it is the best"}'
[step after]
role = optimizer
instructions = After.
  $ echo after
END
is "begun" "$(run_ try contest n=4 'prompt="try it"')" OK
is "four runs" "$(ls -d "$R"/try-* | wc -l)" 4
for i in 1 2 3 4; do at try-$i try; done
like "attempts" "$(cat "$R/attempts")" "^try	try-3	running"
open_gate try
for i in 1 2 3; do is "try-$i" "$(run_done try-$i 90)" completed; done
is "try-4" "$(run_done try-4)" failed
is "one judge" "$(ls -d "$R"/try-*/steps/02-judge | wc -l)" 1
J=$(ls -d "$R"/try-*/steps/02-judge)
is "choice" "$(cat "$J/verdict")" try-2
is "and why" "$(cat "$J/feedback")" "it is the best"
like "the judge sees what others did" "$(cat "$J/prompt")" "^tried courier/try-3"
like "and who failed" "$(cat "$J/prompt")" "try-4 .*failed"
like "and their branches" "$(cat "$J/output")" "^courier/try-2$"
like "the runs know" "$(cat "$R/try-1/reason")" "the judge chose try-2"
is "all go on" "$(cat "$R"/try-[123]/steps/03-after/output | sort -u)" after
is "the chosen one is offered" "$(cat "$R/try-2/pr/status")" created
is "the others aren't" "$(cat "$R"/try-[13]/pr/status | sort -u)" skipped
is "and why" "$(jq -r .pr.reason "$R/try-1/info.json")" "the judge chose try-2"
is "and in pr/" "$(cat "$R/try-1/pr/reason")" "the judge chose try-2"
is "attempts" "$(awk -F'\t' '$2 == "try-2" { print $3, $5 }' "$R/attempts")" \
    "completed courier/try-2"

# ---- a VM that dies: again from the last push ----

workflow dies <<'END'
[step one]
loop = l
instructions = One.
  $ cd ~/project; echo "$N" >>one; git add one; git commit -qm "one"; echo did
[step check]
loop = l
role = checker
instructions = Check.
  $ cd ~/project; gate dies; cat one; verdict pass
[loop l]
END
run_ dies dies pr=off >/dev/null
at dies dies
yes "dies" murder "$(basename "$(readlink "$R/dies/steps/02-check/sandbox")")"
soon 40 sh -c "[ \"\$(grep -c '^at dies' '$R/dies/messages')\" = 2 ]" || bad "not tried again"
open_gate dies
is "comes to its end" "$(run_done dies)" completed
like "with the work of the first" "$(step dies 02-check/output)" "^1$"

# ---- no remote that takes it: the work goes along as a bundle ----

git init -q -b busy "$T/acme/busy"
git -C "$T/acme/busy" -c user.name=t -c user.email=t@t commit -q --allow-empty -m first
chmod -R a+rX "$T/acme/busy"
printf 'tool = fake\nlearn = off\nrepo = %s\n' "$T/acme/busy" >"$P/config"
workflow refused <<'END'
[step one]
instructions = One.
  $ cd ~/project; echo 1 >f; git add f; git commit -qm "not taken"; echo loose >g
[step two]
instructions = Two.
  $ cd ~/project; cat f g; git log --format=%s
END
run_ refused refused branch=busy >/dev/null
is "refused: done" "$(run_done refused)" completed
like "its work goes along" "$(step refused 02-two/output | tr '\n' ' ')" "^1 loose .*not taken first"
like "the reason says where it is" "$(cat "$S/refused-one/reason")" "pushed busy-[0-9a-f]{8} .*busy was refused"
like "the run goes on there" "$(jq -r .git.branch "$R/refused/info.json")" "^busy-[0-9a-f]{8}"
is "the branch there is untouched" "$(git -C "$T/acme/busy" log --format=%s busy)" first

# a branch `courier` there: the run's is courier-NAME, in all its VMs
git -C "$T/acme/busy" branch courier
run_ clash refused >/dev/null
is "clash: done" "$(run_done clash)" completed
is "its branch" "$(jq -r .git.branch "$R/clash/info.json")" courier-clash
like "is in both VMs" "$(step clash 02-two/output)" "^not taken"
like "and there" "$(git -C "$T/acme/busy" log --format=%s courier-clash)" "not taken"

workflow own <<'END'
[step one]
instructions = One.
  $ mkdir app && cd app && git init -q && echo mine >f && git add f && git -c user.name=x -c user.email=x@x commit -qm mine && echo loose >g
[step two]
instructions = Two.
  $ cat ~/app/f ~/app/g; cd ~/app && git log --format=%s
[step three]
instructions = Three.
  $ cat ~/app/f
END
printf 'tool = fake\nlearn = off\n' >"$P/config"
run_ own own >/dev/null
is "own: done" "$(run_done own)" completed
like "a repository of its own goes along" "$(step own 02-two/output | tr '\n' ' ')" "^mine loose .*mine"
is "to all" "$(step own 03-three/output)" mine
