#include "e2b/endpoint.h"

#include "base/text.h"

#include <ctype.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { POOL_MAX = 32, CONNECTIONS_PER_SLOT = 4, DEAD_MS = 8000 };

/* the slots with a call under way, so that e2b_cancel can wake theirs */
static pthread_mutex_t running_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *running;
static int stopped; /* atomic: all calls are to end */

/* a stream is a socket: take as many as we may have */
static void more_descriptors(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= r.rlim_max)
        return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

/* certificate authorities of one's own (a cluster, a company's proxy), as
 * OpenSSL and the curl tool take them from the environment */
static const char *ca_file;

void e2b_init(void)
{
    more_descriptors();
    ca_file = getenv("SSL_CERT_FILE");
    if (!ca_file || !*ca_file)
        ca_file = getenv("CURL_CA_BUNDLE");
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        log_msg(LOG_ERR, "libcurl can't be initialised");
        abort();
    }
}

void e2b_exit(void)
{
    curl_global_cleanup();
}

/* ---- cancelling ---- */

bool cancel_wanted(const struct e2b_cancel *c)
{
    return __atomic_load_n(&stopped, __ATOMIC_ACQUIRE) ||
           (c && __atomic_load_n(&c->flag, __ATOMIC_ACQUIRE));
}

void e2b_stop(void)
{
    __atomic_store_n(&stopped, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&running_lock);
    for (struct slot *s = running; s; s = s->run_next)
        curl_multi_wakeup(s->multi);
    pthread_mutex_unlock(&running_lock);
}

void e2b_cancel(struct e2b_cancel *c)
{
    __atomic_store_n(&c->flag, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&running_lock);
    for (struct slot *s = running; s; s = s->run_next)
        if (s->cancel == c)
            curl_multi_wakeup(s->multi);
    pthread_mutex_unlock(&running_lock);
}

/* ---- the pool ---- */

static void slot_open(struct slot *s)
{
    s->multi = curl_multi_init();
    s->easy = curl_easy_init();
    if (!s->multi || !s->easy) {
        log_msg(LOG_ERR, "libcurl has no memory");
        abort();
    }
    curl_multi_setopt(s->multi, CURLMOPT_MAXCONNECTS,
                      (long)CONNECTIONS_PER_SLOT);
}

static void slot_close(struct slot *s)
{
    curl_easy_cleanup(s->easy);
    curl_multi_cleanup(s->multi);
}

void slot_renew(struct slot *s)
{
    pthread_mutex_lock(&running_lock);
    slot_close(s);
    slot_open(s);
    pthread_mutex_unlock(&running_lock);
}

struct slot *slot_take(struct e2b *x, struct e2b_cancel *cancel)
{
    struct slot *s;

    pthread_mutex_lock(&x->lock);
    s = x->idle;
    if (s) {
        x->idle = s->next;
        x->n_idle--;
    }
    pthread_mutex_unlock(&x->lock);
    if (!s) {
        s = xcalloc(1, sizeof(*s));
        slot_open(s);
    }
    s->cancel = cancel;
    pthread_mutex_lock(&running_lock);
    s->run_next = running;
    s->run_link = &running;
    if (running)
        running->run_link = &s->run_next;
    running = s;
    pthread_mutex_unlock(&running_lock);
    return s;
}

void slot_give(struct e2b *x, struct slot *s, bool reuse)
{
    pthread_mutex_lock(&running_lock);
    *s->run_link = s->run_next;
    if (s->run_next)
        s->run_next->run_link = s->run_link;
    pthread_mutex_unlock(&running_lock);
    s->cancel = NULL;
    curl_easy_reset(s->easy);
    pthread_mutex_lock(&x->lock);
    if (reuse && x->n_idle < POOL_MAX) {
        s->next = x->idle;
        x->idle = s;
        x->n_idle++;
        s = NULL;
    }
    pthread_mutex_unlock(&x->lock);
    if (s) {
        slot_close(s);
        free(s);
    }
}

static void share_lock(CURL *h, curl_lock_data data, curl_lock_access access,
                       void *arg)
{
    struct e2b *x = arg;

    (void)h;
    (void)access;
    pthread_mutex_lock(&x->share_lock[data]);
}

static void share_unlock(CURL *h, curl_lock_data data, void *arg)
{
    struct e2b *x = arg;

    (void)h;
    pthread_mutex_unlock(&x->share_lock[data]);
}

