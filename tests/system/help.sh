#!/bin/bash
# What helps a user outside the tree: --help, man pages, completion, the vim
# syntax; and that none of it says what isn't so.
# shellcheck disable=SC2044,SC2045
. "$(dirname "$0")/../lib.sh"
root=$HERE/..
help=$("$BIN/courierfs" --help)

# ---- the program's own words ----
is '--help' "$?" 0
is '-h' "$("$BIN/courierfs" -h)" "$help"
like '--version' "$("$BIN/courierfs" --version)" '^courierfs [0-9]+\.[0-9]+\.[0-9]+$'
like 'the host' "$("$BIN/courier-sandboxd" --version)" '^courier-sandboxd [0-9.]+$'
is 'columns' "$(grep -cE '^.{80,}' <<<"$help")" 0
"$BIN/courierfs" >"$T/o" 2>"$T/e"
is 'no mount point' "$?" 2
is 'in a sentence' "$(cat "$T/e")" 'courierfs: no mount point was given, see --help'
is 'on stderr only' "$(cat "$T/o")" ''
"$BIN/courierfs" --bogus "$M" >"$T/o" 2>"$T/e"
is 'unknown option' "$?" 2
"$BIN/courierfs" --backend moon "$M" >"$T/o" 2>"$T/e"
is 'unknown backend' "$?" 1
is 'in words' "$(cat "$T/e")" 'courierfs: --backend is auto, e2b or local'
"$BIN/courierfs" -o bogus "$M" >"$T/o" 2>"$T/e"
like 'unknown -o' "$(cat "$T/e")" 'allow_other and noinotify'
no 'nothing is mounted' mountpoint -q "$M"

# ---- man pages ----
pages=$(ls "$root"/docs/man/*.[1-8])
is 'three' "$(wc -w <<<"$pages")" 3
if command -v mandoc >/dev/null; then
    # shellcheck disable=SC2086
    is 'mandoc -Tlint' "$(mandoc -Tlint -Wwarning $pages 2>&1)" ''
fi
if [ -f "$root/backend/engine/config.c" ]; then
    is 'courier(5) is up to date (make man)' \
        "$("$root/scripts/man-tree" --check "$BIN/courierfs" 2>&1)" ''
fi
# each option of one is in the other
for o in $(grep -oE -- '--[a-z-]+' <<<"$help" | sort -u); do
    grep -q -- "Fl -${o#--}" "$root/docs/man/courierfs.1"
    is "courierfs(1) has $o" $? 0
    grep -q -- "$o" "$root/scripts/completion/courierfs.bash"
    is "bash completes $o" $? 0
    grep -q -- "$o" "$root/scripts/completion/_courierfs"
    is "zsh completes $o" $? 0
done
for o in $("$BIN/courier-sandboxd" --help | grep -oE -- '--[a-z-]+' | sort -u); do
    grep -q -- "Fl -${o#--}" "$root/docs/man/courier-sandboxd.8"
    is "courier-sandboxd(8) has $o" $? 0
done

# ---- docs ----
# names() of the tree's manual: all of them
for f in $("$BIN/courierfs" --tree | sed -n '/^The root/,/^Commands/s/^ \{2,\}\([^ ]*\) .*/\1/p' | sort -u); do
    grep -qw -- "${f//./\\.}" "$root/docs/tree.md"
    is "docs/tree.md tells of $f" $? 0
done
for f in "$root"/README.md "$root"/docs/*.md; do
    for l in $(grep -oE '\]\([^)# ]+' "$f" | cut -c3- | grep -v :); do
        yes "${f##*/}: $l is there" test -e "$(dirname "$f")/$l"
    done
done

