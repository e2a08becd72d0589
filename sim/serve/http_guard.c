/* http_guard.c -- see http_guard.h. */
#include "sim/serve/http_guard.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "sim/serve/http.h"

int http_guard_token(struct http_guard *g)
{
    unsigned char random[16];
    FILE *f = fopen("/dev/urandom", "rb");
    bool read = f && fread(random, 1, sizeof random, f) == sizeof random;

    if (f)
        fclose(f);
    if (!read)
        return fail("/dev/urandom cannot be read: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(g->token + 2 * i, 3, "%02x", random[i]);
    return 0;
}

void http_guard_port(struct http_guard *g, int port)
{
    static const char *const names[2] = { "127.0.0.1", "localhost" };

    for (int i = 0; i < 2; i++) {
        snprintf(g->host[i], sizeof g->host[i], "%s:%d", names[i], port);
        snprintf(g->origin[i], sizeof g->origin[i], "http://%s:%d", names[i], port);
    }
}

/* In the same time wherever they differ. */
static bool is_token(const struct http_guard *g, const char *t)
{
    unsigned char differs = 0;

    if (!t || strlen(t) != sizeof g->token - 1)
        return false;
    for (size_t i = 0; i < sizeof g->token - 1; i++)
        differs |= (unsigned char)(t[i] ^ g->token[i]);
    return !differs;
}

/* A browser says which page asks: for an address that somebody typed or followed none, or its own. */
static bool is_foreign(const struct http_guard *g, const struct http_asked *q, bool asks)
{
    if (q->origin && strcmp(q->origin, g->origin[0]) && strcmp(q->origin, g->origin[1]))
        return true;
    return asks && q->site && strcmp(q->site, "same-origin");
}

static bool is_too_large(const char *length)
{
    char *end;

    return length && (strlen(length) > 18 || strtoll(length, &end, 10) > HTTP_BODY);
}

const char *http_guard_check(const struct http_guard *g, const struct http_asked *q, unsigned *status)
{
    bool asks = !strncmp(q->path, HTTP_ASK, strlen(HTTP_ASK));

    *status = 403;
    if (!q->host || (strcasecmp(q->host, g->host[0]) && strcasecmp(q->host, g->host[1])))
        return "this address is for the browser of this machine alone: the Host is another";
    if (is_foreign(g, q, asks))
        return "another page asks: only the page that dpxplan serve gave out may";
    if (!is_token(g, asks ? q->token : q->token_in_address))
        return "the token is missing or wrong: open the address that dpxplan serve printed";
    *status = 404;
    if (!asks && strcmp(q->path, "/"))
        return "there is / and /ask/CALL, and nothing else";
    *status = 405;
    if (strcmp(q->method, asks ? "POST" : "GET"))
        return asks ? "a question is a POST" : "the page is a GET";
    *status = 415;
    if (asks && (!q->type || strncasecmp(q->type, "application/json", 16)))
        return "a question is application/json";
    *status = 413;
    if (is_too_large(q->length))
        return "the question is too large: 20 MiB at most";
    *status = 200;
    return NULL;
}
