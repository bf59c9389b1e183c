#include "local/control.h"

#include "local/http.h"
#include "local/net.h"

#include <ctype.h>

enum { BODY_MAX = 4 << 20, REFRESH_MIN = 15, REFRESH_MAX = 3600 };

void control_fail(struct req *r, int status, const char *fmt, ...)
{
    AUTO_BUF struct buf b = {0};
    AUTO_BUF struct buf shown = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&b, fmt, ap);
    va_end(ap);
    text_printable(&shown, buf_str(&b), b.n, 0);
    reply_json(
        r, status,
        json_pack("{s:i, s:s}", "code", status, "message", buf_str(&shown)));
}

bool control_id_ok(const char *id)
{
    size_t n = 0;

    for (; id[n]; n++)
        if (!islower((unsigned char)id[n]) && !isdigit((unsigned char)id[n]))
            return false;
    return n > 0 && n < 64;
}

static void not_found(struct req *r, const char *id)
{
    char why[200];

    if (box_obituary(id, why, sizeof(why)) && strcmp(why, "killed") != 0)
        control_fail(r, 404,
                     "Sandbox \"%s\" doesn't exist or you don't have "
                     "access to it: it ended: %s",
                     id, why);
    else
        control_fail(r, 404,
                     "Sandbox \"%s\" doesn't exist or you don't have "
                     "access to it",
                     id);
}

/* the JSON of the body, an empty object when there is none; NULL: answered */
static json_t *body_of(struct req *r)
{
    json_t *j;

    if (!r->body.n)
        return json_object();
    j = json_loadb(r->body.p, r->body.n, 0, NULL);
    if (!json_is_object(j)) {
        json_decref(j);
        control_fail(r, 400, "the body must be a JSON object");
        return NULL;
    }
    return j;
}

/* seconds at key; dflt when absent; -1 when it is no number */
static int64_t seconds(json_t *body, const char *key, int64_t dflt)
{
    json_t *t = json_object_get(body, key);

    if (!t || json_is_null(t))
        return dflt;
    return json_is_number(t) && json_number_value(t) >= 0
               ? (int64_t)json_number_value(t)
               : -1;
}

static json_t *sandbox_json(struct box *b)
{
    const char *traffic = box_traffic_token(b);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:n}", "sandboxID",
                          box_id(b), "templateID", box_spec(b)->template,
                          "alias", box_spec(b)->template, "clientID", "local",
                          "envdVersion", "0.6.13", "domain");

    if (*box_token(b))
        json_object_set_new(j, "envdAccessToken", json_string(box_token(b)));
    json_object_set_new(j, "trafficAccessToken",
                        traffic ? json_string(traffic) : json_null());
    return j;
}

/* ---- create, get, kill ---- */

static int create_status(const struct err *e)
{
    return e->code == ENOTSUP || e->code == EINVAL ? 400
           : e->code == EBUSY                      ? 503
                                                   : 500;
}

static void do_create(struct req *r, bool v2)
{
    json_t *body = body_of(r);
    struct box_spec s = {0};
    struct box *b = NULL;
    struct err e = {0};
    int status;

    if (!body)
        return;
    status = create_parse(body, v2, http_local(r), &s, &e);
    json_decref(body);
    if (!status && box_create(&s, &b, &e) < 0)
        status = create_status(&e);
    box_spec_free(&s);
    if (status) {
        control_fail(r, status, "%s", e.text);
        return;
    }
    reply_json(r, 201, sandbox_json(b));
    box_put(b);
}

static void on_create(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    do_create(r, false);
}

static void on_create2(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    do_create(r, true);
}

static void on_list(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    list_handle(r, false);
}

static void on_list2(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    list_handle(r, true);
}

