/* http.c -- see http.h.  libmicrohttpd has a thread for each connection; an answer is computed by one more, which writes its lines
 * into a pipe: where the browser goes away the pipe breaks, and the answer is given up at its next sign of progress. */
#include "sim/serve/http.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#include <microhttpd.h>

#include "base/fail.h"
#include "sim/serve/http_guard.h"

struct http {
    const struct http_service *s;
    struct MHD_Daemon *daemon;
    struct http_guard guard;
    char address[96];
    atomic_int answers;                 /* under way */
    atomic_bool over;
    pthread_mutex_t lock;               /* of what follows: connections whose request is not there whole */
    struct { int fd; double since; bool used; } late[HTTP_CONNECTIONS];
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- connections that take too long to ask ---- */

static int descriptor(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

    return i ? (int)i->connect_fd : -1;
}

static void late_set(struct http *h, int fd, bool waits)
{
    int at = -1;

    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < HTTP_CONNECTIONS; i++)
        if (h->late[i].used ? h->late[i].fd == fd : waits && at < 0)
            at = i;
    if (at >= 0) {
        h->late[at].fd = fd;
        h->late[at].since = now_s();
        h->late[at].used = waits;
    }
    pthread_mutex_unlock(&h->lock);
}

static void connected(void *of, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what)
{
    (void)own;
    late_set(of, descriptor(c), what == MHD_CONNECTION_NOTIFY_STARTED);
}

/* A connection that sends a byte now and then is not idle: it is ended all the same. */
static void end_late(struct http *h)
{
    double since = now_s() - HTTP_PATIENCE_S;

    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < HTTP_CONNECTIONS; i++)
        if (h->late[i].used && h->late[i].since < since)
            shutdown(h->late[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&h->lock);
}

/* ---- an answer ---- */

/* Of the thread that computes and the one that sends; the last of them frees it. */
struct answer {
    struct http *h;
    char  *call, *request;
    int    out, in;                     /* the pipe: lines go in at `in` */
    double last, begun;                 /* of a line of progress */
    atomic_int holders;
};

static void answer_leave(struct answer *a)
{
    if (atomic_fetch_sub(&a->holders, 1) > 1)
        return;
    free(a->call);
    free(a->request);
    free(a);
}

static bool write_line(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t k = write(fd, text, n);
        if (k <= 0)
            return false;
        text += k;
        n -= (size_t)k;
    }
    return true;
}

/* Ten lines a second at most. */
static bool tell(void *of, long long done, long long total)
{
    struct answer *a = of;
    double now = now_s();
    char line[96];

    if (a->h->over)
        return false;
    if (now - a->last < .1)
        return true;
    a->last = now;
    int n = snprintf(line, sizeof line, "{\"done\": %lld, \"total\": %lld}\n", done, total);
    return write_line(a->in, line, (size_t)n);
}

static void *compute(void *of)
{
    struct answer *a = of;
    const struct http_service *s = a->h->s;
    int status = 1;
    char *text = s->answer(s->of, a->call, a->request, tell, a, &status);
    json_t *doc = json_pack("{s:i, s:s}", "status", text ? status : 2, "answer", text ? text : "there is no such call");
    char *line = doc ? json_dumps(doc, JSON_COMPACT) : NULL;

    if (line && write_line(a->in, line, strlen(line)))
        write_line(a->in, "\n", 1);
    free(line);
    json_decref(doc);
    free(text);
    close(a->in);
    atomic_fetch_sub(&a->h->answers, 1);
    answer_leave(a);
    return NULL;
}

/* What the browser gets next; an empty line each second shows whether it is still there. */
static ssize_t send_more(void *of, uint64_t at, char *to, size_t most)
{
    static const char late[] = "{\"status\": 1, \"answer\": \"the answer took too long and was given up\"}\n";
    struct answer *a = of;
    struct pollfd p = { .fd = a->out, .events = POLLIN };

    (void)at;
    if (a->h->over)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (poll(&p, 1, 1000) == 0) {
        if (now_s() - a->begun > HTTP_ANSWER_S && most >= sizeof late) {
            a->begun = 1e300;           /* said once */
            memcpy(to, late, sizeof late - 1);
            return sizeof late - 1;
        }
        *to = '\n';
        return a->begun < 1e299 ? 1 : MHD_CONTENT_READER_END_OF_STREAM;
    }
    ssize_t n = read(a->out, to, most);
    return n > 0 ? n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void sent(void *of)
{
    struct answer *a = of;

    close(a->out);
    answer_leave(a);
}

static struct answer *answer_begin(struct http *h, const char *call, char *request)
{
    struct answer *a = calloc(1, sizeof *a);
    int ends[2];
    pthread_t thread;

    if (!a || pipe(ends) < 0) {
        free(a);
        free(request);
        return NULL;
    }
    *a = (struct answer){ h, strdup(call), request, ends[0], ends[1], now_s(), now_s(), 2 };
    atomic_fetch_add(&h->answers, 1);
    if (a->call && pthread_create(&thread, NULL, compute, a) == 0) {
        pthread_detach(thread);
        return a;
    }
    atomic_fetch_sub(&h->answers, 1);
    close(ends[0]);
    close(ends[1]);
    answer_leave(a);
    answer_leave(a);
    return NULL;
}

/* ---- a request ---- */

struct request { char *body; size_t n, room; };

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, struct MHD_Response *r, const char *type)
{
    static const char *const headers[][2] = {
        { "Cache-Control", "no-store" }, { "X-Content-Type-Options", "nosniff" }, { "Referrer-Policy", "no-referrer" },
        { "X-Frame-Options", "DENY" }, { "Cross-Origin-Resource-Policy", "same-origin" }, { "Cross-Origin-Opener-Policy", "same-origin" },
        { "Content-Security-Policy", "frame-ancestors 'none'" },
    };

    if (!r)
        return MHD_NO;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        MHD_add_response_header(r, headers[i][0], headers[i][1]);
    MHD_add_response_header(r, "Content-Type", type);
    enum MHD_Result rc = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *why)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%s\n", why);

    return reply(c, status, MHD_create_response_from_buffer((size_t)n, line, MHD_RESPMEM_MUST_COPY), "text/plain; charset=utf-8");
}

