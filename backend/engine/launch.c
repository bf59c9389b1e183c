#include "engine/launch.h"

#include "engine/inject.h"

#define TURNS VM_OWN "/turns"

/* so much goes along with the start itself, in one request */
enum { ALONG_MAX = 80 * 1024 };
enum { START_LIMIT_MS = 30000, LOOK_LIMIT_MS = 15000, KILL_LIMIT_MS = 20000 };

/*
 * Runs in its own session. The lock on descriptor 9 tells that it is there;
 * nothing it starts inherits that. A shell says so on its stderr when a child
 * was ended by a signal: that is how 137 is told from signal 9. What it starts
 * may have a few processes less than we, has less of the processor where that
 * is short, and goes first where memory is: so there is always room for who
 * comes to end it.
 */
static const char supervisor[] =
    "courier_dir=$1 courier_mark=$3 courier_shell=$4 courier_merge=$5\n"
    "courier_feed=$6 courier_size=$7 courier_cmd=${COURIER_CMD-}\n"
    "unset COURIER_CMD\n"
    "umask 022\n"
    "read -r courier_n </proc/$$/stat\n"
    "echo \"$courier_n\" >\"$1/stat\"\n"
    "cd \"$2\" 2>/dev/null || cd\n"
    "set -- $courier_n\n"
    "courier_n=$((10 - ${19:-0}))\n"
    "case :$PATH: in\n"
    "*:\"$HOME/.local/bin\":*) ;;\n"
    "*) PATH=$PATH:$HOME/.local/bin ;;\n"
    "esac\n"
    /* what sh starts with & has SIGINT and SIGQUIT ignored */
    "courier_env=\"nice -n $courier_n env --default-signal=INT,QUIT\"\n"
    /* asked once: a process is time of the sandbox */
    "{ read -r courier_o <\"${courier_dir%/*}/.nice\"; } 2>/dev/null\n"
    "if [ \"$courier_o\" != \"$courier_n\" ]; then\n"
    "  if $courier_env true 2>/dev/null; then\n"
    "    echo \"$courier_n\" >\"${courier_dir%/*}/.nice\"\n"
    "  else\n"
    "    courier_env=\n"
    "  fi\n"
    "fi\n"
    "courier_in=$courier_dir/prompt courier_feeder=\n"
    "if [ -p \"$courier_dir/in.wake\" ]; then\n"
    "  courier_in=$courier_dir/stdin\n"
    "  sh -c \"$courier_feed\" courier-feed \"$courier_dir\" 9>&- \\\n"
    "    2>/dev/null &\n"
    "  courier_feeder=$!\n"
    "fi\n"
    "set -a\n"
    ". \"$courier_dir/env\"\n"
    "set +a\n"
    "true >\"$courier_dir/env\"\n"
    "export COURIER_TURN_DIR=\"$courier_dir\"\n"
    "export COURIER_PROCESS=\"$courier_mark\"\n"
    "set -- \"$courier_dir/cmd\"\n"
    "if [ \"$courier_size\" -lt 100000 ]; then\n"
    "  set -- -c \"${courier_cmd:-$(cat \"$1\")}\"\n"
    "fi\n"
    "(\n"
    "  exec <\"$courier_in\" >\"$courier_dir/out\" 9>&-\n"
    "  [ \"$courier_merge\" = 1 ] && exec 2>&1 ||\n"
    "    exec 2>\"$courier_dir/err\"\n"
    "  { echo 500 >/proc/self/oom_score_adj; } 2>/dev/null\n"
    "  for courier_o in u p; do\n" /* dash has it as -p */
    "    courier_n=$(ulimit -$courier_o 2>/dev/null) || continue\n"
    "    [ \"$courier_n\" -gt 64 ] 2>/dev/null &&\n"
    "      ulimit -$courier_o $((courier_n - (courier_n > 800 ? 100 :\n"
    "        courier_n / 8)))\n"
    "    break\n"
    "  done\n"
    "  exec $courier_env \"$courier_shell\" \"$@\"\n"
    ")\n"
    "c=$? s=0\n"
    "[ $c -gt 128 ] && [ -s \"$courier_dir/word\" ] && s=1\n"
    "if [ -n \"$courier_feeder\" ]; then\n"
    "  kill $courier_feeder 2>/dev/null\n"
    "  rm -rf \"$courier_dir/in\"\n"
    "fi\n"
    "echo \"$c $s\" >\"$courier_dir/exit.new\"\n"
    "mv \"$courier_dir/exit.new\" \"$courier_dir/exit\"\n";

