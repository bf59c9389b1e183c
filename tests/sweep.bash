# shellcheck shell=bash
# sweep DIR: takes away what a suite left in its directory, however it ended:
# ends the processes whose command line names it (what is or was mounted there
# and the sandboxes, too) or that the suite began (COURIER_TEST is DIR in their
# environment), unmounts what is mounted below, removes it.

# of DIR: never the asking shell itself
of_dir() {
    {
        pgrep -f "$1/"
        grep -lszFx "COURIER_TEST=$1" /proc/[0-9]*/environ | cut -d/ -f3
    } | grep -vx -e $$ -e "$BASHPID"
}

sweep() {
    local p i
    # one that is stopped would hang whoever touches its mount, and could not
    # take its sandboxes down
    pkill -CONT -f "courier.*$1/" 2>/dev/null
    # the local host ends with its sandboxes at SIGTERM
    if pkill -TERM -f "courier-sandboxd .*$1/" 2>/dev/null; then
        for ((i = 0; i < 200; i++)); do
            pgrep -f "courier-sandboxd .*$1/" >/dev/null || break
            sleep 0.05
        done
    fi
    for p in $(of_dir "$1"); do kill -9 "$p" 2>/dev/null; done
    for p in $(awk -v t="$1/" 'index($2, t) == 1 { print $2 }' /proc/mounts |
        sort -r); do
        fusermount3 -uz "$p" 2>/dev/null || umount -l "$p" 2>/dev/null
    done
    rm -rf --one-file-system "$1"
}
