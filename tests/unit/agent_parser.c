/*
 * The parsers on what the real CLIs printed (tests/agents/data): each stream
 * gives exactly the events in its .events file, whole, byte by byte and with
 * each line cut at many places (at all of them with AGENT_SPLITS=all). Then
 * what the captures lack: huge lines, broken text, damage of all kinds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <libgen.h>

#include "../agents/fuzz_parser.c"

static const char *const formats[] = {"text", "claude", "codex", "opencode",
                                      "pi"};
static char data_dir[4096];

/* ---- the captures ---- */

struct capture {
    char name[300];
    enum agent_format format;
    struct buf out, err, events;
    int code;
    bool sig;
};

static void read_part(struct buf *b, const char *name, const char *end)
{
    AUTO_FREE char *path = xasprintf("%s/%s%s", data_dir, name, end);

    if (file_read(path, 1 << 24, b))
        assert_string_equal(end, ".stderr");
}

static void capture_read(struct capture *c, int format, const char *file)
{
    AUTO_BUF struct buf exit_text = {0};
    static const struct {
        const char *word;
        int code;
    } signals[] = {{"SIGKILL", 9}, {"SIGTERM", 15}, {"SIGINT", 2}};
    const char *s;

    memset(c, 0, sizeof(*c));
    c->format = (enum agent_format)format;
    snprintf(c->name, sizeof(c->name), "%s/%.*s", formats[format],
             (int)(strlen(file) - 6), file);
    read_part(&c->out, c->name, ".jsonl");
    read_part(&c->err, c->name, ".stderr");
    read_part(&c->events, c->name, ".events");
    read_part(&exit_text, c->name, ".exit");
    s = strstr(buf_str(&exit_text), "exit_code: ");
    if (s) {
        c->code = (int)strtol(s + 11, NULL, 10);
        return;
    }
    c->sig = true;
    s = strstr(buf_str(&exit_text), "signal: ");
    assert_non_null(s);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (!strncmp(s + 8, signals[i].word, strlen(signals[i].word)))
            c->code = 128 + signals[i].code;
    assert_int_not_equal(c->code, 0);
}

static void capture_free(struct capture *c)
{
    buf_free(&c->out);
    buf_free(&c->err);
    buf_free(&c->events);
}

static size_t line_length(const char *s, const char *end)
{
    const char *nl = memchr(s, '\n', (size_t)(end - s));

    return (size_t)((nl ? nl + 1 : end) - s);
}

/* in pieces of every bytes, or (0) a line each, cut once more, at */
static void check(const struct capture *c, size_t every, size_t at)
{
    struct dump d = {0};
    struct parser *p = parser_new(c->format, dump_event, &d);
    const char *s = buf_str(&c->out), *end = s + c->out.n;

    parser_err(p, buf_str(&c->err), c->err.n);
    while (s < end) {
        size_t n = every ? every : line_length(s, end);
        size_t first = at && at < n ? at : n;

        n = n < (size_t)(end - s) ? n : (size_t)(end - s);
        first = first < n ? first : n;
        parser_out(p, s, first);
        if (n > first)
            parser_out(p, s + first, n - first);
        s += n;
    }
    parser_end(p, c->code, c->sig);
    dump_flush(&d);
    if (strcmp(buf_str(&d.out), buf_str(&c->events)))
        print_message("%s (every %zu, at %zu)\n", c->name, every, at);
    assert_string_equal(buf_str(&d.out), buf_str(&c->events));
    parser_free(p);
    dump_free(&d);
}

static size_t longest_line(const struct capture *c)
{
    size_t longest = 0;
    const char *s = buf_str(&c->out), *nl;

    for (; (nl = strchr(s, '\n')); s = nl + 1)
        if ((size_t)(nl - s) > longest)
            longest = (size_t)(nl - s);
    return longest;
}