static void on_get(struct req *r, struct box *b, const char *id)
{
    const struct box_spec *s = box_spec(b);
    struct box_info info;
    json_t *j;

    if (!box_look(b, &info)) {
        not_found(r, id);
        return;
    }
    j = list_sandbox(b, &info);
    json_object_set_new(j, "domain", json_null());
    if (*box_token(b))
        json_object_set_new(j, "envdAccessToken", json_string(box_token(b)));
    json_object_set_new(j, "allowInternetAccess",
                        s->internet < 0 ? json_null()
                                        : json_boolean(s->internet));
    if (s->network)
        json_object_set(j, "network", s->network);
    json_object_set_new(j, "lifecycle",
                        json_pack("{s:b, s:s}", "autoResume", s->auto_resume,
                                  "onTimeout",
                                  s->auto_pause ? "pause" : "kill"));
    reply_json(r, 200, j);
}

static void on_kill(struct req *r, struct box *b, const char *id)
{
    if (box_kill(b, "killed") < 0)
        not_found(r, id);
    else
        reply(r, 204, NULL, NULL, 0);
}

/* ---- time ---- */

static void on_timeout(struct req *r, struct box *b, const char *id)
{
    json_t *body = body_of(r);
    int64_t secs;

    if (!body)
        return;
    secs = seconds(body, "timeout", -1);
    json_decref(body);
    if (secs < 0)
        control_fail(r, 400, "timeout must be a number of seconds");
    else if (box_deadline(b, (secs > TIMEOUT_MAX ? TIMEOUT_MAX : secs) * 1000,
                          false) < 0)
        not_found(r, id);
    else
        reply(r, 204, NULL, NULL, 0);
}

static void on_refresh(struct req *r, struct box *b, const char *id)
{
    json_t *body = body_of(r);
    int64_t secs;

    if (!body)
        return;
    secs = seconds(body, "duration", REFRESH_MIN);
    json_decref(body);
    if (secs < 0 || secs > REFRESH_MAX) {
        control_fail(r, 400, "duration must be 0 to 3600 seconds");
        return;
    }
    if (secs < REFRESH_MIN)
        secs = REFRESH_MIN;
    if (box_deadline(b, secs * 1000, true) < 0)
        not_found(r, id);
    else
        reply(r, 204, NULL, NULL, 0);
}

static void on_pause(struct req *r, struct box *b, const char *id)
{
    struct err e = {0};
    int rc = box_pause(b, &e);

    if (rc == 0)
        reply(r, 204, NULL, NULL, 0);
    else if (rc == -EALREADY)
        control_fail(r, 409, "Sandbox \"%s\" is already paused", id);
    else if (rc == -ENOENT)
        not_found(r, id);
    else
        control_fail(r, 500, "Sandbox \"%s\": %s", id, e.text);
}

/* 200 when it ran, 201 when it was resumed, else answered */
static int wake(struct req *r, struct box *b, const char *id, int64_t secs)
{
    struct err e = {0};

    for (int i = 0; i < 3; i++) {
        int rc = box_resume(b, secs * 1000, &e);

        if (rc == 0)
            return 201;
        if (rc == -EALREADY && box_deadline(b, secs * 1000, true) == 0)
            return 200;
        if (rc != -EALREADY) {
            if (rc == -ENOENT)
                not_found(r, id);
            else
                control_fail(r, 500, "Sandbox \"%s\": %s", id, e.text);
            return 0;
        }
    }
    not_found(r, id);
    return 0;
}

static void do_connect(struct req *r, struct box *b, const char *id, bool v2)
{
    json_t *body = body_of(r);
    int64_t secs;
    int status;

    if (!body)
        return;
    secs = seconds(body, "timeout", v2 ? 300 : -1);
    json_decref(body);
    if (secs < 0) {
        control_fail(r, 400, "timeout must be a number of seconds");
    } else if (secs > TIMEOUT_MAX) {
        control_fail(r, 400, "Timeout cannot be greater than 24 hours");
    } else {
        status = wake(r, b, id, secs);
        if (status)
            reply_json(r, status, sandbox_json(b));
    }
}

