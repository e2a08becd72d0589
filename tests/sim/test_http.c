/* The page's server attacked from this machine: other pages, other names, no token, too much, too slow, too many. */
#include "tests/check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "sim/serve/http.h"
#include "sim/serve/http_guard.h"

/* ---- who may ask, without a socket ---- */

static struct http_guard guard = { .token = "0123456789abcdef0123456789abcdef" };

static unsigned answers(struct http_asked q)
{
    unsigned status;
    const char *why = http_guard_check(&guard, &q, &status);

    assert_true((why == NULL) == (status == 200));
    return status;
}

#define GOOD_HOST "127.0.0.1:4711"
#define ASKS .method = "POST", .path = "/ask/eval", .type = "application/json", .token = guard.token
#define OPENS .method = "GET", .path = "/", .token_in_address = guard.token

static void only_the_page_with_the_token_is_answered(void **state)
{
    (void)state;
    http_guard_port(&guard, 4711);
    assert_int_equal(answers((struct http_asked){ OPENS, .host = GOOD_HOST }), 200);
    assert_int_equal(answers((struct http_asked){ OPENS, .host = "localhost:4711", .site = "none" }), 200);
    assert_int_equal(answers((struct http_asked){ ASKS, .host = GOOD_HOST, .origin = "http://127.0.0.1:4711", .site = "same-origin" }), 200);
    assert_int_equal(answers((struct http_asked){ ASKS, .host = "LocalHost:4711" }), 200);
    /* A name that somebody lets point here, and this address at another port. */
    static const char *const hosts[] = { NULL, "", "evil.example", "evil.example:4711", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:47110",
                                         "127.0.0.1:4711.evil.example", "localhost", "[::1]:4711", "0.0.0.0:4711" };
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        assert_int_equal(answers((struct http_asked){ OPENS, .host = hosts[i] }), 403);
        assert_int_equal(answers((struct http_asked){ ASKS, .host = hosts[i] }), 403);
    }
    /* Another page. */
    static const char *const origins[] = { "null", "", "http://evil.example", "https://127.0.0.1:4711", "http://127.0.0.1", "http://127.0.0.1:4712" };
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        assert_int_equal(answers((struct http_asked){ ASKS, .host = GOOD_HOST, .origin = origins[i] }), 403);
    assert_int_equal(answers((struct http_asked){ ASKS, .host = GOOD_HOST, .site = "cross-site" }), 403);
    assert_int_equal(answers((struct http_asked){ ASKS, .host = GOOD_HOST, .site = "same-site" }), 403);
}

static void a_wrong_token_is_no_token(void **state)
{
    (void)state;
    static const char *const tokens[] = { NULL, "", "0", "0123456789abcdef0123456789abcdee", "0123456789abcdef0123456789abcdef0", "0123456789ABCDEF0123456789ABCDEF" };

    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        assert_int_equal(answers((struct http_asked){ .method = "GET", .path = "/", .host = GOOD_HOST, .token_in_address = tokens[i] }), 403);
        assert_int_equal(answers((struct http_asked){ .method = "POST", .path = "/ask/eval", .host = GOOD_HOST, .type = "application/json",
                                                      .token = tokens[i] }), 403);
    }
    /* A form can put it into the address alone, and a link sets no header. */
    assert_int_equal(answers((struct http_asked){ .method = "POST", .path = "/ask/eval", .host = GOOD_HOST, .type = "application/json",
                                                  .token_in_address = guard.token }), 403);
    struct http_guard other[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(http_guard_token(&other[i]), 0);
    assert_int_equal(strlen(other[0].token), 32);
    assert_string_not_equal(other[0].token, other[1].token);
}

static void only_two_paths_are_there(void **state)
{
    (void)state;
    static const char *const paths[] = { "/..", "/../etc/passwd", "//", "/index.html", "/ask", "", "/%2e%2e/", "/favicon.ico" };

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_int_equal(answers((struct http_asked){ .method = "GET", .path = paths[i], .host = GOOD_HOST, .token_in_address = guard.token }), 404);
    assert_int_equal(answers((struct http_asked){ .method = "POST", .path = "/", .host = GOOD_HOST, .token_in_address = guard.token }), 405);
    assert_int_equal(answers((struct http_asked){ .method = "GET", .path = "/ask/eval", .host = GOOD_HOST, .token = guard.token }), 405);
    assert_int_equal(answers((struct http_asked){ .method = "POST", .path = "/ask/eval", .host = GOOD_HOST, .token = guard.token,
                                                  .type = "text/plain" }), 415);
    static const char *const lengths[] = { "20971521", "999999999999", "99999999999999999999999999999" };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        assert_int_equal(answers((struct http_asked){ ASKS, .host = GOOD_HOST, .length = lengths[i] }), 413);
    assert_int_equal(answers((struct http_asked){ ASKS, .host = GOOD_HOST, .length = "20971520" }), 200);
}

