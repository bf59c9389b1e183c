#include "engine/transcript.h"

#include "base/text.h"

void transcript_text(struct buf *out, const char *p, size_t n, bool *bol)
{
    static const char mark[] = "── ";
    AUTO_BUF struct buf shown = {0};
    const char *s, *end;

    text_printable(&shown, p, n, PRINTABLE_LINES | PRINTABLE_TABS);
    s = buf_str(&shown);
    end = s + shown.n;
    while (s < end) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        size_t len = nl ? (size_t)(nl - s) + 1 : (size_t)(end - s);

        /* a piece may end in the middle of the mark: any line that could
         * become one is moved, so that it doesn't depend on the cut */
        if (*bol && len >= 3 && !memcmp(s, mark, 3))
            buf_addc(out, ' ');
        buf_add(out, s, len);
        *bol = nl != NULL;
        s += len;
    }
}

void transcript_user(struct buf *out, int64_t ms, int64_t seq, const char *p,
                     size_t n)
{
    bool bol = true;
    char when[32];

    time_rfc3339(ms, when);
    buf_addf(out, "── %s  user  #%lld\n", when, (long long)seq);
    transcript_text(out, p, n, &bol);
    if (!bol)
        buf_addc(out, '\n');
    buf_addc(out, '\n');
}
