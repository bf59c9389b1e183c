#include "agents/fault.h"

#include "base/text.h"

#include <ctype.h>
#include <strings.h>

struct said {
    const char *part; /* of the text, in lower case; two parts: "a&b" */
    int kind;
    const char *words; /* %s is the service */
};

/* the first that fits counts */
static const struct said said[] = {
    {"no conversation found", AGENT_FAULT_SESSION, "no such session"},
    {"session not found", AGENT_FAULT_SESSION, "no such session"},
    {"no session found", AGENT_FAULT_SESSION, "no such session"},
    {"no rollout found", AGENT_FAULT_SESSION, "no such session"},
    {"unknown option", AGENT_FAULT_USAGE, "wrong options"},
    {"unknown argument", AGENT_FAULT_USAGE, "wrong options"},
    {"unexpected argument", AGENT_FAULT_USAGE, "wrong options"},
    {"unrecognized", AGENT_FAULT_USAGE, "wrong options"},
    {"invalid value", AGENT_FAULT_USAGE, "wrong options"},
    {"requires --", AGENT_FAULT_USAGE, "wrong options"},
    {"cannot be used with root", AGENT_FAULT_USAGE, "refuses to run as root"},
    {"no prompt", AGENT_FAULT_USAGE, "no prompt"},
    {"input must be provided", AGENT_FAULT_USAGE, "no prompt"},
    {"must provide a message", AGENT_FAULT_USAGE, "no prompt"},
    {"credit balance", AGENT_FAULT_CREDIT, "no credit at %s"},
    {"insufficient_quota", AGENT_FAULT_CREDIT, "no credit at %s"},
    {"insufficient credit", AGENT_FAULT_CREDIT, "no credit at %s"},
    {"exceeded your current quota", AGENT_FAULT_CREDIT, "no credit at %s"},
    {"billing", AGENT_FAULT_CREDIT, "no credit at %s"},
    {"payment required", AGENT_FAULT_CREDIT, "no credit at %s"},
    {"not logged in", AGENT_FAULT_KEY, "no %s key"},
    {"missing environment variable", AGENT_FAULT_KEY, "no %s key"},
    {"no api key", AGENT_FAULT_KEY, "no %s key"},
    {"api key&missing", AGENT_FAULT_KEY, "no %s key"},
    {"missing&api_key", AGENT_FAULT_KEY, "no %s key"},
    {"no auth credentials", AGENT_FAULT_KEY, "no %s key"},
    {"invalid x-api-key", AGENT_FAULT_KEY, "invalid %s key"},
    {"invalid api key", AGENT_FAULT_KEY, "invalid %s key"},
    {"api key&not valid", AGENT_FAULT_KEY, "invalid %s key"},
    {"invalid_api_key", AGENT_FAULT_KEY, "invalid %s key"},
    {"incorrect api key", AGENT_FAULT_KEY, "invalid %s key"},
    {"authentication", AGENT_FAULT_KEY, "invalid %s key"},
    {"unauthorized", AGENT_FAULT_KEY, "invalid %s key"},
    {"oauth token", AGENT_FAULT_KEY, "invalid %s key"},
    {"user not found", AGENT_FAULT_KEY, "invalid %s key"},
    {"rate limit", AGENT_FAULT_RATE, "rate limited"},
    {"rate_limit", AGENT_FAULT_RATE, "rate limited"},
    {"too many requests", AGENT_FAULT_RATE, "rate limited"},
    {"usage limit", AGENT_FAULT_RATE, "usage limit reached"},
    {"overloaded", AGENT_FAULT_RATE, "overloaded"},
    {"high demand", AGENT_FAULT_RATE, "overloaded"},
    {"prompt is too long", AGENT_FAULT_OTHER, "prompt too long"},
    {"context window", AGENT_FAULT_OTHER, "prompt too long"},
    {"context_length", AGENT_FAULT_OTHER, "prompt too long"},
    {"contextoverflow", AGENT_FAULT_OTHER, "prompt too long"},
    {"maximum context", AGENT_FAULT_OTHER, "prompt too long"},
    {"unknown provider", AGENT_FAULT_MODEL, "unknown provider"},
    {"no models available", AGENT_FAULT_MODEL, "model not found"},
    {"model&not found", AGENT_FAULT_MODEL, "model not found"},
    {"model_not_found", AGENT_FAULT_MODEL, "model not found"},
    {"model&not exist", AGENT_FAULT_MODEL, "model not found"},
    {"modelnotfound", AGENT_FAULT_MODEL, "model not found"},
    {"selected model", AGENT_FAULT_MODEL, "model not found"},
    {"model: ", AGENT_FAULT_MODEL, "model not found"},
    {"unable to connect", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"cannot connect", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"connection failed", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"connection error", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"connectionrefused", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"econnrefused", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"enotfound", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"error sending request", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"fetch failed", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"stream disconnected", AGENT_FAULT_NETWORK, "connection lost"},
    {"connection reset", AGENT_FAULT_NETWORK, "connection lost"},
    {"econnreset", AGENT_FAULT_NETWORK, "connection lost"},
    {"connection closed", AGENT_FAULT_NETWORK, "connection lost"},
    {"socket", AGENT_FAULT_NETWORK, "connection lost"},
    {"timed out", AGENT_FAULT_NETWORK, "timed out"},
    {"network", AGENT_FAULT_NETWORK, "cannot reach %s"},
    {"internal server error", AGENT_FAULT_OTHER, "service error"},
    {"server_error", AGENT_FAULT_OTHER, "service error"},
};

