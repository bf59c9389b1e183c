#include "e2b/stream.h"

#include "base/text.h"
#include "e2b/fail.h"
#include "e2b/json.h"

/* ---- the request ---- */

static json_t *args_of(const struct e2b_run *r)
{
    json_t *args = json_array();

    if (!r->argv || !r->argv[0]) {
        json_array_append_new(args, json_string("-l"));
        json_array_append_new(args, json_string("-c"));
        if (json_array_append_new(args, json_string(r->cmd ? r->cmd : "")))
            goto bad;
        return args;
    }
    for (const char *const *p = r->argv + 1; *p; p++)
        if (json_array_append_new(args, json_string(*p)))
            goto bad;
    return args;
bad:
    json_decref(args);
    return NULL;
}

static json_t *envs_of(const struct e2b_run *r)
{
    json_t *o = json_object();

    for (size_t i = 0; i < r->n_env; i++)
        if (json_object_set_new(o, r->env[i].name,
                                json_string(r->env[i].value))) {
            json_decref(o);
            return NULL;
        }
    return o;
}

static int start_text(const struct e2b_run *r, struct buf *out, struct err *e)
{
    const char *cmd = r->argv && r->argv[0] ? r->argv[0] : "/bin/bash";
    json_t *args = args_of(r), *envs = envs_of(r), *j = NULL;

    if (args && envs)
        j = json_pack("{s:{s:s,s:O,s:O,s:s*},s:b,s:s*}", "process", "cmd", cmd,
                      "args", args, "envs", envs, "cwd", r->cwd, "stdin",
                      r->stdin_data != NULL, "tag", r->tag);
    json_decref(args);
    json_decref(envs);
    return json_encode(j, out, e);
}

int stream_init(struct stream *s, const struct e2b_target *t,
                const struct e2b_run *r, struct err *e)
{
    struct buf text = {0};
    int rc;

    memset(s, 0, sizeof(*s));
    rc = target_url(t, "/process.Process/Start", &s->url, e);
    if (!rc)
        rc = start_text(r, &text, e);
    if (!rc) {
        envelope_put(&s->request, 0, text.p, text.n);
        s->headers = target_headers(t, r->user);
        headers_add(&s->headers, "Content-Type: application/connect+json");
        headers_add(&s->headers, "Connect-Protocol-Version: 1");
        headers_add(&s->headers, "Keepalive-Ping-Interval: %d", STREAM_PING_S);
    }
    buf_wipe(&text); /* the environment may hold keys */
    return rc;
}

void stream_free(struct stream *s)
{
    if (s->easy)
        curl_easy_cleanup(s->easy);
    free(s->url);
    headers_free(s->headers);
    buf_wipe(&s->request);
    buf_free(&s->error_body);
    envelopes_free(&s->in);
    memset(s, 0, sizeof(*s));
}

/* ---- what comes ---- */

static void stream_fail(struct stream *s, int code)
{
    if (s->failed || s->ended)
        return;
    s->failed = true;
    s->code = code;
}

static void on_end_event(struct stream *s, const json_t *end)
{
    int64_t code = json_int(end, "exitCode", 0);

    s->ended = true;
    s->exit_code = code >= 0 && code < 256 ? (int)code : 255;
    if (code < 0)
        s->exit_code = fail_signal(json_str(end, "status"));
}

static void on_data_event(struct stream *s, const json_t *data)
{
    static const struct {
        const char *name;
        int fd;
    } kinds[] = {{"stdout", 1}, {"stderr", 2}, {"pty", 1}};
    AUTO_BUF struct buf raw = {0};

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const char *text = json_str(data, kinds[i].name);

        if (!text)
            continue;
        buf_clear(&raw);
        if (base64_decode(&raw, text, strlen(text))) {
            stream_fail(
                s, err_set(&s->why, EPROTO, "the stream has broken base64"));
            return;
        }
        if (raw.n && !s->on_data(s->arg, kinds[i].fd, raw.p, raw.n))
            s->paused = true;
    }
}

