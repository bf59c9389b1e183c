#!/bin/bash
# What a new sandbox is given: keys, environment, files, instructions; and
# that none of it gets into a commit.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/repo.bash
. "$(dirname "$0")/repo.bash"
start --backend local

# An agent whose prompt is a script
cat >"$M/tools/probe" <<'END'
command = sh
format = text
keys = anthropic|anthropic_token
memory_file = CLAUDE.md
skills_dir = .claude/skills
commands_dir = .claude/commands
env = FROM_TOOL=tool BOTH=tool TWO='two words' QUOTE="it's"
END
cat >"$M/tools/agents" <<'END'
command = sh
format = text
memory_file = AGENTS.md
END
printf 'tool = probe\nlearn = off\n' >"$P/config"

# said NAME SCRIPT: what it printed
said() {
    ask "$1" "$2" >/dev/null
    jq -rs '[.[] | select(.role == "assistant")] | last | .content' \
        "$S/$1/messages.jsonl"
}
# makes NAME [key=value]...
makes() {
    local n=$1
    shift
    wr "$S/ctl" "create name=$n $*
" | grep -vx OK
    wait_for "$n" running >/dev/null || bad "$n: $(cat "$S/$n/reason")"
}

# ---- what the project has ----
echo sk-ant-user-level-000000aaaa >"$M/keys/anthropic"
echo sk-ant-project-level-00bbbb >"$P/keys/anthropic"
cat >"$P/env" <<'END'
# a comment
PLAIN=one two  three
BOTH = project
QUOTED="as it stands"
DOLLAR=$HOME `id` $(id)
UMLAUT=äöü
END
printf 'sec$ret "with" %s\n' "'quotes'" >"$P/secrets/DB_PASSWORD"
printf 'line one\nline two\n' >"$P/secrets/MULTI"
mkdir -p "$P/home/.config/deep/er" "$P/home/bin"
printf '#!/bin/sh\necho helped "$@"\n' >"$P/home/bin/helper"
chmod 700 "$P/home/bin/helper"
printf 'x=1\n' >"$P/home/.config/deep/er/settings ü"
head -c 3000000 /dev/urandom >"$T/big"
cp "$T/big" "$P/home/big.bin"
printf 'Keep it simple.\n' >"$P/CLAUDE.md"
printf 'Be "kind" & brief.\n' >"$P/system-prompt.md"
mkdir -p "$P/skills/tidy/lib"
printf -- '---\nname: tidy\n---\nTidy up.\n' >"$P/skills/tidy/SKILL.md"
printf 'exit 0\n' >"$P/skills/tidy/lib/run.sh"
chmod 700 "$P/skills/tidy/lib/run.sh"
printf 'Ship $ARGUMENTS\n' >"$P/commands/ship.md"

# ---- the environment ----
makes a
is 'the project key wins' "$(said a 'echo $ANTHROPIC_API_KEY')" \
    sk-ant-project-level-00bbbb
is 'a value as it stands' "$(said a 'echo "$PLAIN"')" 'one two  three'
is 'the project wins over the tool' "$(said a 'echo $BOTH $FROM_TOOL')" \
    'project tool'
is "the tool's quoted words" "$(said a 'echo "$TWO/$QUOTE"')" "two words/it's"
is 'no expansion' "$(said a 'printf %s "$DOLLAR"')" '$HOME `id` $(id)'
is 'UTF-8' "$(said a 'echo $UMLAUT')" 'äöü'
is 'a secret' "$(said a 'printf %s "$DB_PASSWORD"')" \
    "sec\$ret \"with\" 'quotes'"
is 'a secret of two lines' "$(said a 'printf %s "$MULTI" | wc -l')" 1
is 'in exec, too' "$(wr "$S/a/ctl" 'exec echo "$DB_PASSWORD$ANTHROPIC_API_KEY"
'; timeout 20 cat "$S/a/exec/last/wait/exited" >/dev/null
    cat "$S/a/exec/last/stdout")" "OK
sec\$ret \"with\" 'quotes'sk-ant-project-level-00bbbb"
echo NEW=fresh >>"$P/env"
is 'what is added later holds from the next turn' "$(said a 'echo $NEW')" fresh
echo moved-key-000000000cccc >"$P/secrets/DB_PASSWORD"
is 'a secret changed, too' "$(said a 'echo $DB_PASSWORD')" \
    moved-key-000000000cccc
# /usr (/bin and the like lead there) and /opt are this machine's: large, and
# read-only
for d in usr opt; do
    is "it can not write to /$d" \
        "$(said a "test -d /$d && touch /$d/x 2>/dev/null || echo no")" no
done
is 'nothing of it lies in a file of the VM' "$(said a \
    'set -- /*
     for d; do
        case $d in
        /usr | /opt | /proc | /sys) ;;
        *) [ -L "$d" ] || set -- "$@" "$d" ;;
        esac
        shift
     done
     grep -rl -e moved-ke[y]-0000 -e sk-ant-projec[t] "$@" 2>/dev/null |
     head -n 3')" ''
is 'where it would be found' "$(said a \
    'echo sk-ant-""project >f; grep -rl -e sk-ant-projec[t] /*/user; rm f')" \
    /home/user/f

# ---- files ----
is 'x bit' "$(said a 'bin/helper you')" 'helped you'
is 'no x bit where there was none' \
    "$(said a 'test -x .config/deep/er/settings\ ü || echo none')" none