#ifdef DPX_HTTPD

/* ---- over sockets ---- */

static atomic_int given_up, asked;

/* "echo": the request; "long": an answer that takes until it is given up. */
static char *answer(void *of, const char *call, const char *request, http_progress *progress, void *watch, int *status)
{
    const struct timespec moment = { 0, 10000000 };

    (void)of;
    asked++;
    *status = 0;
    if (!strcmp(call, "echo"))
        return strdup(request);
    if (strcmp(call, "long"))
        return NULL;
    for (long long i = 0; progress(watch, i, 1000000); i++)
        nanosleep(&moment, NULL);
    given_up++;
    return strdup("");
}

static const unsigned char page[] = "<p>page";
static const struct http_service service = { page, sizeof page - 1, answer, NULL };
static struct http *server;
static int port;
static char token[33];
static pthread_t waiting;

static void *wait_for_the_end(void *h)
{
    http_wait(h);
    return NULL;
}

static void start(void)
{
    server = http_open(&service, 0);
    assert_non_null(server);
    assert_int_equal(sscanf(http_address(server), "http://127.0.0.1:%d/?token=%32s", &port, token), 2);
    assert_int_equal(pthread_create(&waiting, NULL, wait_for_the_end, server), 0);
}

static int reach(const char *host)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct timeval most = { 30, 0 };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, host, &at.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

static void put(int fd, const char *text) { (void)!send(fd, text, strlen(text), MSG_NOSIGNAL); }

