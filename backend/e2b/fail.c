#include "e2b/fail.h"

#include "base/text.h"
#include "e2b/json.h"

#include <ctype.h>

int fail_status(long status)
{
    switch (status) {
    case 401:
    case 403:
        return EACCES;
    case 404:
    case 410:
        return ENOENT;
    case 408:
    case 504:
        return ETIMEDOUT;
    case 409:
        return EBUSY;
    case 429:
        return EAGAIN;
    case 501:
        return ENOSYS;
    case 502:
    case 503:
        return EHOSTDOWN;
    case 507:
        return ENOSPC;
    }
    if (status >= 400 && status < 500)
        return EINVAL;
    if (status >= 500 && status < 600)
        return EIO;
    return EPROTO;
}

int fail_code(const char *word)
{
    static const struct {
        const char *word;
        int code;
    } table[] = {
        {"canceled", EIO}, /* by the server: ECANCELED is ours */
        {"unknown", EIO},
        {"invalid_argument", EINVAL},
        {"deadline_exceeded", ETIMEDOUT},
        {"not_found", ENOENT},
        {"already_exists", EEXIST},
        {"permission_denied", EACCES},
        {"resource_exhausted", EAGAIN},
        {"failed_precondition", EINVAL},
        {"aborted", EBUSY},
        {"out_of_range", EINVAL},
        {"unimplemented", ENOSYS},
        {"internal", EIO},
        {"unavailable", EHOSTDOWN},
        {"data_loss", EIO},
        {"unauthenticated", EACCES},
    };

    for (size_t i = 0; word && i < ARRAY_LEN(table); i++)
        if (!strcmp(word, table[i].word))
            return table[i].code;
    return 0;
}

int fail_signal(const char *status)
{
    static const struct {
        const char *word;
        int sig;
    } table[] = {
        {"hangup", 1},
        {"interrupt", 2},
        {"quit", 3},
        {"illegal instruction", 4},
        {"trace/breakpoint trap", 5},
        {"aborted", 6},
        {"bus error", 7},
        {"floating point exception", 8},
        {"killed", 9},
        {"user defined signal 1", 10},
        {"segmentation fault", 11},
        {"user defined signal 2", 12},
        {"broken pipe", 13},
        {"alarm clock", 14},
        {"terminated", 15},
    };
    int64_t n;

    if (!status || strncmp(status, "signal: ", 8))
        return 255;
    status += 8;
    if (!strncmp(status, "signal ", 7))
        status += 7;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (!strncmp(status, table[i].word, strlen(table[i].word)))
            return 128 + table[i].sig;
    return text_int(status, 1, 64, &n) ? 128 + (int)n : 255;
}

/* a page of a gateway, without its tags and with single blanks */
static void plain_words(const char *p, size_t n, struct buf *out)
{
    bool tag = false;

    for (size_t i = 0; i < n && out->n < 200; i++) {
        if (p[i] == '<')
            tag = true;
        else if (p[i] == '>' && tag)
            tag = false;
        else if (tag)
            continue;
        else if (!isspace((unsigned char)p[i]))
            buf_addc(out, p[i]);
        if (out->n && out->p[out->n - 1] != ' ' &&
            (isspace((unsigned char)p[i]) || p[i] == '>'))
            buf_addc(out, ' ');
    }
    while (out->n && out->p[out->n - 1] == ' ')
        out->p[--out->n] = 0;
}

static void add_printable(struct buf *out, const char *p, size_t n)
{
    AUTO_BUF struct buf b = {0};

    if (n > 200)
        n = 200;
    n -= text_utf8_tail(p, n);
    text_printable(&b, p, n, 0);
    buf_add(out, b.p, b.n < 300 ? b.n : 300 - text_utf8_tail(b.p, 300));
}

void fail_words(const struct buf *body, struct buf *out)
{
    AUTO_BUF struct buf plain = {0};
    json_t *j = json_read(body->p, body->n);
    const char *msg = json_str(j, "message");

    if (msg && *msg)
        add_printable(out, msg, strlen(msg));
    if (!j && body->n) {
        plain_words(body->p, body->n, &plain);
        add_printable(out, buf_str(&plain), plain.n);
    }
    json_decref(j);
}

static const char *status_words(long status)
{
    switch (status) {
    case 401:
        return "the key is refused";
    case 403:
        return "not allowed";
    case 404:
        return "not found";
    case 409:
        return "in transition";
    case 429:
        return "too many requests";
    case 502:
    case 503:
        return "nothing answers there";
    case 504:
        return "no answer in time";
    }
    return "refused";
}

int fail_answer(long status, const struct buf *body, struct err *e)
{
    AUTO_BUF struct buf words = {0};
    json_t *j = json_read(body->p, body->n);
    int code = fail_code(json_str(j, "code"));

    json_decref(j);
    fail_words(body, &words);
    if (!words.n)
        buf_adds(&words, status_words(status));
    /* a proxy's 502 is about the sandbox, whatever the body claims */
    if (!code || status == 502)
        code = fail_status(status);
    return err_set(e, code, "%s (HTTP %ld)", words.p, status);
}
