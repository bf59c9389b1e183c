#include "local/boxfs.h"
#include "local/connect.h"
#include "local/proc.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

/*
 * process.Process. Each call is one function and one row of the table at the
 * end; what a process is, is proc.c's.
 */

/* how often a silent stream looks whether its client is still there */
enum { GONE_CHECK_MS = 5000 };

/* ---- Start ---- */

struct words {
    char **v;
    size_t n;
};

static void words_add(struct words *w, char *s)
{
    w->v = xrealloc(w->v, (w->n + 2) * sizeof(*w->v));
    w->v[w->n++] = s;
    w->v[w->n] = NULL;
}

static void words_release(struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->v[i]);
    free(w->v);
}

/* name=value; a later one takes the place of an earlier one */
static void env_set(struct words *w, const char *name, size_t n,
                    const char *value)
{
    char *s = xasprintf("%.*s=%s", (int)n, name, value);

    for (size_t i = 0; i < w->n; i++) {
        if (!strncmp(w->v[i], s, n + 1)) {
            free(w->v[i]);
            w->v[i] = s;
            return;
        }
    }
    words_add(w, s);
}

static int env_build(struct words *w, struct box *b, bool as_root,
                     const json_t *envs, struct err *e)
{
    const char *user = as_root ? "root" : "user", *name;
    json_t *value;

    env_set(w, "PATH", 4,
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:"
            "/usr/bin:/sbin:/bin");
    env_set(w, "E2B_SANDBOX", 11, "true");
    env_set(w, "HOME", 4, as_root ? "/root" : "/home/user");
    env_set(w, "USER", 4, user);
    env_set(w, "LOGNAME", 7, user);
    for (char *const *v = box_env(b); v && *v; v++) {
        const char *eq = strchr(*v, '=');

        if (eq && eq != *v)
            env_set(w, *v, (size_t)(eq - *v), eq + 1);
    }
    json_object_foreach((json_t *)(uintptr_t)envs, name, value)
    {
        if (!*name || strchr(name, '=') || !json_is_string(value))
            return err_set(e, EINVAL, "invalid environment variable");
        env_set(w, name, strlen(name), json_string_value(value));
    }
    return 0;
}

static int argv_build(struct words *w, const char *cmd, const json_t *args,
                      struct err *e)
{
    json_t *a;
    size_t i;

    words_add(w, xstrdup(cmd));
    json_array_foreach(args, i, a)
    {
        if (!json_is_string(a))
            return err_set(e, EINVAL, "args must be strings");
        words_add(w, xstrdup(json_string_value(a)));
    }
    return 0;
}

static int cwd_check(struct box *b, bool as_root, const char *asked,
                     char **out, struct err *e)
{
    struct boxfs f;
    struct stat st;
    int fd, r;

    boxfs_enter(&f, b, as_root);
    r = boxfs_path(&f, asked, out, e);
    if (!r) {
        fd = boxfs_open(&f, *out, O_PATH, 0);
        if (fd == -ESHUTDOWN)
            r = err_set(e, ESHUTDOWN, "the sandbox is being killed");
        else if (fd < 0)
            r = err_set(e, EINVAL, "cwd '%s' does not exist", *out);
        else if (fstat(fd, &st) || !S_ISDIR(st.st_mode))
            r = err_set(e, EINVAL, "cwd '%s' is not a directory", *out);
        close_cleanup(&fd);
    }
    boxfs_leave(&f);
    return r;
}

/* ProcessConfig as List shows it: what is empty is left out */
static json_t *config_shown(const char *cmd, const json_t *args,
                            const json_t *envs, const char *cwd)
{
    json_t *j = json_pack("{s:s}", "cmd", cmd);

    if (json_array_size(args))
        json_object_set(j, "args", (json_t *)(uintptr_t)args);
    if (json_object_size(envs))
        json_object_set(j, "envs", (json_t *)(uintptr_t)envs);
    if (*cwd)
        json_object_set_new(j, "cwd", json_string(cwd));
    return j;
}

static unsigned short size_field(const json_t *size, const char *name)
{
    int64_t v;

    return field_int(size, name, &v) && v > 0 && v < 65536 ? (unsigned short)v
                                                           : 0;
}

struct start {
    struct words argv, env;
    char *cwd;
    json_t *config;
    struct proc_spec spec;
};

static void start_release(struct start *s)
{
    words_release(&s->argv);
    words_release(&s->env);
    free(s->cwd);
    json_decref(s->config);
}