static void share_open(struct e2b *x)
{
    for (size_t i = 0; i < ARRAY_LEN(x->share_lock); i++)
        pthread_mutex_init(&x->share_lock[i], NULL);
    x->share = curl_share_init();
    curl_share_setopt(x->share, CURLSHOPT_USERDATA, x);
    curl_share_setopt(x->share, CURLSHOPT_LOCKFUNC, share_lock);
    curl_share_setopt(x->share, CURLSHOPT_UNLOCKFUNC, share_unlock);
    curl_share_setopt(x->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
    curl_share_setopt(x->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
}

/* ---- opening ---- */

/* one header value's worth of visible ASCII */
static bool visible(const char *s, size_t max)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~')
            return false;
    return n > 0 && n <= max;
}

/* the key as a header in a page that is neither swapped nor dumped */
static int key_store(struct e2b *x, const char *key, struct err *e)
{
    static const char name[] = "X-API-KEY: ";
    size_t n = strlen(key);
    long page = sysconf(_SC_PAGESIZE);
    char *line;
    void *p;

    if (!visible(key, 1024))
        return err_set(e, EINVAL,
                       "the API key is empty or has characters "
                       "that no key has");
    p = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(e, errno, "no memory for the API key");
    if (mlock(p, (size_t)page))
        log_msg(LOG_DEBUG, "the API key's page can't be locked");
    madvise(p, (size_t)page, MADV_DONTDUMP);
    x->key_page = p;
    x->key_page_size = (size_t)page;
    x->key_header = p;
    line = (char *)p + sizeof(*x->key_header);
    memcpy(line, name, sizeof(name) - 1);
    memcpy(line + sizeof(name) - 1, key, n + 1);
    x->key_header->data = line;
    x->key_header->next = NULL;
    return 0;
}

static int url_take(const char *url, char **out, struct err *e)
{
    AUTO_BUF struct buf shown = {0};
    CURLU *u = curl_url();
    CURLUcode rc = curl_url_set(u, CURLUPART_URL, url, 0);
    char *scheme = NULL;
    bool http = !rc && !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) &&
                (!strcmp(scheme, "http") || !strcmp(scheme, "https"));
    size_t n = strlen(url);

    curl_free(scheme);
    curl_url_cleanup(u);
    if (!http || !visible(url, 2000) || strpbrk(url, "?#")) {
        text_printable(&shown, url, n < 100 ? n : 100, 0);
        return err_set(e, EINVAL, "'%s' is no http or https URL",
                       buf_str(&shown));
    }
    while (n && url[n - 1] == '/')
        n--;
    *out = xmemdup0(url, n);
    return 0;
}

static bool domain_valid(const char *s)
{
    if (!*s || strlen(s) > 255 || *s == '.' || *s == '-')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr(".-:", *s))
            return false;
    return true;
}

int e2b_open(const struct e2b_config *c, struct e2b **out, struct err *e)
{
    struct e2b *x = xcalloc(1, sizeof(*x));
    const char *api = c->api_url;
    int rc = 0;

    *out = NULL;
    pthread_mutex_init(&x->lock, NULL);
    share_open(x);
    x->unix_socket = xstrdup(c->unix_socket);
    x->domain = xstrdup(c->domain ? c->domain : "e2b.app");
    if (x->unix_socket)
        api = "http://localhost";
    if (!domain_valid(x->domain))
        rc = err_set(e, EINVAL, "the sandbox domain is no host name");
    if (!rc && api)
        rc = url_take(api, &x->api_url, e);
    if (!rc && !api)
        x->api_url = xasprintf("https://api.%s", x->domain);
    if (!rc && c->sandbox_url)
        rc = url_take(c->sandbox_url, &x->sandbox_url, e);
    if (!rc && c->key)
        rc = key_store(x, c->key, e);
    if (rc) {
        e2b_close(x);
        return rc;
    }
    *out = x;
    return 0;
}

void e2b_close(struct e2b *x)
{
    if (!x)
        return;
    while (x->idle) {
        struct slot *s = x->idle;

        x->idle = s->next;
        slot_close(s);
        free(s);
    }
    curl_share_cleanup(x->share);
    for (size_t i = 0; i < ARRAY_LEN(x->share_lock); i++)
        pthread_mutex_destroy(&x->share_lock[i]);
    pthread_mutex_destroy(&x->lock);
    if (x->key_page) {
        explicit_bzero(x->key_page, x->key_page_size);
        munmap(x->key_page, x->key_page_size);
    }
    free(x->api_url);
    free(x->sandbox_url);
    free(x->domain);
    free(x->unix_socket);
    free(x);
}

