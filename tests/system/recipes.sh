#!/bin/bash
# Runs every block of docs/recipes.md as it stands, each in a project and a
# directory of its own, four at a time. before_TITLE makes what a recipe
# takes for granted, after_TITLE looks at what came of it: $rc its exit code
# (124: it was ended after a while), $out what it printed, $errs its errors.
# shellcheck disable=SC2034,SC2010
. "$(dirname "$0")/../lib.sh"
doc=$HERE/../docs/recipes.md
[ -n "${COURIER_RECIPE:-}" ] && only=$COURIER_RECIPE || only=

# ---- the blocks of the document: $T/r/NN.{title,lang,code} ----
blocks() {
    mkdir -p "$T/r"
    awk -v dir="$T/r" '
        /^### / { title = substr($0, 5) }
        /^```[a-z]/ && title != "" {
            f = sprintf("%s/%02d", dir, ++n)
            print title > (f ".title"); print substr($0, 4) > (f ".lang")
            inside = 1; next
        }
        /^```$/ { inside = 0 }
        inside { print > (f ".code") }' "$doc"
}
slug() { tr 'A-Z' 'a-z' <<<"$1" | tr -cs 'a-z0-9\n' _ | sed 's/^_//;s/_$//'; }

# an agent that is no model: it says what it does, and writes it down
tool() {
    cat <<'END'
# answers at once; `slowly` takes long, `broken` fails
command = p=$(cat); echo "Doing: $(printf %s "$p" | head -n 1)"; \
  case $p in \
  *correct_behavior*) printf '```json\n[{"kind":"pitfall","description":"d %s","trigger":"t","correct_behavior":"c","severity":"low"}]\n```\n' "$$";; \
  *'"verdict"'*) printf '```json\n{"verdict":"pass","feedback":""}\n```\n';; \
  *slowly*) sleep 300;; \
  *broken*) echo no >&2; exit 3;; \
  esac; printf '%s\n' "$p" >> notes.md
format = text
END
}
# what every recipe finds in its directory
workdir() {
    mkdir -p "$W"
    cd "$W" || exit 1
    printf 'first thing\nsecond $(thing)\n' >todo.txt
    printf 'Review this.\n\nAll of it.\n' >review.md
    echo 'Write the docs' >docs.md
    echo 'Write the tests' >tests.md
    printf '#!/bin/sh\necho deployed\n' >deploy
    chmod +x deploy
    printf 'all:\n\t@echo compiling; exit 1\n' >Makefile
    git init -q -b main .
    git config user.name t
    git config user.email t@localhost
    git add Makefile
    git commit -qm one
    repo=$W.git
    git clone -q --bare . "$repo"
    echo change >>Makefile
}
# agent NAME PROMPT [key=value]...
agent() {
    local n=$1 p=$2
    shift 2
    echo "create $n prompt='$p' $*" >"$S/ctl"
}
done_() { timeout 60 cat "$S/$1/wait/done" 2>&1; }
turns() { grep -c '"role":"assistant"' "$S/$1/messages.jsonl"; }
fix() { agent fix 'Fix it' && is 'fix is done' "$(done_ fix)" completed; }
fix_runs() { agent fix 'Fix it' && is 'fix runs' "$(wait_for fix running)" running; }
slow() {
    agent slow 'Do it slowly'
    is 'slow runs' "$(wait_for slow running)" running
    soon 20 grep -q working "$S/slow/agent" || bad 'slow does not work'
}
with_repo() {
    echo "repo = $repo" >"$P/config"
    agent fix 'Fix it'
    is 'the work is done' "$(done_ fix)" completed
    # it is pushed after the turn, which `done` doesn't wait for
    soon 30 git -C "$repo" rev-parse -q --verify courier/fix ||
        bad 'the work is not pushed'
    soon 30 grep -q . "$S/fix/diff" || bad 'no diff'
}
with_bad() {
    agent bad 'It is broken'
    is 'it failed' "$(done_ bad)" failed
}
nothing_wrong() {
    is 'exit code' "$rc" 0
    is 'errors' "$errs" ''
}
# a learning of sandbox $1 that waits for a decision
learned() {
    agent "$1" 'Fix it'
    is 'done' "$(done_ "$1")" completed
    echo learn >"$S/$1/ctl"
    is 'learned' "$(timeout 60 cat "$S/$1/wait/learned")" completed
}