static int start_parse(struct start *s, struct req *r, struct box *b,
                       const json_t *in, struct err *e)
{
    json_t *process = field(in, "process"), *pty = field(in, "pty");
    json_t *args = field(process, "args"), *envs = field(process, "envs");
    const char *cmd = field_str(process, "cmd");
    struct proc_spec *p = &s->spec;
    int x;

    if (!*cmd)
        return err_set(e, EINVAL, "cmd is missing");
    x = rpc_user(r, &p->as_root, e);
    if (!x)
        x = argv_build(&s->argv, cmd, args, e);
    if (!x)
        x = env_build(&s->env, b, p->as_root, envs, e);
    if (!x)
        x = cwd_check(b, p->as_root, field_str(process, "cwd"), &s->cwd, e);
    if (x)
        return x;
    s->config = config_shown(cmd, args, envs, field_str(process, "cwd"));
    p->argv = s->argv.v;
    p->env = s->env.v;
    p->cwd = s->cwd;
    p->config = s->config;
    p->tag = field_str(in, "tag");
    p->pty = pty != NULL;
    p->has_stdin = field_bool(in, "stdin", true);
    p->cols = size_field(field(pty, "size"), "cols");
    p->rows = size_field(field(pty, "size"), "rows");
    return 0;
}

/* ---- streams of events ---- */

static int event_start(struct stream *s, pid_t pid)
{
    AUTO_BUF struct buf b = {0};

    buf_addf(&b, "{\"event\":{\"start\":{\"pid\":%d}}}", (int)pid);
    return stream_send(s, b.p, b.n);
}

/* sends what comes until the end; the client's going ends it as well */
static void follow(struct stream *s, struct sub *sub)
{
    static const char keepalive[] = "{\"event\":{\"keepalive\":{}}}";
    int64_t heard = mono_ms(), until, now;
    struct chunk *c;
    int r;

    for (;;) {
        now = mono_ms();
        until = now + GONE_CHECK_MS;
        if (until > heard + s->keepalive_ms)
            until = heard + s->keepalive_ms;
        if (s->deadline && until > s->deadline)
            until = s->deadline;
        r = sub_next(sub, until, &c);
        now = mono_ms();
        if (r > 0) {
            r = reply_write(s->r, c->p, c->n);
            chunk_put(c);
            heard = now;
        } else if (r == 0 && s->deadline && now >= s->deadline) {
            r = -ETIMEDOUT;
        } else if (r == 0 && now >= heard + s->keepalive_ms) {
            r = stream_send(s, keepalive, sizeof(keepalive) - 1);
            heard = now;
        } else if (r == 0 && req_gone(s->r)) {
            r = -EPIPE;
        }
        if (r < 0)
            break;
    }
    if (r == -ENODATA)
        stream_end(s, NULL, "%s", "");
    else if (r == -ETIMEDOUT)
        stream_end(s, "deadline_exceeded", "context deadline exceeded");
    else if (r == -ESHUTDOWN)
        stream_end(s, "unavailable",
                   "the sandbox was killed or reached its end of life");
    else
        reply_end(s->r);
}

static void call_start(struct req *r, struct box *b)
{
    struct start st = {0};
    struct stream s;
    struct sub *sub = NULL;
    struct err e = {0};
    json_t *in = stream_open(&s, r);
    int x;

    if (!in)
        return;
    x = start_parse(&st, r, b, in, &e);
    if (x) {
        stream_end(&s, x == -EACCES ? "unauthenticated" : rpc_code(x), "%s",
                   e.text);
    } else {
        st.spec.life_ms = s.timeout_ms;
        x = proc_start(b, &st.spec, &sub, &e);
        if (x)
            stream_end(&s, x == -ENOENT ? "invalid_argument" : rpc_code(x),
                       "%s", e.text);
    }
    start_release(&st);
    json_decref(in);
    if (!sub)
        return;
    s.deadline = 0; /* it is the process's now */
    if (event_start(&s, sub_pid(sub)))
        reply_end(r);
    else
        follow(&s, sub);
    sub_close(sub);
}

/* ---- the others ---- */

static bool selector(const json_t *in, struct proc_sel *sel)
{
    json_t *p = field(in, "process");

    sel->tag = field_str(p, "tag");
    return field_int(p, "pid", &sel->pid) && sel->pid >= 0 &&
           (sel->pid || *sel->tag);
}

