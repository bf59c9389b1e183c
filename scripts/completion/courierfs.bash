# bash completion for courierfs                          -*- shell-script -*-
# shellcheck shell=bash
_courierfs() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

    COMPREPLY=()
    # bash takes = as a word of its own
    [ "$cur" = = ] && cur=
    [ "$prev" = = ] && prev=${COMP_WORDS[COMP_CWORD - 2]}
    case $prev in
    --backend) mapfile -t COMPREPLY < <(compgen -W 'auto e2b local' -- "$cur") ;;
    -o) mapfile -t COMPREPLY < <(compgen -W 'allow_other noinotify' -- "$cur") ;;
    *)
        if [ "$prev" != --data ] && [[ $cur == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W '-f --foreground --data
                --backend -o --rotate-key --tree --version --help' -- "$cur")
        else
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        fi
        ;;
    esac
}
complete -F _courierfs courierfs