static void on_connect(struct req *r, struct box *b, const char *id)
{
    do_connect(r, b, id, false);
}

static void on_connect2(struct req *r, struct box *b, const char *id)
{
    do_connect(r, b, id, true);
}

static void on_resume(struct req *r, struct box *b, const char *id)
{
    json_t *body = body_of(r), *pause;
    struct err e = {0};
    int64_t secs;
    int rc;

    if (!body)
        return;
    secs = seconds(body, "timeout", 15);
    pause = json_object_get(body, "autoPause");
    if (secs < 0 || secs > TIMEOUT_MAX)
        secs = secs < 0 ? 15 : TIMEOUT_MAX;
    rc = box_resume(b, secs * 1000, &e);
    if (!rc && json_is_boolean(pause))
        box_auto_pause_set(b, json_is_true(pause));
    json_decref(body);
    if (rc == 0)
        reply_json(r, 201, sandbox_json(b));
    else if (rc == -EALREADY)
        control_fail(r, 409, "Sandbox \"%s\" is already running", id);
    else if (rc == -ENOENT)
        not_found(r, id);
    else
        control_fail(r, 500, "Sandbox \"%s\": %s", id, e.text);
}

/* ---- network, logs, metrics ---- */

static void on_network(struct req *r, struct box *b, const char *id)
{
    json_t *body = body_of(r);
    enum net_mode mode;
    char **hosts;
    struct err e = {0};
    int status, rc;

    if (!body)
        return;
    status = create_network(body, &mode, &hosts, &e);
    json_decref(body);
    if (!status && box_paused(b)) {
        status = 409;
        err_set(&e, EBUSY, "Sandbox \"%s\" is paused", id);
    }
    rc = status ? 0 : box_network(b, mode, hosts, &e);
    if (rc == -ENOENT)
        not_found(r, id);
    else if (status || rc)
        control_fail(r,
                     status           ? status
                     : rc == -ENOTSUP ? 400
                                      : 500,
                     "%s", e.text);
    else
        reply(r, 204, NULL, NULL, 0);
    for (size_t i = 0; hosts && hosts[i]; i++)
        free(hosts[i]);
    free(hosts);
}

struct log_ask {
    json_t *lines, *entries;
    int64_t start;
};

static void log_line(const struct box_line *l, void *arg)
{
    struct log_ask *a = arg;
    AUTO_FREE char *text = NULL;
    json_t *line;
    char at[40];

    if (l->at < a->start)
        return;
    list_time(l->at, at);
    line = json_pack("{s:s, s:s, s:s}", "level", l->level, "logger",
                     "sandboxd", "message", l->text);
    text = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    if (!text)
        return;
    json_array_append_new(
        a->lines, json_pack("{s:s, s:s}", "timestamp", at, "line", text));
    json_array_append_new(a->entries,
                          json_pack("{s:s, s:s, s:s, s:{}}", "timestamp", at,
                                    "message", l->text, "level", l->level,
                                    "fields"));
}

static int64_t number_of(struct req *r, const char *key)
{
    const char *s = req_query(r, key);
    int64_t n;

    return s && text_int(s, 0, INT64_MAX, &n) ? n : 0;
}

static void logs(struct req *r, const char *id, bool v2)
{
    struct log_ask a = {json_array(), json_array(),
                        number_of(r, v2 ? "cursor" : "start")};
    const char *way = req_query(r, "direction");
    json_t *out = NULL;

    if (v2 && !(way && strcmp(way, "forward") == 0))
        a.start = 0;
    if (!box_lines(id, log_line, &a)) {
        not_found(r, id);
    } else if (!v2) {
        out =
            json_pack("{s:O, s:O}", "logs", a.lines, "logEntries", a.entries);
    } else if (way && strcmp(way, "forward") == 0) {
        out = json_pack("{s:O}", "logs", a.entries);
    } else {
        json_t *back = json_array();

        for (size_t i = json_array_size(a.entries); i-- > 0;)
            json_array_append(back, json_array_get(a.entries, i));
        out = json_pack("{s:o}", "logs", back);
    }
    json_decref(a.lines);
    json_decref(a.entries);
    if (out)
        reply_json(r, 200, out);
}