# what is linked within a document is there; every document is in README.md
anchors() { sed -n 's/^#\{1,4\} //p' "$1" | tr A-Z a-z | tr -d '`.,:;?!()/<>'"'" | tr ' ' '-'; }
for f in "$root"/docs/*.md; do
    yes "README.md names ${f##*/}" grep -q "(docs/${f##*/})" "$root/README.md"
done
for f in "$root"/README.md "$root"/docs/*.md; do
    for l in $(grep -oE '\]\([^):]*#[^)]+' "$f" | cut -c3-); do
        to=${l%%#*}
        [ -n "$to" ] && to=$(dirname "$f")/$to || to=$f
        yes "${f##*/}: $l is there" grep -qx -- "${l#*#}" <<<"$(anchors "$to")"
    done
done
# the tables of the record, and the sources that are named
schema=$(cat "$root"/backend/engine/schema.c "$root"/backend/store/store.c)
for t in $(grep -oE 'CREATE TABLE [a-z_]+' <<<"$schema" | awk '{ print $3 }' | sort -u); do
    yes "schema.md tells of $t" grep -q "\`$t\`" "$root/docs/schema.md"
done
for f in $(grep -oE '`[a-z]+/[a-z_./]+`' "$root/docs/architecture.md" | tr -d '`'); do
    yes "architecture.md: $f" test -e "$root/$f" -o -e "$root/backend/$f"
done
for f in $(sed -n '/^ \* engine:/,/^ \*\//p' "$root/backend/engine/engine.h" | grep -oE '[a-z]+\.c'); do
    yes "engine.h: $f" test -e "$root/backend/engine/$f"
done

# ---- completion ----
# comp WORD...: what bash offers for the last of them
comp() {
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "$F"; printf "%s\n" "${COMPREPLY[@]}"' _ "$file" "$@" 2>/dev/null
}
file=$root/scripts/completion/courierfs.bash
export F=_courierfs
is 'options' "$(comp courierfs --d)" --data
is 'backends' "$(comp courierfs --backend '')" 'auto
e2b
local'
is 'after =' "$(comp courierfs --backend = l)" local
is 'directories' "$(comp courierfs "$T/m")" "$M"
is 'of --data' "$(comp courierfs --data "$T/da")" "$D"
yes 'zsh can read its file' zsh -n "$root/scripts/completion/_courierfs"
if command -v zsh >/dev/null; then
    mkdir -p "$T/fun"
    cp "$root/scripts/completion/_courierfs" "$T/fun/"
    is 'zsh knows the command' "$(HOME=$T zsh -fc "fpath=($T/fun \$fpath)
        autoload -U compinit; compinit -u -d $T/zcomp
        echo \$_comps[courierfs]")" _courierfs
fi

# ---- ctl and its completion ----
start
mk one
file=$root/scripts/editor/courier-ctl.bash F=_ctl
verbs=$(comp ctl "$S" '')
like 'verbs of sandboxes/ctl' "$(tr '\n' ' ' <<<"$verbs")" \
    'create .*kill .*restore .*start'
is 'a verb begun' "$(comp ctl "$S/one/ctl" int)" interrupt
is 'names' "$(comp ctl "$S" pause o)" one
is 'verbs alone' "$(grep -vcxE '[a-z]+' <<<"$verbs")" 0
like 'keys' "$(comp ctl "$S" create time)" '^timeout='
ctl() { bash -c '. "$1"; shift; ctl "$@"' _ "$file" "$@"; }
is 'ctl creates' "$(ctl "$S" create two tool=shell "prompt=echo 'a b'")" 'ok create two'
is 'quoted well' "$(cat "$S/two/prompt")" "echo 'a b'"
like 'ctl refused' "$(ctl "$S/one" timeout 9h)" '^error .*a timeout is from 1m to 4h from now$'
ctl "$S/one" bogus >/dev/null
is 'and fails' "$?" 1
is 'text as it stands' "$(ctl "$S/one" message "echo it's; echo so")" 'ok message'
# every key of the settings is offered, and known to the vim syntax
for k in $(jq -r '.config | keys[]' "$S/one/info.json"); do
    is "completes $k" "$(comp ctl "$S" create "$k=" | grep -x "$k=")" "$k="
    yes "vim knows $k" grep -qw "$k" "$root/scripts/editor/courier.vim"
done

# ---- vim ----
if command -v vim >/dev/null; then
    printf '# c\ntimeout = 30m\n[step design]\n' >"$T/config"
    printf '── 2026-11-29T12:00:01Z  user  #1\n' >"$T/messages"
    groups() { # FILE LINE COLUMN...
        vim -u NONE -es -N -c 'syntax on' \
            -c 'syn clear' -c 'unlet! b:current_syntax' -c "source $root/scripts/editor/courier.vim" \
            -c "redir! >$T/syn | silent echo synIDattr(synID($2,$3,1),'name') | redir END" \
            -c 'qa!' "$1" </dev/null >/dev/null 2>&1
        tr -d '\r\n' <"$T/syn"
    }
    is 'a comment' "$(groups "$T/config" 1 1)" courierComment
    is 'a key' "$(groups "$T/config" 2 1)" courierKey
    is 'a duration' "$(groups "$T/config" 2 11)" courierDuration
    is 'a section' "$(groups "$T/config" 3 2)" courierSection
    is 'no word of complaint' "$(vim -u NONE -es -C -V1 \
        -c "source $root/scripts/editor/courier.vim" -c 'qa!' 2>&1 </dev/null |
        grep -o 'E[0-9]*: .*')" ''
    is 'a message' "$(LC_ALL=C.UTF-8 groups "$T/messages" 1 1)" courierUser
fi

# ---- the mount's own help ----
readme=$(cat "$M/README")
is 'README is --tree' "$(head -n -2 <<<"$readme")" \
    "$("$BIN/courierfs" --tree | sed "s|P=/courier/|P=$M/|")"
is 'no line is too long' "$(grep -v '^    P=' <<<"$readme" | grep -cE '^.{80,}')" 0
# what it takes, and what that means
for k in $(jq -r '.config | keys[]' "$S/one/info.json"); do
    like "README tells of $k" "$readme" "^  $k\\*? +[^ ]"
done
for c in "$M/ctl" "$P/ctl" "$S/ctl" "$S/one/ctl" "$P/runs/ctl" "$P/learnings/ctl"; do
    while read -r line; do
        like "${c#"$M"/}: $line" "$line" '^[a-z]+( .*)?  +[^ ]+ .*|^[a-z]+.*<<]$'
    done < <(sed -n '/^# [0-9]/d; s/^# \([a-z]\)/\1/p' "$c")
done
# every listed name is there, and nothing that isn't
for d in "$M" "$P" "$S/one"; do
    for f in $(ls "$d"); do
        grep -qE "^ +${f//./\\.} " <<<"$readme"
        is "README tells of $f" $? 0
    done
done
for c in $(find "$M" -name ctl); do
    is "${c#"$M"/}: all lines are comments" "$(grep -cv '^#' "$c")" 0
    like "${c#"$M"/}: tells verbs" "$(cat "$c")" '^# [a-z]+'
done
