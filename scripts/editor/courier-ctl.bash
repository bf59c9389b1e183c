# Writes commands to control files of courier, with completion. Bash completes
# the words of a command, not those of an `echo`, so this is a command:
#
#     . courier-ctl.bash
#     ctl PATH VERB [ARGUMENT...]        e.g. ctl /courier/projects/web/sandboxes create one tool=shell
#
# PATH is a `ctl`, or the directory it is in. What VERBs there are is read from
# the file itself, as is what came of it.                 -*- shell-script -*-
# shellcheck shell=bash

_ctl_file() { if [ -d "$1" ]; then echo "${1%/}/ctl"; else echo "$1"; fi; }

ctl() {
    local file line word out fd
    [ $# -ge 2 ] || { echo 'usage: ctl PATH VERB [ARGUMENT...]' >&2; return 2; }
    file=$(_ctl_file "$1")
    [ -w "$file" ] || { echo "ctl: there is no $file" >&2; return 1; }
    shift
    line=$1
    shift
    for word; do
        case $line in
        # these take the rest as it stands
        message* | exec*) line="$line $word" ;;
        *) line="$line '${word//\'/\'\\\'\'}'" ;;
        esac
    done
    case $line in *$'\n'*) echo 'ctl: a command is one line' >&2; return 2 ;; esac
    exec {fd}<>"$file" || return 1
    # what is wrong is told by the file itself, in words
    { echo "$line" >&"$fd"; } 2>/dev/null
    out=$(cat <&"$fd" 2>/dev/null)
    exec {fd}>&-
    echo "${out#\# *Z }"
    [[ $out == *' ok'* ]]
}

_ctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} file verb dir
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
    fi
    file=$(_ctl_file "${COMP_WORDS[1]}")
    [ -r "$file" ] || return
    dir=${file%/*}
    verb=${COMP_WORDS[2]}
    if [ "$COMP_CWORD" = 2 ]; then
        # after the outcomes and an empty comment come the verbs
        mapfile -t COMPREPLY < <(compgen -W "$(awk '/^#$/ { on = 1; next }
            (on || !/^# [0-9]/) && /^# [a-z]/ { print $2 }' "$file" | sort -u)" -- "$cur")
        return
    fi
    case $verb in
    create)
        compopt -o nospace 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -W 'name= prompt= id= workflow=
            backend= tool= template= model= designer_model= checker_model=
            thinking= timeout= on_timeout= salvage_ahead= when_done=
            turn_timeout= memory= cpu= repo= base= branch= sync= pr=
            pr_labels= git_name= git_email= setup= learn= budget= network=
            github_api=' -- "$cur") ;;
    restore | purge)
        mapfile -t COMPREPLY < <(compgen -W \
            "now $(ls -- "$dir/../trash" 2>/dev/null)" -- "$cur") ;;
    interrupt) mapfile -t COMPREPLY < <(compgen -W all -- "$cur") ;;
    shutdown) mapfile -t COMPREPLY < <(compgen -W all -- "$cur") ;;
    timeout) mapfile -t COMPREPLY < <(compgen -W '15m 30m 1h 2h 4h' -- "$cur") ;;
    start | kill | pause | resume | delete)
        mapfile -t COMPREPLY < <(compgen -W \
            "now $(cd "$dir" 2>/dev/null && ls -d -- */ 2>/dev/null | tr -d /)" \
            -- "$cur") ;;
    esac
}
complete -F _ctl ctl
