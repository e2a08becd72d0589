/* http.h -- questions by HTTP, from this machine's own browser alone.
 *
 *     struct http_service s = { .page = html, .page_size = n, .answer = answer, .of = &mine };
 *     struct http *h = http_open(&s, 0);                   0: any free port
 *     if (!h)
 *         return 1;
 *     puts(http_address(h));                               "http://127.0.0.1:41873/?token=9f..."
 *     http_wait(h);                                        until SIGINT or SIGTERM
 *     http_close(h);
 *
 * It listens on 127.0.0.1 and nowhere else.  GET / with the token gives the page; POST /ask/CALL gives an answer, a line of JSON after
 * the other: {"done", "total"} while it lasts, at the end {"status", "answer"}.  Lines may be empty.  What is refused, with one line of text:
 * a Host that is not this address (a name that somebody lets point here), an Origin that is another page's, a request without the
 * token, which no other page can know, a body beyond HTTP_BODY, a path that is not one of the two.  A request must be there whole
 * within HTTP_PATIENCE_S seconds, an answer within HTTP_ANSWER_S; HTTP_CONNECTIONS may be open and HTTP_ANSWERS under way. */
#ifndef DPX_HTTP_H
#define DPX_HTTP_H

#include <stdbool.h>
#include <stddef.h>

enum { HTTP_BODY = 20 << 20, HTTP_CONNECTIONS = 64, HTTP_ANSWERS = 8, HTTP_PATIENCE_S = 10, HTTP_ANSWER_S = 600 };

/* How far an answer is; false: give it up. */
typedef bool http_progress(void *watch, long long done, long long total);

struct http_service {
    const unsigned char *page;
    size_t page_size;
    /* The text that answers, malloc()ed, and *status; NULL: there is no such call.  Any number of threads at once. */
    char *(*answer)(void *of, const char *call, const char *request, http_progress *progress, void *watch, int *status);
    void  *of;
};

struct http;

/* NULL with the reason reported: the port is taken.  `s` stays the caller's, and must live as long. */
struct http *http_open(const struct http_service *s, int port);
const char  *http_address(const struct http *h);
void         http_wait(struct http *h);
/* Answers under way are given up. */
void         http_close(struct http *h);

#endif