static void on_logs(struct req *r, struct box *b, const char *id)
{
    (void)b;
    logs(r, id, false);
}

static void on_logs2(struct req *r, struct box *b, const char *id)
{
    (void)b;
    logs(r, id, true);
}

static json_t *metric(struct box *b)
{
    struct box_usage u;
    char at[40];
    int64_t now = now_ms();

    box_usage(b, &u);
    list_time(now, at);
    return json_pack(
        "{s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "timestamp", at,
        "timestampUnix", (json_int_t)(now / 1000), "cpuCount",
        (json_int_t)(box_spec(b)->cpus < 1 ? 1 : box_spec(b)->cpus),
        "cpuUsedPct", u.cpu_pct, "memUsed", (json_int_t)u.mem, "memTotal",
        (json_int_t)u.mem_total, "memCache", (json_int_t)u.cache, "diskUsed",
        (json_int_t)u.disk, "diskTotal", (json_int_t)u.disk_total);
}

static void on_metrics(struct req *r, struct box *b, const char *id)
{
    (void)id;
    reply_json(r, 200, json_pack("[o]", metric(b)));
}

static void on_all_metrics(struct req *r, struct box *b, const char *id)
{
    AUTO_FREE char *ids = xstrdup(req_query(r, "sandbox_ids"));
    json_t *all = json_object();
    char *save = NULL;

    (void)b;
    (void)id;
    for (char *one = ids ? strtok_r(ids, ",", &save) : NULL; one;
         one = strtok_r(NULL, ",", &save)) {
        struct box *box = box_get(one);

        if (box)
            json_object_set_new(all, one, metric(box));
        box_put(box);
    }
    reply_json(r, 200, json_pack("{s:o}", "sandboxes", all));
}

/* ---- what a local host has only in name ---- */

static void on_impossible(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    control_fail(r, 501,
                 "the local host can't do that: it has no snapshots "
                 "and no forks, only pause and resume");
}

static void on_none(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    reply_json(r, 200, json_array());
}

static void on_templates(struct req *r, struct box *b, const char *id)
{
    static const char at[] = "2026-01-01T00:00:00Z";

    (void)b;
    (void)id;
    reply_json(r, 200,
               json_pack("[{s:s, s:s, s:i, s:i, s:i, s:b, s:[s], s:[s], s:s, "
                         "s:s, s:n, s:n, s:i, s:i, s:s, s:s}]",
                         "templateID", "base", "buildID", "local", "cpuCount",
                         2, "memoryMB", 1024, "diskSizeMB", BOX_DISK_MB,
                         "public", 1, "aliases", "base", "names", "base",
                         "createdAt", at, "updatedAt", at, "createdBy",
                         "lastSpawnedAt", "spawnCount", 0, "buildCount", 1,
                         "envdVersion", "0.6.13", "buildStatus", "ready"));
}

static void on_no_template(struct req *r, struct box *b, const char *id)
{
    (void)b;
    control_fail(r, 404, "template '%s' not found", id);
}

static void on_teams(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    reply_json(r, 200,
               json_pack("[{s:s, s:s, s:s, s:b}]", "teamID", "local", "name",
                         "local", "apiKey", "", "isDefault", 1));
}

static void on_health(struct req *r, struct box *b, const char *id)
{
    (void)b;
    (void)id;
    reply(r, 204, NULL, NULL, 0);
}