# ---- start ----
after_ten_agents_on_one_task() {
    nothing_wrong
    is 'ten' "$(ls -d "$S"/try-* | wc -l)" 10
    is 'prompt' "$(cat "$S/try-7/prompt")" 'Make the build faster'
}
after_an_agent_for_each_line_of_a_list() {
    nothing_wrong
    is 'its text as it stands' "$(cat "$S/todo-2/prompt")" 'second $(thing)'
    is 'no more' "$(ls -d "$S"/todo-* | wc -l)" 2
    is 'done' "$(done_ todo-1)" completed
}
after_a_prompt_out_of_a_file() {
    nothing_wrong
    is 'prompt' "$(cat "$S/review/prompt")" "$(cat review.md)"
    is 'timeout' "$(jq -r .config.timeout.value "$S/review/info.json")" 30m
}
after_prepare_first_start_later() {
    nothing_wrong
    is 'memory' "$(jq -r .config.memory.value "$S/big/info.json")" 4096
    is 'done' "$(done_ big)" completed
    like 'its message' "$(cat "$S/big/messages")" 'All of it'
}
after_one_task_three_models() {
    nothing_wrong
    is 'model' "$(jq -r .config.model.value "$S/on-haiku/info.json")" haiku
    is 'three' "$(ls -d "$S"/on-* | wc -l)" 3
}
after_let_courier_choose_the_name_and_learn_it() {
    nothing_wrong
    is 'out' "$out" completed
}
after_once_however_often_the_script_runs() {
    nothing_wrong
    is 'one' "$(ls -d "$S"/nightly* | wc -l)" 1
}
after_end_by_itself_when_its_work_is_done() {
    nothing_wrong
    is 'out' "$out" killed
}
after_a_wish_designed_checked_done_again_until_it_passes() {
    nothing_wrong
    like 'out' "$out" '^completed'
    like 'progress' "$out" 'step 2/2'
}
before_done_again_until_the_tests_pass() {
    printf 'test:\n\t@test -e again || { touch again; echo red; exit 1; }\n' >Makefile
    git commit -qam test
    git push -q "$repo" main
    echo "repo = $repo" >"$P/config"
}
after_done_again_until_the_tests_pass() {
    nothing_wrong
    is 'out' "$out" completed
    like 'the second time' "$(cat "$P/runs/logout/progress")" 'round 2/5'
    like 'it was told why' "$(cat "$P/runs/logout/steps/02-test/feedback")" red
}