/* is there room for one more, of what `supervisor` lets it have? Threads
 * count, too */
#define ROOM                                                                  \
    "room() {\n"                                                              \
    "  for o in u p; do\n"                                                    \
    "    n=$(ulimit -$o 2>/dev/null) || continue\n"                           \
    "    [ \"$n\" -gt 64 ] 2>/dev/null || return 0\n"                         \
    "    n=$((n - (n > 800 ? 100 : n / 8) - 16)) u=0\n"                       \
    "    set -- /proc/[0-9]*/task/[0-9]*\n"                                   \
    "    [ $# -ge $n ] || return 0\n"                                         \
    "    for t; do [ -O \"$t\" ] && u=$((u + 1)); done\n"                     \
    "    [ $u -lt $n ]\n"                                                     \
    "    return\n"                                                            \
    "  done\n"                                                                \
    "}\n"

/*
 * The lock is taken when all has been read: one whose daemon died in between
 * waits for the rest of its input for ever, and must not hold up the next,
 * who ends it. Who has the lock and finds nothing started, starts.
 */
/* what comes (in COURIER_IN, or on stdin) is all there before anything else is
 * done: a start whose answer or input got lost is simply done again */
static const char starter[] =
    "D=$1 N=$2 E=$3 S=$6 C=$9 I=$1/in.$$\n"
    "umask 077\n"
    "mkdir -p \"$I\" || exit 71\n"
    "trap 'rm -rf \"$I\"' EXIT\n"
    "if [ -n \"${COURIER_IN+x}\" ]; then\n"
    "  printf %s \"$COURIER_IN\" >\"$I/prompt\" &&\n"
    "    printf %s \"$COURIER_ENV\" >\"$I/env\" &&\n"
    "    printf %s \"$COURIER_CMD\" >\"$I/cmd\"\n"
    "else\n"
    "  head -c \"$N\" >\"$I/prompt\" && head -c \"$E\" >\"$I/env\" &&\n"
    "    cat >\"$I/cmd\"\n"
    "fi || exit 72\n"
    "unset COURIER_IN COURIER_ENV\n"
    "whole() { [ \"$1 $3 $5\" = \"$N $E $C\" ]; }\n"
    "whole $(cd \"$I\" && wc -c prompt env cmd) || exit 73\n"
    "[ -e \"$D/started\" ] && exit 0\n" ROOM "room || exit 76\n"
    "exec 9>>\"$D/alive\"\n"
    "if command -v flock >/dev/null; then\n"
    "  flock -w 5 9 || exit 74\n"
    "fi\n"
    "[ -e \"$D/started\" ] && exit 0\n"
    "mv -f \"$I\"/* \"$D\" || exit 75\n"
    "printf %s \"$8\" >\"$D/run\"\n"
    ": >\"$D/out\"\n"
    ": >\"$D/err\"\n"
    "[ -n \"${10}\" ] && mkdir -p \"$D/in\" && : >\"$D/in.list\" &&\n"
    "  mkfifo -m 600 \"$D/stdin\" \"$D/in.wake\"\n"
    "command -v \"$S\" >/dev/null || S=sh\n"
    "read -r f </proc/$$/stat; echo \"${D##*/} $f\" >>\"${D%/*}/.starts\"\n"
    "set -C\n"
    "true 2>/dev/null >\"$D/started\" || exit 0\n"
    "set +C\n"
    "setsid sh \"$D/run\" \"$D\" \"$5\" \"$4\" \"$S\" \"$7\" \"${10}\" \"$C\" "
    "</dev/null >/dev/null 2>\"$D/word\" &\n"
    "set -- \"$I\"\n"
    "for o in \"${D%/*}\"/*; do\n" /* those are read to their end */
    "  [ \"$o\" != \"$D\" ] && [ -f \"$o/exit\" ] && set -- \"$@\" \"$o\"\n"
    "done\n"
    "rm -rf \"$@\"\n"
    "trap - EXIT\n"
    "exit 0\n";