/* ---- requests ---- */

/*
 * Where packets vanish without a word, the kernel would send them again for a
 * quarter of an hour. It gives up when nothing came back for DEAD_MS: not even
 * a receipt for what was sent, or for the empty probes while an answer is
 * waited for. A server that takes its time gives these receipts.
 */
static int on_socket(void *unused, curl_socket_t fd, curlsocktype type)
{
    unsigned ms = DEAD_MS;

    (void)unused;
    (void)type;
    /* refused by a UNIX socket, which loses nothing */
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    return CURL_SOCKOPT_OK;
}

void easy_prepare(struct e2b *x, CURL *h, const char *url)
{
    bool tls = !strncmp(url, "https:", 6);

    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_USERAGENT, "courier/" COURIER_VERSION);
    curl_easy_setopt(h, CURLOPT_SHARE, x->share);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 2L);
    if (ca_file && *ca_file)
        curl_easy_setopt(h, CURLOPT_CAINFO, ca_file);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, 8000L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPIDLE, 4L);
    curl_easy_setopt(h, CURLOPT_TCP_KEEPINTVL, 2L);
    curl_easy_setopt(h, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(h, CURLOPT_MAXAGE_CONN, 60L);
    curl_easy_setopt(
        h, CURLOPT_HTTP_VERSION,
        (long)(tls ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
    if (x->unix_socket) {
        curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, x->unix_socket);
        curl_easy_setopt(h, CURLOPT_PROXY, "");
    }
}

char *api_url(const struct e2b *x, const char *path)
{
    return xasprintf("%s%s", x->api_url, path);
}

int id_check(const char *id, struct err *e)
{
    size_t n = id ? strlen(id) : 0;

    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)id[i]) && !isdigit((unsigned char)id[i]) &&
            id[i] != '-')
            n = 0;
    if (!n || n > 60)
        return err_set(e, EINVAL, "that is no sandbox id");
    return 0;
}

int target_url(const struct e2b_target *t, const char *path, char **out,
               struct err *e)
{
    const struct e2b *x = t->x;
    const char *domain = t->domain && *t->domain ? t->domain : x->domain;
    int rc = id_check(t->id, e);

    *out = NULL;
    if (rc)
        return rc;
    if (t->token && *t->token && !visible(t->token, 4096))
        return err_set(e, EINVAL, "the sandbox's token is malformed");
    if (x->unix_socket) {
        *out = xasprintf("http://localhost%s", path);
    } else if (x->sandbox_url) {
        *out = xasprintf("%s%s", x->sandbox_url, path);
    } else {
        if (!domain_valid(domain))
            return err_set(e, EINVAL, "the sandbox's domain is no host name");
        *out = xasprintf("https://" ENVD_PORT "-%s.%s%s", t->id, domain, path);
    }
    return 0;
}

void headers_add(struct curl_slist **h, const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    *h = curl_slist_append(*h, buf_str(&b));
    buf_wipe(&b);
}

void headers_free(struct curl_slist *h)
{
    for (struct curl_slist *p = h; p; p = p->next)
        explicit_bzero(p->data, strlen(p->data));
    curl_slist_free_all(h);
}

struct curl_slist *target_headers(const struct e2b_target *t, const char *user)
{
    struct curl_slist *h = NULL;

    headers_add(&h, "E2b-Sandbox-Id: %s", t->id);
    headers_add(&h, "E2b-Sandbox-Port: " ENVD_PORT);
    headers_add(&h, "Accept: application/json");
    headers_add(&h, "Expect:");
    if (t->token && *t->token)
        headers_add(&h, "X-Access-Token: %s", t->token);
    if (user) {
        AUTO_BUF struct buf b = {0};
        AUTO_FREE char *pair = xasprintf("%s:", user);

        base64_encode(&b, pair, strlen(pair));
        headers_add(&h, "Authorization: Basic %s", buf_str(&b));
    }
    return h;
}

void url_escape(struct buf *out, const char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c < 128 && (isalnum(c) || strchr("-_.~", c)))
            buf_addc(out, (char)c);
        else
            buf_addf(out, "%%%02X", c);
    }
}