static enum MHD_Result send_answer(struct http *h, struct MHD_Connection *c, const char *call, struct request *r)
{
    char *body = r->body ? r->body : strdup("");

    r->body = NULL;                     /* the answer's from now on */
    if (atomic_load(&h->answers) >= HTTP_ANSWERS) {
        free(body);
        return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "too many answers are under way: ask again");
    }
    struct answer *a = answer_begin(h, call, body);
    return a ? reply(c, MHD_HTTP_OK, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1 << 16, send_more, a, sent), "application/x-ndjson")
             : refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "no thread for another answer");
}

static bool add_body(struct request *r, const char *data, size_t n)
{
    if (r->n + n > HTTP_BODY)
        return false;
    if (r->n + n + 1 > r->room) {
        size_t room = 2 * (r->n + n + 1);
        char *body = realloc(r->body, room);
        if (!body)
            return false;
        r->body = body;
        r->room = room;
    }
    memcpy(r->body + r->n, data, n);
    r->n += n;
    r->body[r->n] = '\0';
    return true;
}

static const char *header(struct MHD_Connection *c, const char *name) { return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name); }

/* Before any of the body: who asks, and for what. */
static const char *check(const struct http *h, struct MHD_Connection *c, const char *path, const char *method, unsigned *status)
{
    struct http_asked q = { method, path, header(c, "Host"), header(c, "Origin"), header(c, "Sec-Fetch-Site"), header(c, "Content-Type"),
                            header(c, "Content-Length"), header(c, "X-Dpx-Token"), MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "token") };

    return http_guard_check(&h->guard, &q, status);
}

static enum MHD_Result handle(void *of, struct MHD_Connection *c, const char *path, const char *method, const char *version,
                              const char *data, size_t *n, void **own)
{
    struct http *h = of;
    struct request *r = *own;
    unsigned status;

    (void)version;
    if (!r) {
        const char *why = check(h, c, path, method, &status);
        if (why)
            return refuse(c, status, why);
        *own = calloc(1, sizeof *r);
        return *own ? MHD_YES : MHD_NO;
    }
    if (*n > 0) {
        if (!add_body(r, data, *n))
            return MHD_NO;
        *n = 0;
        return MHD_YES;
    }
    late_set(h, descriptor(c), false);
    if (!strcmp(method, "POST"))
        return send_answer(h, c, path + strlen(HTTP_ASK), r);
    return reply(c, MHD_HTTP_OK, MHD_create_response_from_buffer(h->s->page_size, (void *)(uintptr_t)h->s->page, MHD_RESPMEM_PERSISTENT),
                 "text/html; charset=utf-8");
}

/* The next request of the connection has its own time. */
static void completed(void *of, struct MHD_Connection *c, void **own, enum MHD_RequestTerminationCode how)
{
    struct request *r = *own;

    if (how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        late_set(of, descriptor(c), true);
    if (r)
        free(r->body);
    free(r);
    *own = NULL;
}

/* ---- the whole ---- */

struct http *http_open(const struct http_service *s, int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct http *h = calloc(1, sizeof *h);
    sigset_t ends;

    if (!h)
        abort();
    h->s = s;
    pthread_mutex_init(&h->lock, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);        /* of all threads: http_wait() takes them */
    if (http_guard_token(&h->guard) == 0)
        h->daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, handle, h,
            MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_PATIENCE_S,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)1 << 17, MHD_OPTION_NOTIFY_COMPLETED, completed, h,
            MHD_OPTION_NOTIFY_CONNECTION, connected, h, MHD_OPTION_END);
    const union MHD_DaemonInfo *i = h->daemon ? MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    if (!i) {
        fail("port %d of 127.0.0.1 cannot be listened on: it is taken, or not allowed", port);
        http_close(h);
        return NULL;
    }
    http_guard_port(&h->guard, i->port);
    snprintf(h->address, sizeof h->address, "http://127.0.0.1:%d/?token=%s", (int)i->port, h->guard.token);
    return h;
}

const char *http_address(const struct http *h) { return h->address; }

void http_wait(struct http *h)
{
    const struct timespec second = { 1, 0 };
    sigset_t ends;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    while (sigtimedwait(&ends, NULL, &second) < 0)
        end_late(h);
}

void http_close(struct http *h)
{
    const struct timespec moment = { 0, 20000000 };

    h->over = true;
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    for (int i = 0; i < 100 && atomic_load(&h->answers) > 0; i++)
        nanosleep(&moment, NULL);
    if (atomic_load(&h->answers) > 0)
        _exit(0);                       /* an answer that cannot be asked to stop */
    pthread_mutex_destroy(&h->lock);
    free(h);
}