/*
 * What is given to a command comes as files below in/, named one a line in
 * in.list, in order; the line "end" is the end. The feeder pours them into
 * the command's stdin one by one; in.wake, a pipe, tells it of new lines.
 */
static const char feeder[] =
    "D=$1\n"
    "exec 8>\"$D/stdin\" 7<>\"$D/in.wake\" 6<\"$D/in.list\"\n"
    "while :; do\n"
    "  if read -r t <&6; then\n"
    "    [ \"$t\" = end ] && exit 0\n"
    "    cat \"$D/in/$t\" >&8 || exit 0\n"
    "    rm -f \"$D/in/$t\"\n"
    "  else\n"
    "    read -r t <&7\n"
    "  fi\n"
    "done\n";

/*
 * Gives the piece $2, a number that grows; done twice it is there once. Exit
 * codes: enum launch_given.
 */
static const char giver[] =
    "D=$1 T=$2 N=$3 I=$1/in/.$2.$$ i=0\n"
    "umask 077\n"
    "there() {\n"
    "  [ ! -e \"$D/exit\" ] && [ -d \"$D\" ] || exit 77\n"
    "  [ -p \"$D/in.wake\" ] || exit 78\n"
    "}\n"
    "there\n"
    "if [ \"$T\" != end ]; then\n"
    "  if [ -n \"${COURIER_IN+x}\" ]; then\n"
    "    printf %s \"$COURIER_IN\" | base64 -d\n"
    "  else\n"
    "    cat\n"
    "  fi >\"$I\" || { there; exit 72; }\n"
    "  trap 'rm -f \"$I\"' EXIT\n"
    "  [ \"$(wc -c <\"$I\")\" -eq \"$N\" ] || { there; exit 73; }\n"
    "  while set -- \"$D\"/in/* && [ $# -ge 8 ]; do\n"
    "    there\n"
    "    [ $((i += 1)) -gt 20 ] && exit 79\n"
    "    sleep 0.05\n"
    "  done\n"
    "fi\n"
    "exec 9>>\"$D/in.lock\"\n"
    "if command -v flock >/dev/null; then\n"
    "  flock -w 5 9 || exit 74\n"
    "fi\n"
    "L=$(tail -n 1 \"$D/in.list\")\n"
    "[ \"$L\" = \"$T\" ] && exit 0\n"
    "[ \"$L\" = end ] && exit 78\n"
    "[ \"$T\" = end ] || [ \"$T\" -gt \"${L:-0}\" ] || exit 0\n"
    "[ \"$T\" = end ] || mv \"$I\" \"$D/in/$T\" || { there; exit 75; }\n"
    "echo \"$T\" >>\"$D/in.list\"\n"
    "echo 1<>\"$D/in.wake\"\n"
    "exit 0\n";

static const char follower[] =
    "D=$1\n"
    "[ -s \"$D/follow\" ] && kill $(cat \"$D/follow\") 2>/dev/null\n"
    "tail -c +\"$2\" -f \"$D/out\" 2>/dev/null & a=$!\n"
    "tail -c +\"$3\" -f \"$D/err\" >&2 2>/dev/null & b=$!\n"
    "if command -v flock >/dev/null; then\n"
    "  flock -s 8 8<\"$D/alive\" & f=$!\n"
    "else\n"
    "  { until [ -e \"$D/exit\" ]; do sleep 0.1; done; } & f=$!\n"
    "fi\n"
    "echo $$ $a $b $f >\"$D/follow\"\n"
    "wait $f\n"
    "kill $a $b\n"
    "true >\"$D/follow\"\n"
    "exit 0\n";

static const char looker[] =
    "D=$1\n"
    "if [ -f \"$D/exit\" ]; then read -r x <\"$D/exit\"; echo \"$x\"\n"
    "elif command -v flock >/dev/null && flock -n -s \"$D/alive\" true; then\n"
    "  sleep 0.05\n"
    "  if [ -f \"$D/exit\" ]; then cat \"$D/exit\"; else echo lost 0; fi\n"
    "elif [ -d \"$D\" ]; then echo runs 0; else echo lost 0; fi\n"
    "if [ -f \"$D/out\" ] && [ -f \"$D/err\" ]; then\n"
    "  set -- $(cd \"$D\" && wc -c out err)\n"
    "  echo \"$1 $3\"\n"
    "else\n"
    "  wc -c <\"$D/out\" || echo 0\n"
    "  wc -c <\"$D/err\" || echo 0\n"
    "fi\n";