static void selector_words(const struct proc_sel *sel, char out[160])
{
    if (sel->pid)
        snprintf(out, 160, "process with pid %lld not found",
                 (long long)sel->pid);
    else
        snprintf(out, 160, "process with tag %.100s not found", sel->tag);
}

static void call_connect(struct req *r, struct box *b)
{
    struct stream s;
    struct sub *sub = NULL;
    struct proc_sel sel;
    char words[160];
    json_t *in = stream_open(&s, r);

    if (!in)
        return;
    if (!selector(in, &sel)) {
        stream_end(&s, "invalid_argument", "no process selected");
    } else if (proc_connect(box_id(b), &sel, &sub)) {
        selector_words(&sel, words);
        stream_end(&s, "not_found", "%s", words);
    } else if (event_start(&s, sub_pid(sub))) {
        reply_end(r);
    } else {
        follow(&s, sub);
    }
    if (sub)
        sub_close(sub);
    json_decref(in);
}

static void call_list(struct req *r, struct box *b)
{
    json_t *in = rpc_request(r), *list, *out;

    if (!in)
        return;
    json_decref(in);
    list = proc_list(box_id(b));
    out = json_object();
    if (json_array_size(list))
        json_object_set(out, "processes", list);
    json_decref(list);
    rpc_reply(r, out);
}

/* the answer of a call on one process; words for an error of its input */
static void answer(struct req *r, const struct proc_sel *sel, int e,
                   const char *what)
{
    char words[160];

    if (!e) {
        rpc_reply(r, json_object());
    } else if (e == -ESRCH) {
        selector_words(sel, words);
        rpc_fail(r, "not_found", "%s", words);
    } else if (e == -ETIMEDOUT) {
        rpc_fail(r, "deadline_exceeded", "context deadline exceeded");
    } else if (e == -ESHUTDOWN) {
        rpc_fail(r, "unavailable", "the sandbox is being killed");
    } else if (e == -EBADF) {
        rpc_fail(r, "internal", "error %s: stdin not enabled or closed", what);
    } else {
        rpc_fail(r, "internal", "error %s: %s", what, strerror(-e));
    }
}

static int input_write(struct box *b, const struct proc_sel *sel,
                       const json_t *input, int64_t until)
{
    json_t *pty = field(input, "pty");
    const char *text = json_string_value(pty ? pty : field(input, "stdin"));
    AUTO_BUF struct buf bytes = {0};

    if (!text)
        return input ? 0 : -EINVAL;
    if (base64_decode(&bytes, text, strlen(text)))
        return -EINVAL;
    return proc_write(b, sel, pty != NULL, bytes.p, bytes.n, until);
}

static void call_send_input(struct req *r, struct box *b)
{
    json_t *in = rpc_request(r);
    struct proc_sel sel;
    int e;

    if (!in)
        return;
    if (!selector(in, &sel)) {
        rpc_fail(r, "invalid_argument", "no process selected");
    } else {
        e = input_write(b, &sel, field(in, "input"), rpc_deadline(r, NULL));
        if (e == -EINVAL)
            rpc_fail(r, "invalid_argument", "invalid input");
        else
            answer(r, &sel, e,
                   field(field(in, "input"), "pty") ? "writing to tty"
                                                    : "writing to stdin");
    }
    json_decref(in);
}

static void call_close_stdin(struct req *r, struct box *b)
{
    json_t *in = rpc_request(r);
    struct proc_sel sel;

    if (!in)
        return;
    if (!selector(in, &sel))
        rpc_fail(r, "invalid_argument", "no process selected");
    else
        answer(r, &sel, proc_close_stdin(box_id(b), &sel), "closing stdin");
    json_decref(in);
}

static int signal_number(const json_t *in)
{
    json_t *v = field(in, "signal");
    const char *s = json_string_value(v);

    if (s && !strcmp(s, "SIGNAL_SIGKILL"))
        return SIGKILL;
    if (s && !strcmp(s, "SIGNAL_SIGTERM"))
        return SIGTERM;
    if (json_is_integer(v) &&
        (json_integer_value(v) == SIGKILL || json_integer_value(v) == SIGTERM))
        return (int)json_integer_value(v);
    return -1;
}

static void call_send_signal(struct req *r, struct box *b)
{
    json_t *in = rpc_request(r);
    struct proc_sel sel;
    int sig;

    if (!in)
        return;
    sig = signal_number(in);
    if (!selector(in, &sel))
        rpc_fail(r, "invalid_argument", "no process selected");
    else if (sig < 0)
        rpc_fail(r, "unimplemented", "invalid signal");
    else
        answer(r, &sel, proc_signal(b, &sel, sig), "sending signal");
    json_decref(in);
}

