#include "local/control.h"

#include "local/net.h"

#include <ctype.h>

enum { MEMORY_MB = 1024, MEMORY_MIN = 64, MEMORY_MAX = 1 << 20, CPUS = 2 };

static int bad(struct err *e, const char *words)
{
    err_set(e, EINVAL, "%s", words);
    return 400;
}

static void strings_free(char **v)
{
    for (size_t i = 0; v && v[i]; i++)
        free(v[i]);
    free(v);
}

/* strings of an array; NULL if it holds anything else */
static char **strings_of(json_t *array)
{
    size_t n = json_array_size(array);
    char **v = xcalloc(n + 1, sizeof(char *));

    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_array_get(array, i));

        if (!s) {
            strings_free(v);
            return NULL;
        }
        v[i] = xstrdup(s);
    }
    return v;
}

static bool all_strings(json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key,
                        value) if (!json_is_string(value) ||
                                   strlen(json_string_value(value)) !=
                                       json_string_length(value)) return false;
    return true;
}

/* ---- the network ---- */

static bool denies_all(json_t *deny)
{
    size_t i;
    json_t *v;

    json_array_foreach(deny, i, v) if (json_is_string(v) &&
                                       strcmp(json_string_value(v),
                                              "0.0.0.0/0") == 0) return true;
    return false;
}

static bool hosts_ok(char **hosts, struct err *e)
{
    for (; *hosts; hosts++)
        if (!net_host_ok(*hosts)) {
            err_set(e, EINVAL,
                    "\"%.100s\" is neither a host, an IPv4 "
                    "address nor a range of them",
                    *hosts);
            return false;
        }
    return true;
}

int create_network(json_t *body, enum net_mode *mode, char ***hosts,
                   struct err *e)
{
    json_t *internet = json_object_get(body, "allow_internet_access");
    json_t *n = json_object_get(body, "network");
    json_t *allow, *deny;
    bool closed = json_is_false(internet);

    if (!json_is_object(n))
        n = body; /* PUT network has them at the top */
    allow = json_object_get(n, "allowOut");
    deny = json_object_get(n, "denyOut");
    *mode = NET_ON;
    *hosts = NULL;
    if (json_object_size(json_object_get(n, "rules")) ||
        json_is_object(json_object_get(n, "egressProxy")))
        return bad(e, "network rules and egressProxy are not possible on the "
                      "local host");
    if (denies_all(deny))
        closed = true;
    else if (json_array_size(deny))
        return bad(e, "the local host can deny 0.0.0.0/0 only; say what is "
                      "allowed instead");
    if (closed)
        *mode = NET_OFF;
    if (!json_array_size(allow))
        return 0;
    *hosts = strings_of(allow);
    if (!*hosts)
        return bad(e, "allowOut must be an array of strings");
    if (!hosts_ok(*hosts, e))
        return 400;
    *mode = closed ? NET_ALLOW : NET_ON;
    return 0;
}

static int courier_network(json_t *meta, bool local, struct box_spec *s,
                           struct err *e)
{
    const char *mode =
        json_string_value(json_object_get(meta, "courier.network"));
    const char *allow =
        json_string_value(json_object_get(meta, "courier.allow"));
    AUTO_FREE char *copy = xstrdup(allow);
    char *save = NULL;
    size_t n = 0;

    if (mode && strcmp(mode, "host") == 0) {
        if (!local)
            return bad(e, "courier.network=host is for the Unix socket only");
        s->net = NET_HOST;
    } else if (mode && strcmp(mode, "off") == 0) {
        s->net = NET_OFF;
    } else if (mode && strcmp(mode, "on") == 0) {
        s->net = NET_ON;
    } else if (mode && strcmp(mode, "allow") != 0) {
        return bad(e, "courier.network must be on, off, allow or host");
    }
    if (!allow || !*allow)
        return 0;
    strings_free(s->allow);
    s->allow = xcalloc(strlen(allow) / 2 + 2, sizeof(char *));
    for (char *h = strtok_r(copy, ", ", &save); h;
         h = strtok_r(NULL, ", ", &save))
        s->allow[n++] = xstrdup(h);
    s->net = NET_ALLOW;
    return hosts_ok(s->allow, e) ? 0 : 400;
}

/* ---- courier's own wishes, in the metadata ---- */

static int courier_binds(json_t *meta, bool local, struct box_spec *s,
                         struct err *e)
{
    const char *text =
        json_string_value(json_object_get(meta, "courier.bind"));
    json_t *list;

    if (!text)
        return 0;
    if (!local)
        return bad(e, "courier.bind is for the Unix socket only");
    list = json_loads(text, 0, NULL);
    s->binds = json_is_array(list) ? strings_of(list) : NULL;
    json_decref(list);
    if (!s->binds)
        return bad(e, "courier.bind must be a JSON array of paths");
    for (char **b = s->binds; *b; b++) {
        AUTO_FREE char *real = NULL;

        if (jail_bind_check(*b, &real, e) < 0)
            return 400;
    }
    return 0;
}