/*
 * What belongs to a turn: what has its mark in the environment; what is of its
 * session; orphans of ours that are younger than the turn and have nothing of
 * what every process of the API is given (who has wiped the one and left the
 * other); and the children of all these. A command's name may hold anything,
 * so a line of stat ends where its fields are complete, not before.
 */
static const char members[] =
    "function pid(f) { split(f, w, \"/\"); return w[3] + 0 }\n"
    "$1 == \"m\" { marked[pid($2)]; next }\n"
    "$1 == \"w\" { wiped[pid($2)]; next }\n"
    "$1 == \"t\" { s = $2 + 0; t = $23 + 0; next }\n"
    "{ r = r == \"\" ? $0 : r \" \" $0; f = r; sub(/^.*\\) /, \"\", f) }\n"
    "split(f, a, \" \") < 40 { next }\n"
    "{ p = r + 0; r = \"\"; state[p] = a[1]; up[p] = a[2] + 0\n"
    "  session[p] = a[4] + 0; born[p] = a[20] + 0 }\n"
    "END {\n"
    "  other = s in born && born[s] != t\n" /* its number was used again */
    "  for (p in up)\n"
    "    if (p in marked || (s && born[p] >= t && p > 1 &&\n"
    "        ((session[p] == s && !other) || (p in wiped && up[p] == 1))))\n"
    "      hit[p]\n"
    "  for (p in up) {\n"
    "    for (q = p; (q in up) && !(q in hit) && !(q in out) && n[p]++ < "
    "9999;)\n"
    "      q = up[q]\n"
    "    if (q in hit)\n"
    "      for (q = p; (q in up) && !(q in hit); q = up[q]) hit[q]\n"
    "    else\n"
    "      for (q = p; (q in up) && !(q in out); q = up[q]) out[q]\n"
    "  }\n"
    "  for (p in hit)\n"
    "    if (state[p] !~ /[ZX]/ && p + 0 != s) print p\n"
    "}\n";

/* nothing forks while it holds; root would hold the VM itself */
#define HOLD                                                                  \
    "hold() {\n"                                                              \
    "  [ -r /proc/1/environ ] || { held=1; kill -s STOP -- -1; }\n"           \
    "}\n"                                                                     \
    "trap '[ -z \"$held\" ] || kill -s CONT -- -1' EXIT\n"                    \
    "set -- /proc/[0-9]*\n"                                                   \
    "[ $# -lt 150 ] || hold\n"

/*
 * TERM, then KILL. What goes on forking is held first: a signal to all is
 * sent at one moment, in which no fork happens, and who is held has used up
 * what he may have. What isn't of the turn goes on afterwards. Where there are
 * many that comes first of all, before we need anything that is short then.
 */
static const char killer[] =
    "M=$1 D=$2 A=$3 held=\n" HOLD
    "mkdir -p \"$D\"; mkdir \"$D/started\" 2>/dev/null\n"
    "list() {\n"
    "  { grep -lzxF \"COURIER_PROCESS=$M\" /proc/[0-9]*/environ |\n"
    "      sed 's/^/m /'\n"
    "    grep -LzE '^E2B_SANDBOX' /proc/[0-9]*/environ | sed 's/^/w /'\n"
    "    sed 's/^/t /' \"$D/stat\"\n"
    "    cat /proc/[0-9]*/stat\n"
    "  } 2>/dev/null | awk \"$A\"\n"
    "}\n"
    "send() {\n"
    "  kill -s $1 $p 2>/dev/null || sudo -n kill -s $1 $p 2>/dev/null\n"
    "}\n"
    "rounds() {\n" /* N SIGNAL: sent in each round, if one is given */
    "  i=0\n"
    "  while [ $i -lt $1 ]; do\n"
    "    p=$(list); [ -z \"$p\" ] && exit 0\n"
    "    [ -n \"$2\" ] && send $2\n"
    "    sleep 0.02; i=$((i+1))\n"
    "  done\n"
    "}\n"
    "if [ -z \"$held\" ]; then\n"
    "  rounds 1 TERM\n"
    "  rounds 12\n"
    "  rounds 10 KILL\n"
    "  hold\n"
    "fi\n"
    "rounds 100 KILL\n"
    "exit 1\n";