static void call_update(struct req *r, struct box *b)
{
    json_t *in = rpc_request(r), *size;
    struct proc_sel sel;

    if (!in)
        return;
    size = field(field(in, "pty"), "size");
    if (!selector(in, &sel))
        rpc_fail(r, "invalid_argument", "no process selected");
    else if (!field(in, "pty"))
        rpc_reply(r, json_object());
    else
        answer(r, &sel,
               proc_resize(box_id(b), &sel, size_field(size, "cols"),
                           size_field(size, "rows")),
               "resizing tty");
    json_decref(in);
}

/* ---- StreamInput ---- */

struct input_stream {
    struct box *b;
    struct proc_sel sel;
    char *tag; /* owned; sel.tag is it */
    bool started;
};

static int input_message(struct input_stream *is, const struct buf *json)
{
    json_t *j = json_loadb(buf_str(json), json->n, 0, NULL);
    json_t *start = field(j, "start"), *data = field(j, "data");
    int e = 0;

    if (!json_is_object(j)) {
        e = -EINVAL;
    } else if (start) {
        e = selector(start, &is->sel) ? 0 : -EINVAL;
        free(is->tag);
        is->sel.tag = is->tag = xstrdup(is->sel.tag);
        is->started = !e;
    } else if (data) {
        e = is->started ? input_write(is->b, &is->sel, field(data, "input"), 0)
                        : -EINVAL;
    }
    json_decref(j);
    return e;
}

/* messages as they come, from the body read so far and then the socket */
static int input_pump(struct req *r, struct input_stream *is)
{
    AUTO_BUF struct buf b = {0}, json = {0};
    bool whole = r->body.n > 0;
    ssize_t n;
    int flags;

    buf_add(&b, r->body.p, r->body.n);
    for (;;) {
        while ((n = envelope_take(buf_str(&b), b.n, &flags, &json)) > 0) {
            int e = flags & ENVELOPE_END ? 0 : input_message(is, &json);

            if (e)
                return e;
            buf_drop(&b, (size_t)n);
        }
        if (n < 0)
            return -EINVAL;
        if (whole || !r->read_body)
            return b.n ? -EINVAL : 0;
        buf_reserve(&b, 65536);
        n = r->read_body(r, b.p + b.n, 65536);
        if (n < 0)
            return -EPIPE;
        if (n == 0)
            return b.n ? -EINVAL : 0;
        b.n += (size_t)n;
    }
}

static void call_stream_input(struct req *r, struct box *b)
{
    struct input_stream is = {.b = b, .sel = {0, ""}};
    struct stream s = {.r = r};
    char words[160];
    int e;

    if (!rpc_type_is(r, "application/connect+json")) {
        reply_header(r, "Accept-Post", "application/connect+json");
        reply(r, 415, "text/plain", "", 0);
        return;
    }
    e = input_pump(r, &is);
    selector_words(&is.sel, words);
    free(is.tag);
    if (reply_begin(r, 200, "application/connect+json", -1)) {
        reply_end(r);
        return;
    }
    if (!e && !stream_send(&s, "{}", 2))
        stream_end(&s, NULL, "%s", "");
    else if (e == -ESRCH)
        stream_end(&s, "not_found", "%s", words);
    else if (e == -EBADF)
        stream_end(&s, "internal",
                   "error writing to stdin: stdin not enabled "
                   "or closed");
    else
        stream_end(&s, rpc_code(e), "error writing to stdin: %s",
                   strerror(-e));
}

/* ---- the table ---- */

void process_handle(struct req *r, struct box *b, const char *call)
{
    static const struct {
        const char *name;
        void (*fn)(struct req *r, struct box *b);
    } calls[] = {
        {"Start", call_start},
        {"Connect", call_connect},
        {"List", call_list},
        {"SendInput", call_send_input},
        {"StreamInput", call_stream_input},
        {"SendSignal", call_send_signal},
        {"CloseStdin", call_close_stdin},
        {"Update", call_update},
    };

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        if (strcmp(calls[i].name, call))
            continue;
        if (strcmp(r->method, "POST")) {
            reply_header(r, "Allow", "POST");
            reply(r, 405, "text/plain", "", 0);
        } else {
            calls[i].fn(r, b);
        }
        return;
    }
    reply(r, 404, "text/plain", "404 page not found\n", 19);
}