static void on_limits(struct req *r, struct box *b, const char *id)
{
    struct box_limits l;

    (void)b;
    (void)id;
    box_limits(&l);
    reply_json(r, 200,
               json_pack("{s:s, s:s, s:s, s:s, s:s}", "memory", l.memory,
                         "cpu", l.cpu, "pids", l.pids, "freeze", l.freeze,
                         "network", l.network));
}

/* ---- the table ---- */

/* {} stands for a sandbox that must exist, {?} for any word */
static const struct route {
    const char *method, *path;
    void (*fn)(struct req *r, struct box *b, const char *id);
} routes[] = {
    {"POST", "/sandboxes", on_create},
    {"POST", "/v2/sandboxes", on_create2},
    {"GET", "/sandboxes", on_list},
    {"GET", "/v2/sandboxes", on_list2},
    {"GET", "/sandboxes/metrics", on_all_metrics},
    {"GET", "/sandboxes/{}", on_get},
    {"DELETE", "/sandboxes/{}", on_kill},
    {"POST", "/sandboxes/{}/timeout", on_timeout},
    {"POST", "/sandboxes/{}/refreshes", on_refresh},
    {"POST", "/sandboxes/{}/pause", on_pause},
    {"POST", "/sandboxes/{}/connect", on_connect},
    {"POST", "/v2/sandboxes/{}/connect", on_connect2},
    {"POST", "/sandboxes/{}/resume", on_resume},
    {"POST", "/sandboxes/{}/fork", on_impossible},
    {"POST", "/sandboxes/{}/snapshots", on_impossible},
    {"GET", "/snapshots", on_none},
    {"PUT", "/sandboxes/{}/network", on_network},
    {"GET", "/sandboxes/{?}/logs", on_logs},
    {"GET", "/v2/sandboxes/{?}/logs", on_logs2},
    {"GET", "/sandboxes/{}/metrics", on_metrics},
    {"GET", "/templates", on_templates},
    {"GET", "/v2/templates", on_templates},
    {"GET", "/templates/{?}", on_no_template},
    {"DELETE", "/templates/{?}", on_no_template},
    {"GET", "/teams", on_teams},
    {"GET", "/health", on_health},
    {"GET", "/limits", on_limits},
};

/* 0 no, 1 yes, 2 yes with a sandbox that must exist; the word into id */
static int matches(const char *pattern, const char *path, char id[64])
{
    const char *hole = strchr(pattern, '{');
    const char *tail;
    size_t n;

    if (!hole)
        return strcmp(pattern, path) == 0;
    if (strncmp(pattern, path, (size_t)(hole - pattern)) != 0)
        return 0;
    path += hole - pattern;
    n = strcspn(path, "/");
    tail = strchr(hole, '}') + 1;
    if (!n || n >= 64 || strcmp(path + n, tail) != 0)
        return 0;
    memcpy(id, path, n);
    id[n] = 0;
    return hole[1] == '?' ? 1 : 2;
}

static void with_box(struct req *r, const struct route *route, char *id)
{
    struct box *b;

    id[strcspn(id, "-")] = 0; /* the old form <id>-<client> */
    if (!control_id_ok(id)) {
        control_fail(r, 400, "Invalid sandbox ID");
        return;
    }
    b = box_get(id);
    if (b)
        route->fn(r, b, id);
    else
        not_found(r, id);
    box_put(b);
}

void control_handle(struct req *r)
{
    bool path_known = false;
    char id[64] = "";

    if (http_body(r, BODY_MAX) < 0) {
        control_fail(r, 400, "the body is malformed or too large");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        int kind = matches(routes[i].path, r->path, id);

        if (!kind)
            continue;
        path_known = true;
        if (strcmp(r->method, routes[i].method) != 0)
            continue;
        if (kind == 2)
            with_box(r, &routes[i], id);
        else
            routes[i].fn(r, NULL, id);
        return;
    }
    control_fail(r, path_known ? 405 : 404,
                 path_known ? "method not allowed"
                            : "no such call on the local host");
}
