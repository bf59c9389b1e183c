/*
 * What the client promises, checked through the proxy that breaks things:
 *
 *   faults DIR PROXY_URL SEED ROUNDS
 *
 * DIR is the data directory of a running courier-sandboxd; the truth is asked
 * of it directly, over its Unix socket. Each promise is one line "ok" or
 * "bad"; the last line is "N passed, N failed".
 */
#include "base/text.h"
#include "e2b/e2b.h"

#include <curl/curl.h>
#include <jansson.h>
#include <semaphore.h>
#include <unistd.h>

static struct e2b *direct, *broken;
static struct e2b_target truth, t;
static const char *proxy;
static int passed, failed, rounds;

static void promise(bool kept, const char *fmt, ...) PRINTF(2, 3);
static void promise(bool kept, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    printf(kept ? "ok   " : "bad  ");
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
    fflush(stdout);
    kept ? passed++ : failed++;
}

static size_t ignore(char *p, size_t one, size_t n, void *arg)
{
    (void)p;
    (void)arg;
    return one * n;
}

static void faults(double rate, const char *kinds, int seed)
{
    AUTO_FREE char *url = xasprintf("%s/__proxy/set?rate=%g&kinds=%s&seed=%d",
                                    proxy, rate, kinds, seed);
    CURL *h = curl_easy_init();

    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, ignore);
    if (curl_easy_perform(h))
        printf("the proxy doesn't answer\n");
    curl_easy_cleanup(h);
}

#define ALL "delay,dribble,cut,early,late,429,500,502,502late,504"

/* what was read is what is there, or there was an error */
static void reading(int seed)
{
    AUTO_BUF struct buf want = {0};
    int right = 0, errors = 0, wrong = 0;
    struct err e;

    while (want.n < 300000)
        buf_addf(&want, "%zu\n", want.n * 7919);
    if (e2b_write(&truth, "r", want.p, want.n, NULL, &e)) {
        promise(false, "the file to read is there (%s)", e.text);
        return;
    }
    faults(0.5, ALL, seed);
    for (int i = 0; i < rounds; i++) {
        AUTO_BUF struct buf b = {0};
        int64_t off = i % 3 ? i * 1000 : 0, len = i % 3 ? 5000 : -1;
        size_t n = len < 0 ? want.n : 5000;

        if (e2b_read(&t, "r", off, len, &b, NULL, &e))
            b.n == 0 ? errors++ : wrong++;
        else if (b.n == n && !memcmp(b.p, want.p + off, n))
            right++;
        else
            wrong++;
    }
    promise(!wrong, "no wrong byte is read (%d right, %d errors)", right,
            errors);
    promise(right > errors, "most reads get through");
}

static void writing(int seed)
{
    int right = 0, errors = 0, wrong = 0;
    struct err e;

    faults(0.5, ALL, seed);
    for (int i = 0; i < rounds; i++) {
        AUTO_BUF struct buf want = {0}, b = {0};

        while (want.n < (size_t)i * 4000)
            buf_addf(&want, "%d %zu\n", i, want.n);
        if (e2b_write(&t, "w", buf_str(&want), want.n, NULL, &e)) {
            errors++;
            continue;
        }
        if (!e2b_read(&truth, "w", 0, -1, &b, NULL, &e) && b.n == want.n &&
            (!b.n || !memcmp(b.p, want.p, b.n)))
            right++;
        else
            wrong++;
    }
    promise(!wrong,
            "what was said to be written is written (%d right, "
            "%d errors)",
            right, errors);
    promise(right > errors, "most writes get through");
}

static int64_t lines_of(const char *path)
{
    AUTO_BUF struct buf b = {0};
    int64_t n = 0;

    if (e2b_read(&truth, path, 0, -1, &b, NULL, NULL))
        return 0;
    for (size_t i = 0; i < b.n; i++)
        n += b.p[i] == '\n';
    return n;
}

static void running(int seed)
{
    int right = 0, errors = 0, wrong = 0, twice = 0, lost = 0;
    struct err e;

    faults(0.5, ALL, seed);
    for (int i = 0; i < rounds; i++) {
        AUTO_FREE char *file = xasprintf("/home/user/x%d-%d", seed, i);
        AUTO_FREE char *cmd =
            xasprintf("echo once >>%s; seq 1 3000; exit %d", file, i % 5);
        struct e2b_run c = {.cmd = cmd, .limit_ms = 20000};
        struct e2b_result r;
        int rc = e2b_exec(&t, &c, &r, &e);
        bool whole = r.out.n == 13893 && r.exit_code == i % 5;

        if (rc)
            errors++;
        else
            whole ? right++ : wrong++;
        e2b_result_clear(&r);
        if (rc)
            sleep_ms(150); /* it may still be on its way */
        twice += lines_of(file) > 1;
        lost += !rc && lines_of(file) != 1;
    }
    promise(!wrong && !lost,
            "a command that is said to have run has run, "
            "its output is whole (%d right, %d errors)",
            right, errors);
    promise(!twice, "no command ran twice");
    promise(right > 0, "commands get through");
}

/* ---- streams ---- */

struct seen {
    struct buf out;
    sem_t end;
    int code, exit_code;
};

static bool on_data(void *arg, int fd, const char *p, size_t n)
{
    struct seen *s = arg;

    (void)fd;
    buf_add(&s->out, p, n);
    return true;
}