# ---- wait ----
before_for_one() { agent fix 'Fix it'; }
after_for_one() { is 'out' "$out" completed; nothing_wrong; }
before_for_all() { agent a 'One'; agent b 'It is broken'; }
after_for_all() { is 'out' "$out" "completed
failed"; nothing_wrong; }
before_for_the_first_that_succeeds_and_end_the_others() {
    agent try-1 'Do it slowly'
    agent try-2 'It is broken'
    agent try-3 'Do it'
}
after_for_the_first_that_succeeds_and_end_the_others() {
    nothing_wrong
    is 'ended' "$(wait_for try-1 ended)" killed
    is 'the first lives' "$(cat "$S/try-3/status")" running
}
before_go_on_only_if_it_went_well() { fix; }
after_go_on_only_if_it_went_well() { nothing_wrong; like 'out' "$out" deployed; }
before_no_longer_than_that() { slow; }
after_no_longer_than_that() {
    nothing_wrong
    is 'out' "$out" idle
    like 'its end' "$(cat "$S/slow/messages")" 'interrupted by user'
}

# ---- talk ----
before_tell_one() { fix_runs; }
after_tell_one() {
    nothing_wrong
    like 'messages' "$(cat "$S/fix/messages")" 'Doing: And the same'
}
before_tell_all_that_run() {
    agent a One; agent b Two
    wait_for a running >/dev/null; wait_for b running >/dev/null
}
after_tell_all_that_run() {
    local n
    nothing_wrong
    for n in a b; do
        done_ $n >/dev/null
        like "$n heard" "$(cat "$S/$n/messages")" 'Doing: Rebase'
    done
}
before_the_failing_build_as_a_prompt() { fix_runs; }
after_the_failing_build_as_a_prompt() {
    nothing_wrong
    done_ fix >/dev/null
    is 'one message' "$(turns fix)" 2
    like 'the output' "$(jq -r .content "$S/fix/messages.jsonl")" 'compiling|missing separator'
}
before_my_changes_for_a_review() { fix_runs; }
after_my_changes_for_a_review() {
    nothing_wrong
    done_ fix >/dev/null
    like 'the diff' "$(jq -r .content "$S/fix/messages.jsonl")" '^\+change'
}
before_stop_what_it_does_and_say_something_else() { slow; }
after_stop_what_it_does_and_say_something_else() {
    nothing_wrong
    is 'out' "$out" completed
    like 'messages' "$(cat "$S/slow/messages")" 'Doing: Use the new'
}
before_only_its_last_answer() { fix; }
after_only_its_last_answer() { nothing_wrong; is 'out' "$out" 'Doing: Fix it'; }
before_what_one_found_out_as_a_question_to_another() {
    fix
    agent other Wait
    wait_for other running >/dev/null
}
after_what_one_found_out_as_a_question_to_another() {
    nothing_wrong
    done_ other >/dev/null
    like 'asked' "$(jq -r .content "$S/other/messages.jsonl")" '^Doing: Fix it'
}
before_run_a_command_beside_the_agent() { fix; }
after_run_a_command_beside_the_agent() {
    nothing_wrong
    is 'out' "$out" "$(uname -sm)
0"
}
before_give_a_command_its_input() { fix; }
after_give_a_command_its_input() {
    nothing_wrong
    is 'out' "$out" "$(ls | sort -u)"
}
before_fetch_a_file_out_of_its_home_put_one_there() { fix; }
after_fetch_a_file_out_of_its_home_put_one_there() {
    nothing_wrong
    is 'fetched' "$(cat notes.md)" 'Fix it'
    is 'put' "$(cat "$S/fix/files/review.md")" "$(cat review.md)"
}

# ---- watch ----
before_the_conversation_as_it_is_spoken() {
    agent one-shot 'Fix it' when_done=kill
    wait_for one-shot running >/dev/null
}
after_the_conversation_as_it_is_spoken() {
    nothing_wrong
    like 'out' "$out" '#2 completed'
}
endless_all_conversations_at_once=2
before_all_conversations_at_once() { fix; agent b Two; done_ b >/dev/null; }
after_all_conversations_at_once() {
    like 'out' "$out" 'Doing: Fix it'
    like 'out' "$out" 'b/messages <=='
}
endless_a_board_every_two_seconds=2
before_a_board_every_two_seconds() { fix; }
after_a_board_every_two_seconds() { like 'out' "$out" 'fix +running +idle'; }
before_the_ones_that_are_stuck_at_work_but_silent_for_ten_minutes() { slow; }
after_the_ones_that_are_stuck_at_work_but_silent_for_ten_minutes() {
    nothing_wrong
    is 'not so long yet' "$out" ''
    code=${code/+10/-10}
    again
    is 'found' "$out" "$S/slow/messages"
}
before_what_failed_and_why() { fix; with_bad; }
after_what_failed_and_why() {
    nothing_wrong
    like 'out' "$out" "^$S/bad: ── .*error  exited 3\$"
}
before_how_many_of_each() { fix; mkdir "$S/d1" "$S/d2"; }
after_how_many_of_each() { nothing_wrong; like 'out' "$out" '2 draft'; }
endless_everything_that_happens_as_it_happens=3
before_everything_that_happens_as_it_happens() { fix; }
after_everything_that_happens_as_it_happens() {
    like 'out' "$out" '"fix","running"'
}
before_a_line_for_each_agent_that_becomes_idle() { agent a One; agent b Two; }
after_a_line_for_each_agent_that_becomes_idle() {
    nothing_wrong
    is 'out' "$(sort <<<"$out")" 'a is idle
b is idle'
}
after_why_was_that_refused() {
    like 'its ctl tells' "$out" 'timeout .9h.: a duration from 1m to 4h'
    is 'no sandbox' "$(ls "$S")" ctl
}

# ---- cost ----
before_by_project_this_month() { :; }
after_by_project_this_month() {
    nothing_wrong
    like 'out' "$out" "${P##*/}/status:cost_month [0-9.]+"
}
before_tokens_by_model() { fix; }
after_tokens_by_model() { nothing_wrong; }
before_by_project_and_service_in_sql() {
    fix
    echo kill >"$S/fix/ctl"
    wait_for fix ended >/dev/null
}
after_by_project_and_service_in_sql() {
    nothing_wrong
    like 'out' "$out" "${P##*/}.local.0"
}
before_the_five_that_cost_most() { fix; }
after_the_five_that_cost_most() { nothing_wrong; like 'out' "$out" 'fix|running'; }
after_stop_at_five_dollars() {
    nothing_wrong
    mkdir "$S/x"
    is 'in force' "$(jq -c '.config.budget' "$S/x/info.json")" '{"value":"5","from":"project"}'
}

# ---- repositories ----
before_a_project_for_a_repository() {
    code=${code//projects\/api/projects/api-$n}
}
after_a_project_for_a_repository() {
    nothing_wrong
    is 'out' "$out" completed
    P=$M/projects/api-$n S=$P/sandboxes
    is 'branch' "$(cat "$S/first/branch")" courier/first
}
before_what_has_it_changed() { with_repo; }
after_what_has_it_changed() {
    nothing_wrong
    like 'out' "$out" '^\+Fix it'
    is 'applied' "$(cat notes.md)" 'Fix it'
}
before_on_which_branch_is_the_work() { with_repo; }
after_on_which_branch_is_the_work() {
    nothing_wrong
    like 'out' "$out" 'courier/fix'
    like 'its commits' "$out" '^[0-9a-f]+ '
}
before_all_pull_requests() { with_repo; }
after_all_pull_requests() { is 'none on a path' "$out" ''; }
before_look_at_it_but_push_nothing() { echo "repo = $repo" >"$P/config"; }
after_look_at_it_but_push_nothing() {
    nothing_wrong
    is 'branches' "$(git -C "$repo" branch --format '%(refname:short)')" main
}

# ---- make, cron, git ----
after_make_as_the_conductor() {
    nothing_wrong
    is 'done' "$(ls ./*.done | wc -l)" 2
    rm -f docs.done
    again
    nothing_wrong
    is 'no second one' "$(ls -d "$S"/docs-* | wc -l)" 1
    is 'asked once' "$(turns "$(basename "$S"/docs-*)")" 1
    echo 'Write better docs' >docs.md
    again
    nothing_wrong
    is 'a changed one' "$(ls -d "$S"/docs-* | wc -l)" 2
}
after_every_night() {
    nothing_wrong
    is 'made' "$(ls "$S" | grep -c "^nightly-$(date +%F)\$")" 1
}
before_try_again_what_failed() { with_bad; }
after_try_again_what_failed() {
    nothing_wrong
    is 'prompt' "$(cat "$S/bad-again/prompt")" 'It is broken'
}
before_ask_about_every_commit() { fix_runs; }
after_ask_about_every_commit() {
    nothing_wrong
    echo more >>docs.md
    git add docs.md
    yes 'a commit' git commit -qm two
    done_ fix >/dev/null
    like 'asked' "$(jq -r .content "$S/fix/messages.jsonl")" '^Is there a mistake'
}
endless_ask_again_whenever_a_file_is_saved=3
before_ask_again_whenever_a_file_is_saved() {
    fix
    # saved while the recipe waits for it, until that is seen
    (
        for _ in 1 2 3 4 5 6; do
            sleep 0.4
            echo 'Look again' >>review.md
        done
    ) &
}
after_ask_again_whenever_a_file_is_saved() {
    done_ fix >/dev/null
    like 'asked' "$(jq -r .content "$S/fix/messages.jsonl")" '^Look again'
}

# ---- what all are told ----
after_instructions_for_every_agent_of_the_project() {
    nothing_wrong
    is 'CLAUDE.md' "$(cat "$P/CLAUDE.md")" 'Write tests first.'
}
after_a_secret_in_their_environment() {
    nothing_wrong
    mk envs
    ask envs 'echo "$STAGE ${#STRIPE_KEY}"' >/dev/null
    like 'in its environment' "$(cat "$S/envs/messages")" '^test 20$'
    like 'never shown' "$(cat "$P/secrets/STRIPE_KEY")" '^\*\*\*\*'
}
before_a_project_set_up_as_another_one() {
    code=${code//projects\/shop/projects/shop-$n}
    echo 'timeout = 20m' >"$P/config"
    echo Hi >"$P/CLAUDE.md"
    mkdir "$P/skills/s"
    echo skill >"$P/skills/s/SKILL.md"
}
after_a_project_set_up_as_another_one() {
    local q=$M/projects/shop-$n
    nothing_wrong
    is 'config' "$(cat "$q/config")" 'timeout = 20m'
    is 'skill' "$(cat "$q/skills/s/SKILL.md")" skill
    is 'CLAUDE.md' "$(cat "$q/CLAUDE.md")" Hi
    is 'workflow' "$(cat "$q/workflows/review")" "$(cat "$P/workflows/review")"
}
before_another_agent_cli() {
    mkdir -p "$P/home/.local/bin"
    printf '#!/bin/sh\ncat; echo "mine: $*"\n' >"$P/home/my-agent"
    chmod +x "$P/home/my-agent"
    code=${code//= my-agent/= ./my-agent}
}
after_another_agent_cli() {
    nothing_wrong
    agent mine Hello tool=my-agent
    is 'done' "$(done_ mine)" completed
    like 'its words' "$(cat "$S/mine/messages")" 'mine: --print --model small'
    is 'goes on' "$(ask mine More)" completed
    like 'as it says' "$(cat "$S/mine/messages")" 'mine: --print --continue --model small'
}
after_another_flag_for_a_known_one() {
    nothing_wrong
    is 'edited' "$(grep ^model "$M/tools/claude")" 'model = claude-opus-4-6'
}
before_take_all_that_was_learned() { learned a; }
after_take_all_that_was_learned() {
    nothing_wrong
    is 'approved' "$(ls "$P/learnings/approved" | wc -l)" 1
    like 'active' "$(cat "$P/learnings/active")" 'd [0-9]'
}
before_take_back_what_was_learned_last() {
    local s
    for s in a b; do
        learned $s
        mv "$P"/learnings/pending/*.md "$P/learnings/approved/"
        echo compile >"$P/learnings/ctl"
    done
    is 'the second is in force' "$(readlink "$P/learnings/active")" versions/2.md
}
after_take_back_what_was_learned_last() {
    nothing_wrong
    is 'the first is in force' "$(readlink "$P/learnings/active")" versions/1.md
}

# ---- keep, end, clean up ----
before_more_time() { fix_runs; }
after_more_time() {
    local left
    nothing_wrong
    left=$(($(date -d "$out" +%s) - $(date +%s)))
    [ "$left" -gt 7000 ] && [ "$left" -le 7210 ]
    is 'two hours' $? 0
}
before_over_lunch() { fix_runs; }
after_over_lunch() { nothing_wrong; is 'out' "$out" "paused
running"; }
before_off_for_the_night_on_in_the_morning() { fix_runs; }
after_off_for_the_night_on_in_the_morning() { nothing_wrong; is 'out' "$out" paused; }
before_end_one_its_work_saved_first() { with_repo; }
after_end_one_its_work_saved_first() {
    nothing_wrong
    is 'out' "$out" killed
    like 'saved' "$(git -C "$repo" branch)" courier/fix
}
before_end_all() { agent a One; agent b Two; done_ a >/dev/null; done_ b >/dev/null; }
after_end_all() { nothing_wrong; is 'out' "$out" "killed
killed"; }
before_clear_away_what_has_ended() {
    before_end_all
    echo kill a b >"$S/ctl"
    wait_for a ended >/dev/null; wait_for b ended >/dev/null
}
after_clear_away_what_has_ended() {
    nothing_wrong
    is 'cleared' "$(ls "$S")" ctl
    is 'in the trash' "$(ls -d "$P"/trash/?* | wc -l)" 2
}
before_get_one_back_out_of_the_trash() { mkdir "$S/done-1"; }
after_get_one_back_out_of_the_trash() {
    nothing_wrong
    is 'back' "$(cat "$S/done-1/status")" draft
}
before_empty_the_trash() { mkdir "$S/d1" "$S/d2"; rmdir "$S/d1" "$S/d2"; }
after_empty_the_trash() { nothing_wrong; is 'empty' "$(ls "$P/trash")" ''; }
before_a_backup_of_everything_prompts_and_conversations() { fix; }
after_a_backup_of_everything_prompts_and_conversations() {
    # the other recipes go on meanwhile: a name may be gone, nothing else
    unlike 'errors' "$(grep -v 'Cannot stat\|file changed\|Exiting with\|removed before\|No such file' <<<"$errs")" '.'
    is 'the conversation is in it' "$(tar -xzOf courier.tar.gz \
        "projects/${P##*/}/sandboxes/fix/messages" | grep -c 'Doing: Fix')" 1
}

# ---- one of them ----
again() {
    printf '%s\n' "$code" >"$W.sh"
    case $lang in
    make) printf '%s\n' "$code" >Makefile
        set -- make -s -j4 "S=$S" ;;
    crontab) sed -E 's/^([^ ]+ ){5}//; s/\\%/%/g' "$W.sh" >"$W.cron"
        sed -i "s|/courier/projects/web|$P|" "$W.cron"
        set -- sh "$W.cron" ;;
    *) set -- bash -eu "$W.sh" ;;
    esac
    timeout "${limit:-90}" "$@" >"$W.out" 2>"$W.err" </dev/null
    rc=$?
    out=$(cat "$W.out") errs=$(cat "$W.err")
}
recipe() {
    n=$1 title=$(cat "$T/r/$1.title") lang=$(cat "$T/r/$1.lang")
    code=$(cat "$T/r/$1.code") s=$(slug "$title")
    W=$T/w$n P=$M/projects/p$n S=$M/projects/p$n/sandboxes
    limit=endless_$s limit=${!limit:-}
    export M P S repo TERM=xterm COLUMNS=120
    workdir
    mkdir "$P" || bad "mkdir $P"
    declare -F "before_$s" >/dev/null && "before_$s"
    again
    if declare -F "after_$s" >/dev/null; then
        "after_$s"
    else
        bad "nothing is said of what comes of it ($s)"
    fi
    set -- "$S"/*/
    [ -e "$1" ] && echo "kill now $(basename -a "$@" | tr '\n' ' ')" >"$S/ctl"
    echo "$passed $failed" >"$T/r/$n.sum"
}

blocks
if ! mount_; then
    bad "courierfs does not start: $(cat "$T/start")"
    exit 1
fi
tool >"$M/tools/fake" || bad 'the tool is refused'
echo 'tool = fake' >"$M/config" || bad 'the config is refused'
passed=0
for f in "$T"/r/*.code; do
    n=${f##*/} n=${n%.code}
    [ -z "$only" ] || grep -qi "$only" "$T/r/$n.title" || continue
    while [ "$(jobs -rp | wc -l)" -ge 4 ]; do wait -n; done
    (
        trap - EXIT
        recipe "$n" >"$T/r/$n.log" 2>&1
    ) &
done
wait
for f in "$T"/r/*.sum; do
    n=${f##*/} n=${n%.sum}
    read -r a b <"$f"
    passed=$((passed + a)) failed=$((failed + b))
    if [ "$b" != 0 ]; then
        echo "--- $(cat "$T/r/$n.title"):"
        cat "$T/r/$n.log"
        [ -s "$T/w$n.err" ] && head -n 5 "$T/w$n.err"
    fi
done
[ -n "$only" ] || is 'recipes that were run' "$(ls "$T"/r/*.sum | wc -l)" \
    "$(grep -c '^### ' "$doc")"