/* What comes until `until` is there, or the other side ends. */
static const char *take(int fd, const char *until)
{
    static char text[1 << 16];
    size_t n = 0;

    for (ssize_t k; n < sizeof text - 1 && (k = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0;) {
        text[n += (size_t)k] = '\0';
        if (until && strstr(text, until))
            break;
    }
    text[n] = '\0';
    return text;
}

static int post(const char *call, const char *length, const char *body)
{
    char head[512];
    int fd = reach("127.0.0.1");

    assert_true(fd >= 0);
    snprintf(head, sizeof head, "POST /ask/%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX-Dpx-Token: %s\r\nContent-Type: application/json\r\n%s\r\n\r\n",
             call, port, token, length);
    put(fd, head);
    put(fd, body);
    return fd;
}

static int status_of(int fd)
{
    int status = -1;

    sscanf(take(fd, "\r\n"), "HTTP/1.1 %d", &status);
    close(fd);
    return status;
}

static void it_answers_on_loopback_alone(void **state)
{
    (void)state;
    start();
    int fd = post("echo", "Content-Length: 8", "{\"a\": 1}");
    assert_non_null(strstr(take(fd, "answer"), "{\"status\":0,\"answer\":\"{\\\"a\\\": 1}\"}"));
    close(fd);
    assert_int_equal(reach("127.0.0.2"), -1);       /* nor on any other address of this machine */
    assert_int_equal(status_of(post("none", "Content-Length: 2", "{}")), 200);
    fd = reach("127.0.0.1");
    put(fd, "GET / HTTP/1.0\r\n\r\n");              /* no Host at all */
    assert_int_equal(status_of(fd), 403);
}

static void what_is_too_large_is_not_read(void **state)
{
    (void)state;
    static char chunk[(1 << 20) + 16];
    int fd, mib = 0, before = asked;

    assert_int_equal(status_of(post("echo", "Content-Length: 1000000000000", "{")), 413);
    fd = post("echo", "Transfer-Encoding: chunked", "");
    snprintf(chunk, sizeof chunk, "100000\r\n");
    memset(chunk + 8, ' ', 1 << 20);
    memcpy(chunk + 8 + (1 << 20), "\r\n", 2);
    while (mib < 256 && send(fd, chunk, (1 << 20) + 10, MSG_NOSIGNAL) > 0)
        mib++;
    assert_in_range(mib, 19, 60);                   /* HTTP_BODY, and what sockets hold */
    close(fd);
    fd = reach("127.0.0.1");
    put(fd, "GET / HTTP/1.1\r\nA: ");
    for (mib = 0; mib < 4 && send(fd, chunk + 8, 1 << 20, MSG_NOSIGNAL) > 0;)
        mib++;
    assert_int_not_equal(status_of(fd), 200);
    assert_int_equal(asked, before);
}

static bool is_ended(int fd)
{
    char c;

    return recv(fd, &c, 1, MSG_DONTWAIT) == 0 || send(fd, " ", 1, MSG_NOSIGNAL) < 0;
}

/* A byte now and then keeps no connection open, and a hundred that say nothing keep nobody out for longer than that. */
static void what_is_too_slow_is_ended(void **state)
{
    (void)state;
    enum { IDLE = 100 };
    const struct timespec moment = { 0, 500000000 };
    int slow[2] = { reach("127.0.0.1"), post("echo", "Content-Length: 1000", "{") }, idle[IDLE], turns = 0;

    put(slow[0], "GET / HT");
    for (int i = 0; i < IDLE; i++)
        idle[i] = reach("127.0.0.1");
    while (turns < 2 * (HTTP_PATIENCE_S + 5) && !(is_ended(slow[0]) && is_ended(slow[1]))) {
        nanosleep(&moment, NULL);
        turns++;
    }
    assert_in_range(turns, 2 * (HTTP_PATIENCE_S - 2), 2 * (HTTP_PATIENCE_S + 5) - 1);
    assert_int_equal(status_of(post("echo", "Content-Length: 2", "{}")), 200);
    for (int i = 0; i < IDLE; i++)
        close(idle[i]);
    close(slow[0]);
    close(slow[1]);
}

static void an_answer_nobody_waits_for_is_given_up(void **state)
{
    (void)state;
    const struct timespec moment = { 0, 100000000 };
    int fd = post("long", "Content-Length: 2", "{}");

    assert_non_null(strstr(take(fd, "\"total\""), "{\"done\": "));
    close(fd);
    for (int i = 0; i < 100 && given_up == 0; i++)
        nanosleep(&moment, NULL);
    assert_int_equal(given_up, 1);
}

static void only_so_many_answers_are_under_way_and_a_signal_ends_all(void **state)
{
    (void)state;
    int fd[HTTP_ANSWERS], before = given_up;

    for (int i = 0; i < HTTP_ANSWERS; i++) {
        fd[i] = post("long", "Content-Length: 2", "{}");
        take(fd[i], "\"total\"");
    }
    assert_int_equal(status_of(post("long", "Content-Length: 2", "{}")), 503);
    kill(getpid(), SIGINT);                         /* Ctrl-C */
    assert_int_equal(pthread_join(waiting, NULL), 0);
    http_close(server);
    assert_int_equal(given_up, before + HTTP_ANSWERS);
    for (int i = 0; i < HTTP_ANSWERS; i++)
        close(fd[i]);
    assert_int_equal(reach("127.0.0.1"), -1);
}

static void a_port_that_is_taken_is_refused(void **state)
{
    (void)state;
    struct http *first = http_open(&service, 0);
    char why[256];

    assert_non_null(first);
    assert_int_equal(sscanf(http_address(first), "http://127.0.0.1:%d/", &port), 1);
    struct fail_sink before = fail_divert(why, sizeof why);
    assert_null(http_open(&service, port));
    fail_restore(before);
    assert_non_null(strstr(why, "cannot be listened on"));
    http_close(first);
}

#else

static void without_the_library(void **state)
{
    (void)state;
    skip();                 /* built without libmicrohttpd */
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_page_with_the_token_is_answered),
        cmocka_unit_test(a_wrong_token_is_no_token),
        cmocka_unit_test(only_two_paths_are_there),
#ifdef DPX_HTTPD
        cmocka_unit_test(it_answers_on_loopback_alone),
        cmocka_unit_test(what_is_too_large_is_not_read),
        cmocka_unit_test(what_is_too_slow_is_ended),
        cmocka_unit_test(an_answer_nobody_waits_for_is_given_up),
        cmocka_unit_test(only_so_many_answers_are_under_way_and_a_signal_ends_all),
        cmocka_unit_test(a_port_that_is_taken_is_refused),
#else
        cmocka_unit_test(without_the_library),
#endif
    };
    return cmocka_run_group_tests_name("sim/http", tests, NULL, NULL);
}
