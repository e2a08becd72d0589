/* http_guard.h -- which requests are answered: those of the page that this process gave out, and no others.
 *
 * A page of any host may send requests to 127.0.0.1, and a host may let its name point there (DNS rebinding).  What tells ours from
 * theirs: Host is this address by number or as localhost; Origin and Sec-Fetch-Site, where a browser sends them, say the same origin; the
 * token, 128 random bits, is in the page's address, or for questions in a header, which no form can set.  No CORS header is ever sent. */
#ifndef DPX_HTTP_GUARD_H
#define DPX_HTTP_GUARD_H

#define HTTP_ASK "/ask/"

struct http_guard { char token[33], host[2][32], origin[2][40]; };

/* A request but for its body; NULL: it has no such header. */
struct http_asked {
    const char *method, *path, *host, *origin, *site, *type, *length, *token, *token_in_address;
};

/* A new token.  0, or -1 reported. */
int  http_guard_token(struct http_guard *g);
void http_guard_port(struct http_guard *g, int port);

/* NULL: it is answered.  Else one line that says why not, and the status of HTTP. */
const char *http_guard_check(const struct http_guard *g, const struct http_asked *q, unsigned *status);

#endif