static void check_all(const struct capture *c)
{
    bool all = getenv("AGENT_SPLITS") != NULL;
    size_t longest = longest_line(c);

    check(c, SIZE_MAX, 0);
    check(c, 1, 0);
    check(c, 7, 0);
    check(c, 4096, 0);
    if (c->out.n > 65536) {
        for (size_t i = 0, at = 1; i < (all ? 500 : 10); i++) {
            at = (at * 1103515245u + 12345u) % longest;
            check(c, 0, at + 1);
        }
        return;
    }
    for (size_t at = 1; at <= longest; at += all || at < 8 ? 1 : 499)
        check(c, 0, at);
}

static void each_capture(void (*fn)(const struct capture *c))
{
    int n = 0;

    for (int f = 1; f < 5; f++) {
        AUTO_FREE char *path = xasprintf("%s/%s", data_dir, formats[f]);
        DIR *dir = opendir(path);
        struct dirent *e;

        assert_non_null(dir);
        while ((e = readdir(dir))) {
            struct capture c;

            if (!strstr(e->d_name, ".jsonl"))
                continue;
            capture_read(&c, f, e->d_name);
            fn(&c);
            capture_free(&c);
            n++;
        }
        closedir(dir);
    }
    assert_true(n > 100);
}

static void captures_give_their_events(void **state)
{
    (void)state;
    each_capture(check_all);
}

/* ---- damage ---- */

static uint32_t seed = 1;

static uint32_t dice(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed % n;
}

static void damage(struct buf *b)
{
    static const char *const bits[] = {
        "\n",      "\"",        "\\ud83d",
        "\\ude80", "\\u0000",   "\xff",
        "{",       "}",         "[",
        "null",    "1e999",     "99999999999999999999",
        "-1",      "\"text\":", "{\"type\":\"message_update\",",
        "\\",      "\xf0\x9f",  "\xed\xa0\x80"};

    for (uint32_t i = 0, n = 1 + dice(6); i < n && b->n; i++) {
        uint32_t at = dice((uint32_t)b->n);
        const char *bit = bits[dice(ARRAY_LEN(bits))];
        AUTO_FREE char *tail = xmemdup0(b->p + at, b->n - at);
        size_t tail_n = b->n - at, cut = dice(3) ? 0 : dice(200);

        b->n = at;
        buf_adds(b, bit);
        cut = cut < tail_n ? cut : tail_n;
        buf_add(b, tail + cut, tail_n - cut);
        if (!dice(8))
            b->n = dice((uint32_t)b->n + 1);
    }
}

static void damage_one(const struct capture *c)
{
    if (c->out.n > 30000)
        return;
    for (int i = 0; i < 8; i++) {
        AUTO_BUF struct buf b = {0};
        uint8_t head[2] = {(uint8_t)c->format, (uint8_t)dice(256)};

        buf_add(&b, buf_str(&c->out), c->out.n);
        damage(&b);
        /* as a CLI's output, then as the wrong CLI's */
        for (int k = 0; k < 2; k++) {
            AUTO_BUF struct buf in = {0};

            buf_add(&in, head, 2);
            buf_add(&in, buf_str(&b), b.n);
            LLVMFuzzerTestOneInput((const uint8_t *)in.p, in.n);
            head[0] = (uint8_t)dice(5);
        }
    }
}

static void damage_is_survived(void **state)
{
    (void)state;
    each_capture(damage_one);
}

/* ---- single things ---- */

static char *events(enum agent_format f, const char *out, const char *err,
                    int code, bool sig)
{
    struct dump d = {0};
    struct parser *p = parser_new(f, dump_event, &d);

    parser_out(p, out, strlen(out));
    parser_err(p, err, strlen(err));
    parser_end(p, code, sig);
    dump_flush(&d);
    parser_free(p);
    buf_free(&d.text);
    return buf_take(&d.out);
}

#define EXPECT(f, out, err, code, sig, want)                                  \
    do {                                                                      \
        AUTO_FREE char *got = events(f, out, err, code, sig);                 \
        assert_string_equal(got, want);                                       \
    } while (0)

#define PIECE(id, s)                                                          \
    "{\"type\":\"stream_event\",\"event\":{\"type\":"                         \
    "\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"                \
    "\"text_delta\",\"text\":\"" s "\"}}}\n"