/*
 * Which of the groups of processes that earlier turns left has the most
 * (threads, or pages): its turn, how many threads, and which processes. An
 * orphan that has wiped its marks is taken for one of the turn that had begun
 * last when it was born; these are a group of their own, with a minus. `only`
 * one group if it is given. What no turn of ours began is in no group.
 */
static const char leavers[] =
    "function pid(f) { split(f, w, \"/\"); return w[3] + 0 }\n"
    "$1 == \"m\" { p = pid($2); sub(/.*-/, \"\", $2); of[p] = $2 + 0; next }\n"
    "$1 == \"w\" { wiped[pid($2)]; next }\n"
    "$1 == \"f\" { id[++k] = $2 + 0; at[k] = $24 + 0; next }\n"
    "{ r = r == \"\" ? $0 : r \" \" $0; f = r; sub(/^.*\\) /, \"\", f) }\n"
    "split(f, a, \" \") < 40 { next }\n"
    "{ p = r + 0; r = \"\"; if (a[1] ~ /[ZX]/) next\n"
    "  up[p] = a[2] + 0; threads[p] = a[18] + 0; born[p] = a[20] + 0\n"
    "  size[p] = memory ? a[22] + 0 : a[18] + 0 }\n"
    "END {\n"
    "  for (p in up)\n"
    "    if (!(p in of) && p in wiped && up[p] == 1)\n"
    "      for (i = k; i && !(p in of); i--)\n"
    "        if (born[p] >= at[i]) of[p] = -id[i]\n"
    "  for (p in up) {\n"
    "    for (q = p; (q in up) && !(q in of) && n[p]++ < 9999;) q = up[q]\n"
    "    if (!(q in of) || !(q in up)) continue\n"
    "    g = of[q]; all[g] += size[p]; count[g] += threads[p]\n"
    "    list[g] = list[g] \" \" p\n"
    "  }\n"
    "  for (g in all)\n"
    "    if (only == \"\" ? best == \"\" || all[g] > all[best] : g == only)\n"
    "      best = g\n"
    "  if (best != \"\") print best, count[best] list[best]\n"
    "}\n";

/* ends one group after the other until there is room, or one where memory is
 * what is short; says which, and of how many */
static const char clearer[] =
    "I=$1 F=$2 A=$3 K=$4 held=\n" HOLD ROOM "list() {\n"
    "  { grep -zoaxHE \"COURIER_PROCESS=$I-[0-9]+\" /proc/[0-9]*/environ |\n"
    "      tr '\\0' '\\n' | sed 's/^/m /'\n"
    "    grep -LzE '^E2B_SANDBOX' /proc/[0-9]*/environ | sed 's/^/w /'\n"
    "    sed 's/^/f /' \"$F\"\n"
    "    cat /proc/[0-9]*/stat\n"
    "  } 2>/dev/null | awk -v memory=\"$K\" -v only=\"$1\" \"$A\"\n"
    "}\n"
    "rounds() {\n" /* GROUP N SIGNAL */
    "  i=0\n"
    "  while [ $i -lt $2 ]; do\n"
    "    p=$(list $1 | cut -d' ' -f3-); [ -n \"$p\" ] || return 0\n"
    "    [ -z \"$3\" ] || kill -s $3 $p 2>/dev/null ||\n"
    "      sudo -n kill -s $3 $p 2>/dev/null\n"
    "    sleep 0.02; i=$((i+1))\n"
    "  done\n"
    "  return 1\n"
    "}\n"
    "d=0\n"
    "while [ -n \"$K\" ] || ! room; do\n"
    "  set -- $(list)\n"
    "  [ $# -gt 1 ] && [ $((d += 1)) -lt 100 ] || break\n"
    "  [ -n \"$held\" ] || rounds $1 1 TERM || rounds $1 12 ||\n"
    "    rounds $1 10 KILL || hold\n"
    "  [ -z \"$held\" ] || rounds $1 100 KILL\n"
    "  echo \"$1 $2\"\n"
    "  [ -z \"$K\" ] || exit 0\n"
    "done\n"
    "[ -z \"$K\" ] && room\n";

