/*
 * transport: git's smart HTTP for libgit2, over curl. libgit2's own client
 * knows no time limits and would hang a worker on a silent server. One
 * transfer at a time, driven by the thread that reads.
 */
#include "git/web.h"
#include "git/lib.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REQUEST_MAX ((size_t)32 << 20)
/* bytes taken before the reader wants them */
#define AHEAD ((size_t)1 << 20)

struct transport {
    git_smart_subtransport parent; /* must be first */
    struct lib_remote *ctx;
    char *base; /* the repository's URL after redirects */
};

struct stream {
    git_smart_subtransport_stream parent; /* must be first */
    struct transport *t;
    bool ls, started, done, paused;
    char *url;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    struct buf request, answer;
};

static int fail(struct lib_remote *ctx, int code, const char *words)
{
    ctx->code = code;
    git_error_set_str(GIT_ERROR_HTTP, words);
    return -1;
}

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
    struct stream *s = arg;

    if (s->answer.n >= AHEAD) {
        s->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    buf_add(&s->answer, p, size * n);
    return size * n;
}

static int setup_headers(struct stream *s)
{
    if (s->ls)
        return 0;
    s->headers = curl_slist_append(
        NULL, "Content-Type: application/x-git-upload-pack-request");
    s->headers = curl_slist_append(
        s->headers, "Accept: application/x-git-upload-pack-result");
    s->headers = curl_slist_append(s->headers, "Expect:");
    curl_easy_setopt(s->easy, CURLOPT_HTTPHEADER, s->headers);
    curl_easy_setopt(s->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     (curl_off_t)s->request.n);
    curl_easy_setopt(s->easy, CURLOPT_POSTFIELDS, buf_str(&s->request));
    return 0;
}

