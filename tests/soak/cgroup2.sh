#!/bin/bash
# The limits of local sandboxes as control groups of version 2 hold them, on a
# machine that has version 1 or none: a kernel of user-mode Linux is booted
# over this machine's files, read-only, and the suites run in it, as root.
#
#   UML=/usr/bin/linux.uml MODULES=/usr/lib/uml/modules tests/soak/cgroup2.sh
#
# SUITES (hog), WAIT seconds (2400): it is slow. What Debian calls user-mode-linux.
set -u
cd "$(dirname "$0")/../.." || exit 2
UML=${UML:-$(command -v linux.uml)} MODULES=${MODULES:-/usr/lib/uml/modules}
SUITES=${SUITES:-hog}

if [ $$ != 1 ]; then
    if [ ! -x "$UML" ]; then
        echo 'skipped: there is no linux.uml (user-mode-linux)'
        exit 0
    fi
    run=$(mktemp -d /var/tmp/courier-uml.XXXXXX) || exit 2
    fuse=$(find "$MODULES" -name 'fuse.ko*' | head -n 1)
    # it is given no network, and writes nowhere but in its own memory
    TMPDIR=$run timeout -k 5 "${WAIT:-2400}" "$UML" mem=1536M umid=courier \
        uml_dir="$run" root=/dev/root rootfstype=hostfs hostfs=/ ro quiet \
        con0=null,fd:1 con=null "FUSE_KO=$fuse" "SUITES=$SUITES" \
        "HERE=$PWD" init="$PWD/tests/soak/cgroup2.sh" \
        </dev/null >"$run/out" 2>&1
    tr -d '\r' <"$run/out" | sed -n '/^== /,$p' | grep -v '^reboot:\|sysrq'
    n=$(grep -ac '^[0-9]* passed, 0 failed' "$run/out")
    rm -rf "$run"
    [ "$n" = "$(wc -w <<<"$SUITES")" ]
    exit
fi

# ---- inside ----

PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
mount -t proc proc /proc
mount -t sysfs sys /sys
# finit_module(2): kmod needn't be here
python3 -c 'import ctypes, os, sys
ctypes.CDLL(None).syscall(313, os.open(sys.argv[1], os.O_RDONLY), b"", 0)
' "$FUSE_KO"
mount -t tmpfs tmpfs /run
mkdir -p /run/courier/build
cp -r "$HERE/tests" /run/courier
cp "$HERE/build/courierfs" "$HERE/build/courier-sandboxd" /run/courier/build
cd /run/courier || exit 1
for d in /tmp /var/tmp; do mount -t tmpfs tmpfs $d -o mode=1777; done
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm -o mode=1777
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
chmod 666 /dev/fuse
for s in $SUITES; do
    echo "== $s, with cgroup2"
    tests/system/"$s".sh 2>&1
done
echo o >/proc/sysrq-trigger
sleep 60
