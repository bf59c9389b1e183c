/*
 * libFuzzer entry: any bytes as the output of a CLI. The first byte chooses
 * the grammar, the second the lengths of the pieces. Whatever comes, there is
 * exactly one end, and the pieces change nothing.
 *
 *   clang -fsanitize=fuzzer,address ... tests/agents/fuzz_parser.c
 */
#include "tests/agents/dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct seen {
    struct dump dump;
    int ends;
};

static void see(void *arg, const struct agent_event *ev)
{
    struct seen *s = arg;

    s->ends += ev->kind == AGENT_END;
    dump_event(&s->dump, ev);
}

static void feed(struct seen *s, enum agent_format f, const char *p, size_t n,
                 unsigned seed)
{
    struct parser *parser = parser_new(f, see, s);

    while (n) {
        size_t len = n;

        if (seed) {
            seed = seed * 1103515245u + 12345u;
            len = 1 + (seed >> 16) % 97;
            len = len < n ? len : n;
        }
        parser_out(parser, p, len);
        p += len;
        n -= len;
    }
    parser_end(parser, 0, false);
    parser_free(parser);
    dump_flush(&s->dump);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct seen whole = {0}, cut = {0};
    enum agent_format f;

    if (n < 2)
        return 0;
    f = (enum agent_format)(data[0] % 5);
    feed(&whole, f, (const char *)data + 2, n - 2, 0);
    feed(&cut, f, (const char *)data + 2, n - 2, data[1] + 1u);
    if (whole.ends != 1 || cut.ends != 1 ||
        strcmp(buf_str(&whole.dump.out), buf_str(&cut.dump.out)))
        abort();
    dump_free(&whole.dump);
    dump_free(&cut.dump);
    return 0;
}