static int courier_limits(json_t *meta, struct box_spec *s, struct err *e)
{
    const char *mem =
        json_string_value(json_object_get(meta, "courier.memory"));
    const char *cpu = json_string_value(json_object_get(meta, "courier.cpu"));

    s->memory_mb = MEMORY_MB;
    s->cpus = CPUS;
    if (mem && !text_int(mem, MEMORY_MIN, MEMORY_MAX, &s->memory_mb))
        return bad(e, "courier.memory must be MiB, at least 64");
    if (cpu && !text_double(cpu, 0.1, 1024, &s->cpus))
        return bad(e, "courier.cpu must be a number, at least 0.1");
    return 0;
}

/* ---- the rest of the body ---- */

static int take_template(json_t *body, struct box_spec *s, struct err *e)
{
    const char *t = json_string_value(json_object_get(body, "templateID"));

    if (!t || !*t)
        return bad(e, "templateID is missing");
    if (strlen(t) > 128)
        return bad(e, "templateID is too long");
    for (const char *p = t; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._/:-", *p))
            return bad(e, "templateID is malformed");
    s->template = xstrdup(t);
    return 0;
}

static int take_timeout(json_t *body, bool v2, struct box_spec *s,
                        struct err *e)
{
    json_t *t = json_object_get(body, "timeout");
    json_int_t secs = v2 ? 300 : 15;

    if (json_is_number(t))
        secs = (json_int_t)json_number_value(t);
    else if (t && !json_is_null(t))
        return bad(e, "timeout must be a number of seconds");
    if (secs <= 0)
        return bad(e, "Timeout must be greater than 0");
    if (secs > TIMEOUT_MAX)
        return bad(e, "Timeout cannot be greater than 24 hours");
    s->timeout_ms = secs * 1000;
    return 0;
}

static int take_env(json_t *body, struct box_spec *s, struct err *e)
{
    json_t *env = json_object_get(body, "envVars"), *value;
    const char *key;
    size_t n = 0;

    if (!json_is_object(env))
        return env && !json_is_null(env) ? bad(e, "envVars must be an object")
                                         : 0;
    if (!all_strings(env))
        return bad(e, "the values of envVars must be strings");
    s->env = xcalloc(json_object_size(env) + 1, sizeof(char *));
    json_object_foreach(env, key, value)
    {
        if (!*key || strchr(key, '='))
            return bad(e, "a name in envVars is malformed");
        s->env[n++] = xasprintf("%s=%s", key, json_string_value(value));
    }
    return 0;
}

static int take_life(json_t *body, bool v2, struct box_spec *s, struct err *e)
{
    json_t *resume = json_object_get(body, "autoResume");

    s->secure = v2 || json_is_true(json_object_get(body, "secure"));
    s->auto_pause = json_is_true(json_object_get(body, "autoPause"));
    s->auto_resume = json_is_true(json_object_get(resume, "enabled"));
    if (json_is_false(json_object_get(body, "autoPauseMemory")) &&
        (!s->auto_pause || s->auto_resume))
        return bad(e, "autoPauseMemory=false needs autoPause, and no "
                      "autoResume");
    if (json_array_size(json_object_get(body, "volumeMounts")))
        return bad(e, "volumes are not possible on the local host");
    return 0;
}

static int take_network(json_t *body, struct box_spec *s, struct err *e)
{
    json_t *n = json_object_get(body, "network");
    json_t *internet = json_object_get(body, "allow_internet_access");

    s->internet = json_is_boolean(internet) ? json_is_true(internet) : -1;
    s->network = json_is_object(n) ? json_incref(n) : NULL;
    s->private_traffic =
        json_is_false(json_object_get(n, "allowPublicTraffic"));
    if (s->private_traffic && !s->secure)
        return bad(e, "allowPublicTraffic=false needs secure");
    return create_network(body, &s->net, &s->allow, e);
}

int create_parse(json_t *body, bool v2, bool local, struct box_spec *s,
                 struct err *e)
{
    json_t *meta = json_object_get(body, "metadata");
    int rc;

    *s = (struct box_spec){0};
    if (!json_is_object(body))
        return bad(e, "the body must be a JSON object");
    if (meta && !json_is_null(meta) &&
        (!json_is_object(meta) || !all_strings(meta)))
        return bad(e, "metadata must be an object of strings");
    s->metadata = json_is_object(meta) ? json_incref(meta) : json_object();
    if ((rc = take_template(body, s, e)) ||
        (rc = take_timeout(body, v2, s, e)))
        return rc;
    if ((rc = take_env(body, s, e)) || (rc = take_life(body, v2, s, e)))
        return rc;
    if ((rc = take_network(body, s, e)) ||
        (rc = courier_network(meta, local, s, e)))
        return rc;
    rc = courier_binds(meta, local, s, e);
    return rc ? rc : courier_limits(meta, s, e);
}