is 'a big one, whole' "$(said a 'sha256sum <big.bin')" \
    "$(sha256sum <"$T/big")"
is 'they are the agent'"'"'s own' \
    "$(said a 'echo more >>bin/helper && echo "#$(stat -c %U bin/helper)"')" \
    "#$(said a 'id -un')"
is 'instructions' "$(said a 'cat CLAUDE.md')" 'Keep it simple.'
is 'a skill' "$(said a 'tail -n 1 .claude/skills/tidy/SKILL.md')" 'Tidy up.'
is 'its program' "$(said a '.claude/skills/tidy/lib/run.sh && echo ran')" ran
is 'a command' "$(said a 'cat .claude/commands/ship.md')" 'Ship $ARGUMENTS'

# ---- the system prompt ----
cat >"$M/tools/sys" <<'END'
command = cat >/dev/null; cat {system_prompt_file}; echo [with {system_prompt_file}]
format = text
END
makes b tool=sys
like 'the system prompt, by its placeholder' "$(said b x)" 'Be "kind" & brief.'
like 'its group' "$(said b x)" '^with .*system-prompt'
: >"$P/system-prompt.md"
makes c tool=sys
unlike 'without one the group vanishes' "$(said c x)" with
printf 'Be "kind" & brief.\n' >"$P/system-prompt.md"
like 'one that is written later' "$(said c x)" 'Be "kind" & brief.'

# ---- learnings ----
cat >"$T/l.md" <<'END'
---
kind: pitfall
trigger: sorting
severity: high
---
The list must be sorted first.
END
cp "$T/l.md" "$P/learnings/pending/1.md" 2>/dev/null ||
    cp "$T/l.md" "$P/learnings/approved/1.md" 2>/dev/null
if [ -e "$P/learnings/pending/1.md" ]; then
    mv "$P/learnings/pending/1.md" "$P/learnings/approved/1.md"
fi
if [ -e "$P/learnings/approved/1.md" ]; then
    wr "$P/learnings/ctl" 'compile
' >/dev/null
    soon 10 test -e "$P/learnings/active"
    makes d
    like 'the active learnings' "$(said d 'cat CLAUDE.md')" \
        'must be sorted first'
    like 'after the instructions' "$(said d 'head -n 1 CLAUDE.md')" \
        '^Keep it simple'
fi

# ---- a repository without any of that ----
remote r
makes e "repo=$T/r.git"
is 'instructions in the clone' "$(said e 'pwd; head -n 1 CLAUDE.md')" \
    '/home/user/project
Keep it simple.'
is 'skills and commands there' \
    "$(said e 'ls .claude/skills/tidy .claude/commands | xargs')" \
    '.claude/commands: ship.md .claude/skills/tidy: SKILL.md lib'
is 'git sees nothing' "$(said e 'git status --porcelain')" ''
is 'a turn that commits all' \
    "$(ask e 'echo w >w && git add -A && git commit -qm work')" completed
soon 20 sh -c "git -C $T/r.git log -1 --format=%s courier/e | grep -q work"
is 'only the work is in it' \
    "$(at r show --name-only --format= courier/e)" w
is 'uncommitted work alone, too' "$(ask e 'echo v >v')" completed
soon 20 sh -c "git -C $T/r.git show --name-only --format= courier/e | grep v"
is 'of it only that' "$(at r show --name-only --format= courier/e)" v

# ---- a repository that has them itself ----
git clone -q "$T/r.git" "$T/seed"
(
    cd "$T/seed" && mkdir -p .claude/skills/own project &&
        echo 'Its own rules.' >CLAUDE.md && echo own >AGENTS.md &&
        echo own >.claude/skills/own/SKILL.md && git add -A &&
        git commit -qm own && git push -q origin HEAD:main
)
mkdir -p "$P/home/project/notes"
echo 'a note' >"$P/home/project/notes/n #1 [x]"
makes f "repo=$T/r.git"
is 'its own instructions stay' "$(said f 'cat CLAUDE.md')" 'Its own rules.'
is "the project's are in the home then" \
    "$(said f 'head -n 1 ~/.claude/CLAUDE.md')" 'Keep it simple.'
is 'its skill and ours' "$(said f 'ls .claude/skills | xargs')" 'own tidy'
is 'home/ reaches into the clone' "$(said f 'cat notes/*')" 'a note'
is 'git sees nothing of ours' "$(said f 'git status --porcelain')" ''
is 'all added' "$(ask f 'echo z >z; git add -A; git commit -qm all')" completed
soon 20 sh -c "git -C $T/r.git log -1 --format=%s courier/f | grep -q all"
is 'one file in the commit' \
    "$(at r show --name-only --format= courier/f)" z
makes g tool=agents "repo=$T/r.git"
is 'AGENTS.md of its own' "$(said g 'cat AGENTS.md')" own
is 'ours where codex, opencode and pi look' "$(said g \
    'cd; head -qn 1 .codex/AGENTS.md .config/opencode/AGENTS.md .pi/agent/AGENTS.md' |
    sort -u)" 'Keep it simple.'
is 'the work goes out of salvage without ours' "$(wr "$S/g/ctl" 'kill
')" OK
wait_for g ended >/dev/null
unlike 'nothing of ours in any branch' \
    "$(at r log --all --name-only --format=)" 'tidy|ship|system-prompt|notes'