static void dir_of(int64_t process, char out[96])
{
    (void)snprintf(out, 96, "%s/%lld", TURNS, (long long)process);
}

/* what a shell says that can't fork, or what became of it */
static int short_of(const struct e2b_result *res)
{
    const char *said = buf_str(&res->err);

    if (res->exit_code == 76 || strstr(said, "annot fork") ||
        strstr(said, "Resource temporarily unavailable"))
        return ENOBUFS;
    if (res->exit_code == 128 + 9 || strstr(said, "Cannot allocate memory"))
        return ENOMEM;
    return 0;
}

static int failed(const char *what, const struct e2b_result *res,
                  struct err *e)
{
    AUTO_BUF struct buf shown = {0};

    text_printable(&shown, buf_str(&res->err), res->err.n, 0);
    return err_set(e, EPROTO, "%s in the VM failed (exit %d)%s%.300s", what,
                   res->exit_code, shown.n ? ": " : "", buf_str(&shown));
}

int launch_start(const struct e2b_target *t, const struct launch *l,
                 struct e2b_cancel *cancel, struct err *e)
{
    struct buf in = {0};
    struct e2b_pair env[3] = {{"COURIER_IN", NULL},
                              {"COURIER_ENV", l->env},
                              {"COURIER_CMD", l->cmd}};
    struct e2b_result res = {0};
    char dir[96], n[24], env_n[24], cmd_n[24];
    AUTO_FREE char *text = NULL;
    AUTO_FREE char *mark =
        xasprintf("%s-%lld", l->instance, (long long)l->process);
    const char *argv[] = {"/bin/sh",
                          "-c",
                          starter,
                          "courier",
                          dir,
                          n,
                          env_n,
                          mark,
                          l->workdir,
                          l->shell,
                          l->merge ? "1" : "0",
                          supervisor,
                          cmd_n,
                          l->feed ? feeder : "",
                          NULL};
    struct e2b_run run = {.argv = argv,
                          .limit_ms = START_LIMIT_MS,
                          .max_out = 4096,
                          .cancel = cancel};
    int r;

    dir_of(l->process, dir);
    (void)snprintf(n, sizeof(n), "%zu", l->input_n);
    (void)snprintf(env_n, sizeof(env_n), "%zu", strlen(l->env));
    (void)snprintf(cmd_n, sizeof(cmd_n), "%zu", strlen(l->cmd));
    buf_add(&in, l->input, l->input_n);
    buf_adds(&in, l->env);
    buf_adds(&in, l->cmd);
    /* what is text goes along with the call, and needs no process to read */
    if (in.n <= ALONG_MAX && !memchr(in.p, 0, in.n) &&
        text_utf8_valid(in.p, in.n)) {
        text = xmemdup0(l->input, l->input_n);
        env[0].value = text;
        run.env = env;
        run.n_env = 3;
    } else {
        run.stdin_data = buf_str(&in);
        run.stdin_len = in.n;
    }
    r = e2b_exec(t, &run, &res, e);
    buf_wipe(&in);
    if (r == 0 && res.exit_code && (r = short_of(&res)) != 0)
        r = err_set(e, r, "the VM has no %s left for another turn",
                    r == ENOMEM ? "memory" : "processes");
    else if (r == 0 && res.exit_code)
        r = failed("starting the agent", &res, e);
    e2b_result_clear(&res);
    return r;
}

void launch_give(struct launch_give *g, int64_t process, const char *name,
                 const void *p, size_t n, struct e2b_run *run)
{
    const char *argv[] = {"/bin/sh", "-c",    giver,   "courier-give",
                          g->dir,    g->name, g->size, NULL};

    dir_of(process, g->dir);
    (void)snprintf(g->name, sizeof(g->name), "%s", name);
    (void)snprintf(g->size, sizeof(g->size), "%zu", n);
    memcpy(g->argv, argv, sizeof(argv));
    memset(run, 0, sizeof(*run));
    run->argv = g->argv;
    run->max_out = 4096;
    if (n > ALONG_MAX) {
        run->stdin_data = p;
        run->stdin_len = n;
        return;
    }
    base64_encode(&g->coded, p, n);
    g->env[0] = (struct e2b_pair){"COURIER_IN", buf_str(&g->coded)};
    run->env = g->env;
    run->n_env = 1;
}