#define START(id)                                                             \
    "{\"type\":\"stream_event\",\"event\":{\"type\":\"message_start\","       \
    "\"message\":{\"id\":\"" id "\"}}}\n"
#define STOP                                                                  \
    "{\"type\":\"stream_event\",\"event\":"                                   \
    "{\"type\":\"content_block_stop\"}}\n"
#define WHOLE(id, s)                                                          \
    "{\"type\":\"assistant\",\"message\":{\"id\":\"" id "\",\"content\":"     \
    "[{\"type\":\"text\",\"text\":\"" s "\"}]}}\n"
#define GOOD                                                                  \
    "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false}\n"
#define GOOD_END "usage in=0 out=0 read=0 write=0\nend ok\n"

static void text_is_decided_by_the_exit_code(void **state)
{
    (void)state;
    EXPECT(FORMAT_TEXT, "hi\n", "", 0, false,
           "text hi\\n\nend of text\n"
           "end ok\n");
    EXPECT(FORMAT_TEXT, "", "oops\n", 3, false,
           "end failed (other) exited 3\n");
    EXPECT(FORMAT_TEXT, "\xe4\xbd", "", 137, true,
           "text \\xe4\\xbd\nend of text\n"
           "end failed (other) killed by signal 9 (SIGKILL)\n");
}

static void the_stream_decides_not_the_exit_code(void **state)
{
    (void)state;
    EXPECT(FORMAT_CLAUDE, WHOLE("a", "x") GOOD, "", 1, false,
           "text x\nend of text\n" GOOD_END);
    EXPECT(FORMAT_CLAUDE,
           "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,"
           "\"api_error_status\":401,\"result\":\"no\"}\n",
           "", 0, false,
           "usage in=0 out=0 read=0 write=0\n"
           "error (key) invalid Anthropic key detail=no\n"
           "end failed (key) invalid Anthropic key: no\n");
}

/* text came, but never the line that says that the turn is over */
static void a_stream_without_its_end_is_told_by_what_came(void **state)
{
    static const struct {
        enum agent_format format;
        const char *text, *nothing;
    } cut[] = {
        {FORMAT_CLAUDE, WHOLE("a", "x"),
         "{\"type\":\"system\",\"subtype\":\"init\"}\n"},
        {FORMAT_CODEX,
         "{\"type\":\"turn.started\"}\n{\"type\":\"item.completed\","
         "\"item\":{\"id\":\"i\",\"type\":\"agent_message\",\"text\":"
         "\"x\"}}\n",
         "{\"type\":\"turn.started\"}\n"},
        {FORMAT_OPENCODE,
         "{\"type\":\"step_start\"}\n{\"type\":\"text\",\"part\":"
         "{\"id\":\"p\",\"type\":\"text\",\"text\":\"x\"}}\n",
         "{\"type\":\"step_start\"}\n"},
        {FORMAT_PI,
         "{\"type\":\"message_update\",\"assistantMessageEvent\":"
         "{\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":"
         "\"x\"}}\n",
         "{\"type\":\"turn_start\"}\n"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cut); i++) {
        const char *text = cut[i].text, *nothing = cut[i].nothing;

        EXPECT(cut[i].format, text, "", 0, false,
               "text x\nend of text\n"
               "end failed (other) exited 0 without saying that it was "
               "done\n");
        EXPECT(cut[i].format, text, "odd\n", 0, false,
               "text x\nend of text\n"
               "end failed (other) exited 0 without saying that it was "
               "done: odd\n");
        EXPECT(cut[i].format, text, "", 3, false,
               "text x\nend of text\nend failed (other) exited 3\n");
        EXPECT(cut[i].format, text, "", 137, true,
               "text x\nend of text\n"
               "end failed (other) killed by signal 9 (SIGKILL)\n");
        EXPECT(cut[i].format, nothing, "", 0, false,
               "end failed (other) exited 0 without an answer\n");
    }
}

