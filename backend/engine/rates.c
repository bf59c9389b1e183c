#include "engine/rates.h"

#include "base/text.h"
#include "engine/config.h"

const char rates_default[] =
    "# What things cost, in USD: service, model, unit, price [per number].\n"
    "# A model that ends in * stands for all that begin so; the line that\n"
    "# fits best is used, of equal ones the last. What has no line costs 0.\n"
    "# A tool that tells its own cost is believed.\n"
    "\n"
    "# Claude, April 2026\n"
    "anthropic claude-opus-4-7*   input_tokens        5.00 per 1M\n"
    "anthropic claude-opus-4-7*   output_tokens      25.00 per 1M\n"
    "anthropic claude-opus-4-7*   cache_read_tokens   0.50 per 1M\n"
    "anthropic claude-opus-4-7*   cache_write_tokens  6.25 per 1M\n"
    "anthropic claude-opus-4-6*   input_tokens        5.00 per 1M\n"
    "anthropic claude-opus-4-6*   output_tokens      25.00 per 1M\n"
    "anthropic claude-opus-4-6*   cache_read_tokens   0.50 per 1M\n"
    "anthropic claude-opus-4-6*   cache_write_tokens  6.25 per 1M\n"
    "anthropic claude-opus-4-5*   input_tokens        5.00 per 1M\n"
    "anthropic claude-opus-4-5*   output_tokens      25.00 per 1M\n"
    "anthropic claude-opus-4-5*   cache_read_tokens   0.50 per 1M\n"
    "anthropic claude-opus-4-5*   cache_write_tokens  6.25 per 1M\n"
    "anthropic claude-sonnet-4*   input_tokens        3.00 per 1M\n"
    "anthropic claude-sonnet-4*   output_tokens      15.00 per 1M\n"
    "anthropic claude-sonnet-4*   cache_read_tokens   0.30 per 1M\n"
    "anthropic claude-sonnet-4*   cache_write_tokens  3.75 per 1M\n"
    "anthropic claude-haiku-4*    input_tokens        1.00 per 1M\n"
    "anthropic claude-haiku-4*    output_tokens       5.00 per 1M\n"
    "anthropic claude-haiku-4*    cache_read_tokens   0.10 per 1M\n"
    "anthropic claude-haiku-4*    cache_write_tokens  1.25 per 1M\n"
    "\n"
    "# OpenAI: estimates, put in what your account is billed\n"
    "openai    gpt-5*             input_tokens        1.25 per 1M\n"
    "openai    gpt-5*             output_tokens      10.00 per 1M\n"
    "openai    gpt-5*             cache_read_tokens   0.125 per 1M\n"
    "\n"
    "# OpenRouter: its tools tell the cost themselves; else per model here\n"
    "\n"
    "# E2B: a second of a VM with 2 CPUs and 1 GiB (0.000014 a CPU,\n"
    "# 0.0000045 a GiB): an estimate, it bills by the template\n"
    "e2b       *                  sandbox_seconds     0.0325 per 1k\n"
    "\n"
    "# Local sandboxes cost nothing\n"
    "local     *                  sandbox_seconds     0\n";

struct rate {
    char *service, *model, *unit;
    double usd; /* for one */
};

static void rate_clear(struct rate *r)
{
    free(r->service);
    free(r->model);
    free(r->unit);
}

static bool parse_number(const char *s, double *out)
{
    AUTO_FREE char *copy = xstrdup(s);
    size_t n = strlen(copy);
    double factor = 1;

    if (n && (copy[n - 1] == 'k' || copy[n - 1] == 'M')) {
        factor = copy[n - 1] == 'k' ? 1e3 : 1e6;
        copy[n - 1] = 0;
    }
    if (!text_double(copy, 0, 1e12, out) || *out <= 0)
        return false;
    *out *= factor;
    return true;
}

static bool is_unit(const char *s)
{
    static const char *const units[] = {
        "sandbox_seconds",   "input_tokens",       "output_tokens",
        "cache_read_tokens", "cache_write_tokens", NULL};

    return text_is_word(s, units);
}

/* 1 a rate, 0 nothing, -EINVAL */
static int parse_line(const char *line, size_t n, struct rate *out,
                      struct err *e)
{
    AUTO_FREE char *copy = xmemdup0(line, n);
    char *rest = text_trim(copy + text_bom(line, n)), *w[6] = {NULL},
         shown[160];
    double usd, per = 1;
    int count = 0;

    if (strlen(copy) < n && memchr(line, 0, n))
        return err_set(e, EINVAL, "a NUL byte");
    if (!*rest || *rest == '#')
        return 0;
    for (char *s = strsep(&rest, " \t"); s; s = strsep(&rest, " \t")) {
        if (!*s)
            continue;
        if (count == 6)
            return err_set(e, EINVAL,
                           "more than SERVICE MODEL UNIT USD "
                           "per NUMBER");
        w[count++] = s;
    }
    if (count != 4 && count != 6)
        return err_set(e, EINVAL, "not SERVICE MODEL UNIT USD [per NUMBER]");
    if (!is_unit(w[2])) {
        text_refused(w[2], shown);
        return err_set(e, EINVAL, "unknown unit '%s'", shown);
    }
    if (!text_double(w[3], 0, 1e9, &usd)) {
        text_refused(w[3], shown);
        return err_set(e, EINVAL, "'%s' is no price in USD", shown);
    }
    if (count == 6 && (strcmp(w[4], "per") || !parse_number(w[5], &per))) {
        text_refused(w[5], shown);
        return err_set(e, EINVAL, "not 'per NUMBER': '%s'", shown);
    }
    if (out)
        *out = (struct rate){xstrdup(w[0]), xstrdup(w[1]), xstrdup(w[2]),
                             usd / per};
    return 1;
}

int rates_line_check(const char *line, size_t n, struct err *e)
{
    int r = parse_line(line, n, NULL, e);

    return r < 0 ? r : 0;
}

/* how well a pattern fits: -1 not at all */
static int fit(const char *pattern, const char *model)
{
    size_t n = strlen(pattern);

    if (n && pattern[n - 1] == '*')
        return strncmp(pattern, model, n - 1) ? -1 : (int)n;
    return strcmp(pattern, model) ? -1 : 1 << 20;
}

double rates_find(const char *doc, size_t n, const char *service,
                  const char *model, const char *unit)
{
    const char *p = doc, *end = doc + n;
    double usd = -1;
    int best = -1;

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        struct rate r = {0};

        if (parse_line(p, len, &r, NULL) == 1) {
            int f = strcmp(r.service, service) || strcmp(r.unit, unit)
                        ? -1
                        : fit(r.model, model);

            if (f >= 0 && f >= best) {
                best = f;
                usd = r.usd;
            }
            rate_clear(&r);
        }
        p += len + (nl ? 1 : 0);
    }
    return usd;
}
