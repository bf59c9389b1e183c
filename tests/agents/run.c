/*
 * agent-run: a tool's command line, and what a CLI printed as events.
 *
 *   agent-run command TOOL [session=ID] [model=M] [thinking=T] [system=FILE]
 *   agent-run env TOOL
 *   agent-run parse FORMAT STDOUT STDERR EXIT
 *
 * EXIT is a code, or SIGn for a signal.
 */
#include "tests/agents/dump.h"

static const char *arg_of(char **av, const char *name)
{
    size_t n = strlen(name);

    for (; *av; av++)
        if (!strncmp(*av, name, n) && (*av)[n] == '=')
            return *av + n + 1;
    return NULL;
}

static int show_tool(const char *what, const char *name, char **av)
{
    struct err e = {0};
    struct tool *t;
    char *s;

    if (tool_parse(name, "", 0, &t, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    if (!strcmp(what, "env")) {
        printf("%s\n", t->env ? t->env : "");
    } else {
        s = tool_command(t, arg_of(av, "session"), arg_of(av, "model"),
                         arg_of(av, "thinking"), arg_of(av, "system"));
        printf("%s\n", s);
        free(s);
    }
    tool_free(t);
    return 0;
}

static int parse(char **av)
{
    static const char *const formats[] = {"text", "claude", "codex",
                                          "opencode", "pi"};
    AUTO_BUF struct buf out = {0}, err = {0};
    struct dump d = {0};
    struct parser *p;
    int f = 0, code = (int)strtol(av[3] + (strncmp(av[3], "SIG", 3) ? 0 : 3),
                                  NULL, 10);
    bool sig = !strncmp(av[3], "SIG", 3);

    while (f < 4 && strcmp(formats[f], av[0]))
        f++;
    if (file_read(av[1], 1 << 30, &out) || file_read(av[2], 1 << 30, &err))
        return 1;
    p = parser_new((enum agent_format)f, dump_event, &d);
    parser_err(p, buf_str(&err), err.n);
    parser_out(p, buf_str(&out), out.n);
    parser_end(p, sig ? 128 + code : code, sig);
    dump_flush(&d);
    fputs(buf_str(&d.out), stdout);
    parser_free(p);
    dump_free(&d);
    return 0;
}

int main(int ac, char **av)
{
    if (ac > 2 && (!strcmp(av[1], "command") || !strcmp(av[1], "env")))
        return show_tool(av[1], av[2], av + 3);
    if (ac == 6 && !strcmp(av[1], "parse"))
        return parse(av + 2);
    fprintf(stderr, "usage: agent-run command|env TOOL ... | "
                    "parse FORMAT STDOUT STDERR EXIT\n");
    return 2;
}