static void pieces_and_wholes_are_told_once(void **state)
{
    (void)state;
    EXPECT(FORMAT_CLAUDE,
           START("a") PIECE("a", "one") STOP WHOLE("a", "one") GOOD, "", 0,
           false, "text one\nend of text\n" GOOD_END);
    EXPECT(FORMAT_CLAUDE, START("a") PIECE("a", "on") WHOLE("a", "one") GOOD,
           "", 0, false, "text one\nend of text\n" GOOD_END);
    EXPECT(FORMAT_CLAUDE, START("a") PIECE("a", "on") WHOLE("b", "one") GOOD,
           "", 0, false, "text on\nretract\ntext one\nend of text\n" GOOD_END);
    EXPECT(FORMAT_CLAUDE,
           START("a") PIECE("a", "on") START("b") PIECE("b", "tw")
               WHOLE("b", "two") GOOD,
           "", 0, false, "text on\nretract\ntext two\nend of text\n" GOOD_END);
}

static void broken_text_does_not_lose_the_line(void **state)
{
    (void)state;
    EXPECT(FORMAT_CLAUDE,
           START("a") PIECE("a", "a\\ud83d") PIECE("a", "\\ude80z")
               WHOLE("a", "a\\ud83d\\ude80z") GOOD,
           "", 0, false, "text a🚀z\nend of text\n" GOOD_END);
    EXPECT(FORMAT_CLAUDE, WHOLE("a", "a\\ud83db\\ude80") GOOD, "", 0, false,
           "text a\xef\xbf\xbd"
           "b\xef\xbf\xbd\nend of text\n" GOOD_END);
    EXPECT(FORMAT_CLAUDE,
           WHOLE("a", "a\xff\xc3"
                      "b") GOOD,
           "", 0, false,
           "text a\xef\xbf\xbd\xef\xbf\xbd"
           "b\nend of text\n" GOOD_END);
    /* half a line at the end is dropped; a line that isn't JSON too */
    EXPECT(FORMAT_CLAUDE,
           "hello\n{\"type\":\n" WHOLE("a", "x") GOOD "{\"type\":\"assi", "",
           0, false, "text x\nend of text\n" GOOD_END);
}

static void keys_stay_out_of_errors(void **state)
{
    AUTO_FREE char *got = events(
        FORMAT_CODEX,
        "{\"type\":\"turn.failed\",\"error\":{\"message\":\"unexpected status "
        "401 Unauthorized: Incorrect API key provided: "
        "sk-proj-abcdefgh1234.\"}}\n",
        "", 1, false);

    (void)state;
    assert_null(strstr(got, "abcdefgh"));
    assert_non_null(strstr(got, "provided: ****"));
    assert_non_null(strstr(got, "invalid OpenAI key"));
}

static void codex_totals_are_subtracted(void **state)
{
    static const char line[] =
        "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":2100,"
        "\"cached_input_tokens\":600,\"output_tokens\":35}}\n";
    struct agent_usage earlier = {1000, 20, 100, 0, -1};
    struct agent_usage other = {90000, 9000, 0, 0, -1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct dump d = {0};
        struct parser *p = parser_new(FORMAT_CODEX, dump_event, &d);

        parser_before(p, i ? &other : &earlier);
        parser_out(p, line, strlen(line));
        parser_end(p, 0, false);
        assert_string_equal(d.out.p,
                            i ? "usage in=1500 out=35 read=600 write=0\n"
                                "end ok\n"
                              : "usage in=500 out=15 read=500 write=0\n"
                                "end ok\n");
        parser_free(p);
        dump_free(&d);
    }
}

/* a line of n bytes of tool output, in pieces, then an ordinary one */
static char *huge(size_t n)
{
    static const char begin[] =
        "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":"
        "\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"";
    static const char end[] = "\"}]}}\n" WHOLE("a", "x") GOOD;
    AUTO_FREE char *piece = xmalloc(65536);
    struct dump d = {0};
    struct parser *p = parser_new(FORMAT_CLAUDE, dump_event, &d);

    memset(piece, 'y', 65536);
    parser_out(p, begin, strlen(begin));
    for (size_t i = 0; i < n; i += 65536)
        parser_out(p, piece, 65536);
    parser_out(p, end, strlen(end));
    parser_end(p, 0, false);
    parser_free(p);
    buf_free(&d.text);
    return buf_take(&d.out);
}