static void set(struct fault *f, int kind, const char *words,
                const char *service)
{
    const char *at = strstr(words, "%s");
    bool key = kind == AGENT_FAULT_KEY;

    f->kind = kind;
    if (!service)
        service = key ? "API" : "the model's service";
    if (!at)
        snprintf(f->words, sizeof(f->words), "%s", words);
    else
        snprintf(f->words, sizeof(f->words), "%.*s%s%s", (int)(at - words),
                 words, service, at + 2);
}

static bool has(const char *lower, const char *part)
{
    const char *and = strchr(part, '&');
    char first[40];

    if (!and)
        return strstr(lower, part) != NULL;
    snprintf(first, sizeof(first), "%.*s", (int)(and-part), part);
    return strstr(lower, first) && strstr(lower, and+1);
}

static bool tell_words(struct fault *f, const char *service, const char *s)
{
    char lower[600];
    size_t n = 0;

    if (!s)
        return false;
    for (; n < sizeof(lower) - 1 && s[n]; n++)
        lower[n] = (char)tolower((unsigned char)s[n]);
    lower[n] = 0;
    for (size_t i = 0; i < ARRAY_LEN(said); i++)
        if (has(lower, said[i].part)) {
            set(f, said[i].kind, said[i].words, service);
            return true;
        }
    return false;
}

static bool tell_status(struct fault *f, const char *service, int status,
                        const char *text)
{
    struct fault t = {0};
    bool told = tell_words(&t, service, text);

    switch (status) {
    case 401:
        if (told && t.kind == AGENT_FAULT_KEY)
            *f = t;
        else
            set(f, AGENT_FAULT_KEY, "invalid %s key", service);
        return true;
    case 402:
        set(f, AGENT_FAULT_CREDIT, "no credit at %s", service);
        return true;
    case 404:
        set(f, AGENT_FAULT_MODEL, "model not found", service);
        return true;
    case 408:
        set(f, AGENT_FAULT_NETWORK, "timed out", service);
        return true;
    case 413:
        set(f, AGENT_FAULT_OTHER, "prompt too long", service);
        return true;
    case 429:
        if (told && t.kind == AGENT_FAULT_CREDIT)
            *f = t;
        else
            set(f, AGENT_FAULT_RATE, "rate limited", service);
        return true;
    case 503:
    case 529:
        set(f, AGENT_FAULT_RATE, "overloaded", service);
        return true;
    default:
        if (status < 500 || status > 599)
            return false;
        set(f, AGENT_FAULT_OTHER, "service error", service);
        return true;
    }
}

void fault_tell(struct fault *f, const char *service, int status,
                const char *code, const char *text)
{
    memset(f, 0, sizeof(*f));
    if (tell_status(f, service, status, text))
        return;
    if (tell_words(f, service, text) || tell_words(f, service, code))
        return;
    if (status == 403)
        set(f, AGENT_FAULT_KEY, "refused by %s", service);
    else
        set(f, AGENT_FAULT_OTHER, "failed", service);
}

const char *fault_service(const char *url)
{
    static const char *const who[][2] = {
        {"openrouter", "OpenRouter"},
        {"anthropic", "Anthropic"},
        {"openai", "OpenAI"},
        {"google", "Google"},
        {"groq", "Groq"},
        {"mistral", "Mistral"},
        {"x.ai", "xAI"},
        {"deepseek", "DeepSeek"},
    };

    /* pi's and opencode's names of wire formats say nothing of the service */
    if (!url || strstr(url, "compat"))
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(who); i++)
        if (strcasestr(url, who[i][0]))
            return who[i][1];
    return NULL;
}

int fault_status(const char *text)
{
    const char *at;

    if (!text)
        return 0;
    at = strstr(text, "status ");
    if (!at)
        at = strstr(text, "status: ");
    at = at ? strchr(at, ' ') + 1 : text;
    for (int i = 0; i < 3; i++)
        if (!isdigit((unsigned char)at[i]))
            return 0;
    if (isalnum((unsigned char)at[3]) || *at < '3' || *at > '5')
        return 0;
    return (at[0] - '0') * 100 + (at[1] - '0') * 10 + at[2] - '0';
}

/* how long what looks like a key at s is; 0: nothing */
static size_t key_len(const char *s)
{
    static const char *const begin[] = {
        "sk-",  "e2b_",        "ghp_", "gho_", "ghu_", "ghs_",
        "ghr_", "github_pat_", "xai-", "gsk_", "AIza", "Bearer ",
    };

    for (size_t i = 0; i < ARRAY_LEN(begin); i++) {
        size_t skip = strlen(begin[i]), n = skip;

        if (strncmp(s, begin[i], skip))
            continue;
        while (isalnum((unsigned char)s[n]) || (s[n] && strchr("-_*.", s[n])))
            n++;
        if (n - skip >= 6)
            return n;
    }
    return 0;
}

void fault_mask(struct buf *out, const char *text)
{
    while (*text) {
        size_t n = key_len(text);

        if (n)
            buf_adds(out, "****");
        else
            buf_addc(out, *text);
        text += n ? n : 1;
    }
}