static int start(struct stream *s)
{
    struct lib_remote *ctx = s->t->ctx;
    struct err e = {0};

    s->started = true;
    s->easy = web_easy(s->url, 0, &e);
    if (!s->easy)
        return fail(ctx, e.code, e.text);
    /* some servers answer only to what looks like git */
    curl_easy_setopt(s->easy, CURLOPT_USERAGENT,
                     "git/2.0 (courier/" COURIER_VERSION ")");
    curl_easy_setopt(s->easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(s->easy, CURLOPT_WRITEDATA, s);
    if (ctx->auth && ctx->auth->token) {
        if (!web_may_carry_key(s->url))
            return fail(ctx, EACCES, "a key is sent over https only");
        curl_easy_setopt(s->easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        curl_easy_setopt(s->easy, CURLOPT_USERNAME,
                         ctx->auth->user ? ctx->auth->user : "x-access-token");
        curl_easy_setopt(s->easy, CURLOPT_PASSWORD, ctx->auth->token);
    }
    setup_headers(s);
    s->multi = curl_multi_init();
    curl_multi_add_handle(s->multi, s->easy);
    return 0;
}

static int status_err(struct stream *s, long status)
{
    bool key = s->t->ctx->auth && s->t->ctx->auth->token;
    char words[100];

    if (status == 401 || status == 403)
        return fail(s->t->ctx, EACCES,
                    key ? "the remote refused the key"
                        : "the remote wants a key, and there is none");
    if (status == 404)
        return fail(s->t->ctx, ENOENT,
                    key ? "there is no such repository, or the key may not "
                          "see it"
                        : "there is no such repository, or it needs a key");
    snprintf(words, sizeof(words), "the remote answered with status %ld",
             status);
    return fail(s->t->ctx, EIO, words);
}

/* after redirects, the rest of the talk goes to where they led */
static void keep_base(struct stream *s)
{
    static const char tail[] = "/info/refs?service=git-upload-pack";
    char *url = NULL;
    size_t n;

    curl_easy_getinfo(s->easy, CURLINFO_EFFECTIVE_URL, &url);
    n = url ? strlen(url) : 0;
    if (n <= sizeof(tail) - 1 || strcmp(url + n - (sizeof(tail) - 1), tail))
        return;
    free(s->t->base);
    s->t->base = xmemdup0(url, n - (sizeof(tail) - 1));
}

static int finish(struct stream *s, CURLcode c)
{
    struct err e = {0};
    long status = 0;

    s->done = true;
    if (c) {
        web_err(&e, c, s->url);
        return fail(s->t->ctx, e.code, e.text);
    }
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200)
        return status_err(s, status);
    if (s->ls)
        keep_base(s);
    return 0;
}

static int status_now(struct stream *s)
{
    long status = 0;

    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    return status && status != 200 ? status_err(s, status) : 0;
}

/* until there are bytes to hand out, or the end */
static int pull(struct stream *s)
{
    while (!s->answer.n && !s->done) {
        int running = 0, left = 0;
        CURLMsg *m;

        if (s->paused) {
            s->paused = false;
            curl_easy_pause(s->easy, CURLPAUSE_CONT);
        }
        if (curl_multi_perform(s->multi, &running))
            return fail(s->t->ctx, EIO, "curl failed");
        m = curl_multi_info_read(s->multi, &left);
        if (m && m->msg == CURLMSG_DONE) {
            int r = finish(s, m->data.result);

            if (r)
                return r;
        } else if (!s->answer.n) {
            curl_multi_poll(s->multi, NULL, 0, 1000, NULL);
        }
    }
    return 0;
}

static int stream_read(git_smart_subtransport_stream *gs, char *p, size_t n,
                       size_t *got)
{
    struct stream *s = (struct stream *)gs;
    int r = s->started ? 0 : start(s);

    *got = 0;
    if (!r)
        r = pull(s);
    if (!r && s->answer.n)
        r = status_now(s); /* an error's page is not the pack */
    if (r)
        return r;
    *got = n < s->answer.n ? n : s->answer.n;
    if (*got)
        memcpy(p, s->answer.p, *got);
    buf_drop(&s->answer, *got);
    return 0;
}

static int stream_write(git_smart_subtransport_stream *gs, const char *p,
                        size_t n)
{
    struct stream *s = (struct stream *)gs;

    if (s->request.n + n > REQUEST_MAX)
        return fail(s->t->ctx, EFBIG, "the request is too large");
    buf_add(&s->request, p, n);
    return 0;
}

static void stream_free(git_smart_subtransport_stream *gs)
{
    struct stream *s = (struct stream *)gs;

    if (s->multi && s->easy)
        curl_multi_remove_handle(s->multi, s->easy);
    curl_easy_cleanup(s->easy);
    curl_multi_cleanup(s->multi);
    curl_slist_free_all(s->headers);
    buf_free(&s->request);
    buf_free(&s->answer);
    free(s->url);
    free(s);
}

static int action(git_smart_subtransport_stream **out,
                  git_smart_subtransport *gt, const char *url,
                  git_smart_service_t service)
{
    struct transport *t = (struct transport *)gt;
    struct stream *s;

    if (service != GIT_SERVICE_UPLOADPACK_LS &&
        service != GIT_SERVICE_UPLOADPACK)
        return fail(t->ctx, ENOTSUP, "only fetching is done here");
    if (!t->base) {
        size_t n = strlen(url);

        while (n && url[n - 1] == '/')
            n--;
        t->base = xmemdup0(url, n);
    }
    s = xcalloc(1, sizeof(*s));
    s->parent.subtransport = gt;
    s->parent.read = stream_read;
    s->parent.write = stream_write;
    s->parent.free = stream_free;
    s->t = t;
    s->ls = service == GIT_SERVICE_UPLOADPACK_LS;
    s->url = xasprintf("%s/%s", t->base,
                       s->ls ? "info/refs?service=git-upload-pack"
                             : "git-upload-pack");
    *out = &s->parent;
    return 0;
}

static int transport_close(git_smart_subtransport *gt)
{
    (void)gt;
    return 0;
}

static void transport_free(git_smart_subtransport *gt)
{
    struct transport *t = (struct transport *)gt;

    free(t->base);
    free(t);
}

static int make(git_smart_subtransport **out, git_transport *owner, void *arg)
{
    struct transport *t = xcalloc(1, sizeof(*t));

    (void)owner;
    t->parent.action = action;
    t->parent.close = transport_close;
    t->parent.free = transport_free;
    t->ctx = arg;
    *out = &t->parent;
    return 0;
}

static int make_http(git_transport **out, git_remote *owner, void *ctx)
{
    git_smart_subtransport_definition d = {make, 1, ctx};

    return git_transport_smart(out, owner, &d);
}

static int on_progress(const git_indexer_progress *p, void *arg)
{
    struct lib_remote *ctx = arg;

    if ((int64_t)p->received_bytes > PACK_BYTES_MAX)
        return fail(ctx, EFBIG, "the repository is larger than we take");
    return 0;
}

/* libgit2 can't tell an agent that is not there from a lost network */
static bool agent_answers(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;
    bool ok;

    if (!path || !*path || strlen(path) >= sizeof(a.sun_path))
        return false;
    memcpy(a.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ok = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* ssh: a key of the agent or nothing; host keys as in known_hosts */
static int on_credential(git_credential **out, const char *url,
                         const char *user, unsigned int allowed, void *arg)
{
    struct lib_remote *ctx = arg;

    (void)url;
    if (allowed & GIT_CREDENTIAL_USERNAME)
        return git_credential_username_new(out, user ? user : "git");
    if (!(allowed & GIT_CREDENTIAL_SSH_KEY) || ctx->agent_tried ||
        !agent_answers(getenv("SSH_AUTH_SOCK")))
        return fail(ctx, EACCES,
                    "the ssh agent of the daemon (SSH_AUTH_SOCK when it was "
                    "started) has no key that the server takes");
    ctx->agent_tried = true;
    return git_credential_ssh_key_from_agent(out, user ? user : "git");
}

void lib_remote_callbacks(struct lib_remote *ctx, git_remote_callbacks *cb)
{
    git_remote_init_callbacks(cb, GIT_REMOTE_CALLBACKS_VERSION);
    cb->payload = ctx;
    cb->transfer_progress = on_progress;
    if (!strncasecmp(ctx->url, "http", 4))
        cb->transport = make_http;
    else
        cb->credentials = on_credential;
}