void launch_follow_argv(struct launch_follow *f, int64_t process,
                        int64_t off_out, int64_t off_err)
{
    const char *argv[] = {"/bin/sh", "-c",   follower, "courier-follow",
                          f->dir,    f->out, f->err,   NULL};

    dir_of(process, f->dir);
    (void)snprintf(f->out, sizeof(f->out), "%lld", (long long)off_out + 1);
    (void)snprintf(f->err, sizeof(f->err), "%lld", (long long)off_err + 1);
    memcpy(f->argv, argv, sizeof(argv));
}

int launch_look(const struct e2b_target *t, int64_t process,
                struct launch_state *out, struct err *e)
{
    char dir[96];
    const char *argv[] = {"/bin/sh", "-c", looker, "courier", dir, NULL};
    struct e2b_run run = {
        .argv = argv, .limit_ms = LOOK_LIMIT_MS, .max_out = 4096};
    struct e2b_result res = {0};
    char word[16] = "";
    long long size_out = 0, size_err = 0;
    int signaled = 0, r;

    dir_of(process, dir);
    r = e2b_exec(t, &run, &res, e);
    if (r == 0 && sscanf(buf_str(&res.out), "%15s %d %lld %lld", word,
                         &signaled, &size_out, &size_err) != 4)
        r = failed("looking at the process", &res, e);
    e2b_result_clear(&res);
    if (r < 0)
        return r;
    memset(out, 0, sizeof(*out));
    out->out = size_out;
    out->err = size_err;
    if (!strcmp(word, "runs")) {
        out->now = LAUNCH_RUNS;
    } else if (!strcmp(word, "lost")) {
        out->now = LAUNCH_LOST;
    } else {
        int64_t code = 255;

        text_int(word, 0, 255, &code);
        out->now = LAUNCH_EXITED;
        out->code = (int)code;
        out->signaled = signaled != 0;
    }
    return 0;
}

int launch_read(const struct e2b_target *t, int64_t process, int fd,
                int64_t off, int64_t len, struct buf *out, struct err *e)
{
    char dir[96];
    AUTO_FREE char *path = NULL;

    dir_of(process, dir);
    path = xasprintf("%s/%s", dir, fd == 2 ? "err" : "out");
    return e2b_read(t, path, off, len, out, NULL, e);
}

int launch_kill(const struct e2b_target *t, const char *instance,
                int64_t process, struct e2b_cancel *cancel, struct err *e)
{
    AUTO_FREE char *mark = xasprintf("%s-%lld", instance, (long long)process);
    char dir[96];
    const char *argv[] = {"/bin/sh", "-c", killer,  "courier",
                          mark,      dir,  members, NULL};
    struct e2b_run run = {.argv = argv,
                          .limit_ms = KILL_LIMIT_MS,
                          .max_out = 4096,
                          .cancel = cancel};
    struct e2b_result res = {0};
    int r;

    dir_of(process, dir);
    r = e2b_exec(t, &run, &res, e);
    if (r == 0 && res.exit_code)
        r = failed("ending the agent's processes", &res, e);
    e2b_result_clear(&res);
    return r;
}

int launch_clear(const struct e2b_target *t, const char *instance, bool memory,
                 struct buf *out, struct e2b_cancel *cancel, struct err *e)
{
    const char *argv[] = {
        "/bin/sh",        "-c",    clearer,           "courier", instance,
        TURNS "/.starts", leavers, memory ? "1" : "", NULL};
    struct e2b_run run = {.argv = argv,
                          .limit_ms = KILL_LIMIT_MS,
                          .max_out = 4096,
                          .cancel = cancel};
    struct e2b_result res = {0};
    int r = e2b_exec(t, &run, &res, e);

    if (r == 0 && res.exit_code)
        r = failed("making room", &res, e);
    buf_add(out, buf_str(&res.out), res.out.n);
    e2b_result_clear(&res);
    return r;
}
