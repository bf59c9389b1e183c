#!/bin/bash
# What docs/editors.md tells users of vim and emacs to set, as it stands there:
# a document that somebody else changed is read again, the reason of a refused
# save is shown, a conversation is followed beside the work.
. "$(dirname "$0")/../lib.sh"
doc=$HERE/../docs/editors.md
start
mkdir "$T/tmux" "$T/home"
export TMUX_TMPDIR=$T/tmux HOME=$T/home TERM=xterm
unset TMUX
mk one
echo 'timeout = 20m' >"$P/config"

# block N SECTION: the Nth indented block of a section
block() {
    awk -v n="$1" -v s="## $2" '
        /^## / { on = $0 == s }
        on && /^    / { if (!was) k++; was = 1; if (k == n) print substr($0, 5); next }
        { was = was && /^$/ && 0 }' "$doc"
}
block 1 vim >"$T/home/.vimrc"
block 1 emacs >"$T/home/.emacs"
like 'the settings of vim' "$(cat "$T/home/.vimrc")" autoread
like 'the settings of emacs' "$(cat "$T/home/.emacs")" auto-revert

tm() { tmux -L follow -f /dev/null "$@" 2>/dev/null; }
window() { # NAME COMMAND
    tm new-session -d -s "$1" -x 100 -y 30 -c "$P" "$2"
}
type_() { # NAME KEY...
    local s=$1
    shift
    tm send-keys -t "=$s:" "$@"
}
screen() { tm capture-pane -p -t "=$1:"; }
shows() { screen "$1" | grep -qE -- "$2"; }
# seen WHAT NAME REGEXP [SECONDS]
seen() {
    if soon "${4:-15}" shows "$2" "$3"; then ok; else
        bad "$1"
        screen "$2" | grep . | sed 's/^/  | /'
    fi
}

window keep 'sleep 300'
window vim 'vim config'
window term 'vim sandboxes/one/prompt'
seen 'vim has the config' vim '^timeout = 20m'
if command -v emacs >/dev/null; then
    window tail 'emacs -nw sandboxes/one/messages'
    window emacs 'emacs -nw config'
    seen 'emacs has the config' emacs '^timeout = 20m'
    seen 'emacs has the conversation' tail 'messages.*Tail'
else
    echo '  emacs is not there: not run'
fi
type_ term -l ':terminal tail -f sandboxes/one/messages'
type_ term Enter
seen 'a terminal inside vim' term '^~'

# somebody else saves
printf 'timeout = 20m\nmemory = 512\n' >"$P/config"
seen 'vim reads it again, nothing typed' vim '^memory = 512'
[ ! -e "$T/home/.emacs" ] || ! command -v emacs >/dev/null ||
    seen 'emacs does' emacs '^memory = 512'
# it is followed where one looks
is 'a turn' "$(ask one 'echo hello from the VM')" completed
seen 'in the terminal of vim' term '^hello from the VM'
! command -v emacs >/dev/null ||
    seen 'in the tail of emacs' tail '^hello from the VM'
is 'another' "$(ask one 'echo and once more')" completed
seen 'in the terminal of vim, again' term '^and once more'
! command -v emacs >/dev/null ||
    seen 'in the tail of emacs, again' tail '^and once more'

# a refused save and why
type_ vim -l 'Gocolour = blue'
type_ vim Escape
type_ vim -l ':w'
type_ vim Enter
seen 'a refused save' vim 'E514|E512|E667|Invalid argument|Operation canceled'
type_ vim Enter
type_ vim -l ':Why'
type_ vim Enter
seen 'and why' vim "# line 3: unknown key 'colour'"
# what was typed is not thrown away by a change from elsewhere
echo 'timeout = 40m' >"$P/config"
pause 6
type_ vim Enter
type_ vim -l ':wincmd w'
type_ vim Enter
seen 'what was typed is still there' vim '^colour = blue'
tm kill-server
soon 10 sh -c "! pgrep -f '$T/home' >/dev/null" || :