static void on_event(struct stream *s, const json_t *event)
{
    const json_t *v;

    if ((v = json_object_get(event, "data"))) {
        on_data_event(s, v);
    } else if ((v = json_object_get(event, "start"))) {
        s->running = true;
        s->pid = (int)json_int(v, "pid", 0);
        s->on_step(s->arg);
    } else if ((v = json_object_get(event, "end"))) {
        on_end_event(s, v);
    }
}

/* the last envelope: {} or {"error":{...}} */
static void on_finish(struct stream *s, const json_t *j)
{
    const json_t *error = json_object_get(j, "error");
    AUTO_BUF struct buf words = {0};
    const char *msg = json_str(error, "message");
    int code = fail_code(json_str(error, "code"));

    s->finished = true;
    s->on_step(s->arg);
    if (!error)
        return;
    if (msg)
        text_printable(&words, msg, strnlen(msg, 300), 0);
    stream_fail(s, err_set(&s->why, code ? code : EIO, "%s",
                           words.n ? words.p : "the stream ended in error"));
}

static void drain(struct stream *s)
{
    const char *p;
    size_t n;
    int flags, rc = 0;

    while (!s->paused && !s->finished && !s->failed &&
           (rc = envelopes_next(&s->in, &flags, &p, &n)) > 0) {
        json_t *j = json_read(p, n);

        if (!json_is_object(j))
            stream_fail(
                s, err_set(&s->why, EPROTO, "the stream has what is no JSON"));
        else if (flags & ENVELOPE_END)
            on_finish(s, j);
        else
            on_event(s, json_object_get(j, "event"));
        json_decref(j);
    }
    if (rc < 0)
        stream_fail(
            s, err_set(&s->why, EPROTO, "the stream has no Connect framing"));
}

static size_t on_body(char *p, size_t one, size_t n, void *arg)
{
    struct stream *s = arg;

    (void)one;
    s->last_ms = mono_ms();
    if (s->paused) {
        s->curl_paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (!s->status)
        curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &s->status);
    if (s->status != 200) {
        if (s->error_body.n < 65536)
            buf_add(&s->error_body, p, n);
        return n;
    }
    envelopes_push(&s->in, p, n);
    drain(s);
    return s->failed ? 0 : n;
}

void stream_begin(struct stream *s, struct e2b *x)
{
    struct http_req r = {.method = "POST",
                         .url = s->url,
                         .headers = s->headers,
                         .body = s->request.p,
                         .body_n = s->request.n,
                         .once = true};

    s->easy = curl_easy_init();
    if (!s->easy)
        abort();
    http_setup(x, s->easy, &r);
    /* on a connection of its own: a paused stream stops no other */
    curl_easy_setopt(s->easy, CURLOPT_HTTP_VERSION,
                     (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(s->easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(s->easy, CURLOPT_BUFFERSIZE, 8192L);
    curl_easy_setopt(s->easy, CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
    curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(s->easy, CURLOPT_ERRORBUFFER, s->detail);
    curl_easy_setopt(s->easy, CURLOPT_PRIVATE, &s->transfer);
    s->last_ms = mono_ms();
}

void stream_resume(struct stream *s)
{
    if (!s->paused)
        return;
    s->paused = false;
    s->last_ms = mono_ms();
    drain(s);
    if (s->paused || !s->curl_paused)
        return;
    s->curl_paused = false;
    curl_easy_pause(s->easy, CURLPAUSE_CONT);
}

/* ---- the end ---- */

void stream_done(struct stream *s, CURLcode rc)
{
    if (!s->status)
        curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &s->status);
    if (s->failed)
        return;
    if (s->status && s->status != 200)
        stream_fail(s, fail_answer(s->status, &s->error_body, &s->why));
    else if (rc)
        stream_fail(s, http_failure(rc, s->url, s->detail, &s->why));
    else if (!s->ended)
        stream_fail(s, err_set(&s->why, s->finished ? EPROTO : EHOSTUNREACH,
                               "the stream ended before the command did"));
}