static void huge_lines_are_read_or_skipped(void **state)
{
    AUTO_FREE char *read = huge(20 << 20);
    AUTO_FREE char *skipped = huge(40 << 20);

    (void)state;
    assert_ptr_equal(strstr(read, "result ok id=t yyyy"), read);
    assert_non_null(strstr(read, "text x\nend of text\n" GOOD_END));
    assert_string_equal(skipped,
                        "note a line of more than 32 MiB was skipped\n"
                        "text x\nend of text\n" GOOD_END);
}

/* what pi does with an answer of 200 KiB in pieces of 1 KiB: 40 MB */
static void quadratic_output_is_cheap(void **state)
{
    struct dump d = {0};
    struct parser *p = parser_new(FORMAT_PI, dump_event, &d);
    AUTO_BUF struct buf whole = {0}, line = {0};

    (void)state;
    for (int i = 0; i < 200; i++) {
        size_t from = whole.n;

        for (int k = 0; k < 128; k++)
            buf_addf(&whole, "%07d ", i * 128 + k);
        buf_clear(&line);
        buf_addf(&line,
                 "{\"type\":\"message_update\",\"assistantMessageEvent\":"
                 "{\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":"
                 "\"%s\",\"partial\":{\"text\":\"%s\"}},\"message\":\"%s\"}\n",
                 whole.p + from, whole.p, whole.p);
        parser_out(p, line.p, line.n);
    }
    buf_clear(&line);
    buf_addf(&line,
             "{\"type\":\"message_end\",\"message\":{\"role\":\"assistant\","
             "\"content\":[{\"type\":\"text\",\"text\":\"%s\"}],"
             "\"stopReason\":\"stop\"}}\n",
             whole.p);
    parser_out(p, line.p, line.n);
    parser_end(p, 0, false);
    parser_free(p);
    buf_clear(&line);
    buf_addf(&line, "text (%zu bytes, %016llx)\nend of text\nend ok\n",
             whole.n, (unsigned long long)text_hash(whole.p, whole.n));
    assert_string_equal(d.out.p, line.p);
    dump_free(&d);
}

static void last_block_is_found(void **state)
{
    static const struct {
        const char *text, *want;
    } all[] = {
        {"none", NULL},
        {"```\na\n```\nthen\n```json\n{\"x\": 1}\n```\nbye", "{\"x\": 1}\n"},
        {"~~~\n```\nin\n```\n~~~", "```\nin\n```\n"},
        {"```\nopen", NULL},
        {"```\na\n```\n```\nopen", "a\n"},
        {"````\n```\n````", "```\n"},
        {"  ```sh\r\nx\r\n  ```\r\n", "x\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        AUTO_FREE char *got =
            agent_last_block(all[i].text, strlen(all[i].text));

        if (!all[i].want)
            assert_null(got);
        else
            assert_string_equal(got, all[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_give_their_events),
        cmocka_unit_test(damage_is_survived),
        cmocka_unit_test(text_is_decided_by_the_exit_code),
        cmocka_unit_test(the_stream_decides_not_the_exit_code),
        cmocka_unit_test(a_stream_without_its_end_is_told_by_what_came),
        cmocka_unit_test(pieces_and_wholes_are_told_once),
        cmocka_unit_test(broken_text_does_not_lose_the_line),
        cmocka_unit_test(keys_stay_out_of_errors),
        cmocka_unit_test(codex_totals_are_subtracted),
        cmocka_unit_test(huge_lines_are_read_or_skipped),
        cmocka_unit_test(quadratic_output_is_cheap),
        cmocka_unit_test(last_block_is_found),
    };
    char file[] = __FILE__;

    snprintf(data_dir, sizeof(data_dir), "%s/../agents/data", dirname(file));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