static void on_end(void *arg, int code, int exit_code, const struct err *e)
{
    struct seen *s = arg;

    (void)e;
    s->code = code;
    s->exit_code = exit_code;
    sem_post(&s->end);
}

static void streaming(int seed)
{
    static const struct e2b_stream_ops ops = {on_data, on_end};
    struct e2b_pump *p = e2b_pump_start();
    struct seen *v = xcalloc((size_t)rounds, sizeof(*v));
    struct e2b_run c = {.cmd = "seq 1 20000; exit 3"};
    AUTO_BUF struct buf want = {0};
    int right = 0, errors = 0, wrong = 0;

    for (int i = 1; i <= 20000; i++)
        buf_addf(&want, "%d\n", i);
    faults(0.5, ALL, seed);
    for (int i = 0; i < rounds; i++) {
        sem_init(&v[i].end, 0, 0);
        e2b_stream_start(p, &t, &c, &ops, &v[i]);
        if (i % 10 == 9)
            sleep_ms(100);
    }
    for (int i = 0; i < rounds; i++) {
        bool begins;

        sem_wait(&v[i].end);
        begins = v[i].out.n <= want.n &&
                 !memcmp(buf_str(&v[i].out), want.p, v[i].out.n);
        if (!begins)
            wrong++;
        else if (v[i].code)
            errors++;
        else if (v[i].out.n == want.n && v[i].exit_code == 3)
            right++;
        else
            wrong++;
        buf_free(&v[i].out);
    }
    e2b_pump_stop(p);
    free(v);
    promise(!wrong,
            "a stream is whole or broken, never wrong (%d whole, "
            "%d broken)",
            right, errors);
}

/* ---- the control plane ---- */

static size_t sandboxes_with(const char *mark, char **id)
{
    struct e2b_box *v;
    size_t n;

    *id = NULL;
    if (e2b_list(direct, "mark", mark, &v, &n, NULL))
        return 99;
    if (n)
        *id = xstrdup(v[0].id);
    for (size_t i = 0; i < n; i++)
        e2b_box_clear(&v[i]);
    free(v);
    return n;
}

static void creating(int seed)
{
    int made = 0, unclear = 0, refused = 0, wrong = 0, gone = 0, not_gone = 0;
    struct err e;

    for (int i = 0; i < rounds / 4 + 1; i++) {
        AUTO_FREE char *mark = xasprintf("m%d-%d", seed, i);
        AUTO_FREE char *id = NULL, *id2 = NULL;
        struct e2b_pair m = {"mark", mark};
        struct e2b_create c = {.template_id = "base",
                               .timeout = 60,
                               .metadata = &m,
                               .n_metadata = 1};
        struct e2b_box b;
        size_t n;
        int rc;

        faults(0.6, "delay,cut,early,late,429,500,502,502late,504",
               seed * 100 + i);
        rc = e2b_create(broken, &c, 15000, NULL, &b, &e);
        n = sandboxes_with(mark, &id);
        if (!rc)
            n == 1 && id && !strcmp(b.id, id) ? made++ : wrong++;
        else if (rc == -EINPROGRESS)
            n <= 1 ? unclear++ : wrong++;
        else
            n == 0 ? refused++ : wrong++;
        e2b_box_clear(&b);
        if (!id)
            continue;
        rc = e2b_kill(broken, id, &e);
        n = sandboxes_with(mark, &id2);
        if (!rc)
            n == 0 ? gone++ : wrong++;
        else
            not_gone++;
        if (n)
            e2b_kill(direct, id, NULL);
    }
    promise(!wrong,
            "never a second sandbox, never an unknown one (%d made, "
            "%d unclear, %d refused)",
            made, unclear, refused);
    promise(gone > not_gone, "kills get through (%d, %d not)", gone, not_gone);
}

int main(int argc, char **argv)
{
    AUTO_FREE char *sock = NULL;
    AUTO_BUF struct buf key = {0};
    AUTO_FREE char *path = NULL;
    struct e2b_config c = {0}, p = {0};
    struct e2b_create make = {.template_id = "base", .timeout = 600};
    struct e2b_box box;
    struct err e;
    json_t *j;
    int seed;

    if (argc < 5)
        return 2;
    e2b_init();
    sock = xasprintf("%s/host.sock", argv[1]);
    path = xasprintf("%s/host.json", argv[1]);
    proxy = argv[2];
    seed = (unsigned)strtoul(argv[3], NULL, 10);
    rounds = (int)strtol(argv[4], NULL, 10);
    file_read(path, 65536, &key);
    j = json_loadb(buf_str(&key), key.n, 0, NULL);
    c.unix_socket = sock;
    p.api_url = p.sandbox_url = proxy;
    p.key = json_string_value(json_object_get(j, "key"));
    if (e2b_open(&c, &direct, &e) || e2b_open(&p, &broken, &e) ||
        e2b_create(direct, &make, 20000, NULL, &box, &e)) {
        printf("%s\n0 passed, 1 failed\n", e.text);
        return 1;
    }
    json_decref(j);
    truth = (struct e2b_target){
        .x = direct, .id = box.id, .token = box.token, .domain = box.domain};
    t = truth;
    t.x = broken;
    reading(seed);
    writing(seed + 1);
    running(seed + 2);
    streaming(seed + 3);
    creating(seed + 4);
    e2b_kill(direct, box.id, NULL);
    e2b_box_clear(&box);
    e2b_close(broken);
    e2b_close(direct);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
