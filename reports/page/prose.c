/* prose.c -- paragraphs as pieces; each knows whose it is until it is written. */
#include "reports/page/prose.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum piece_kind { PIECE_OURS, PIECE_NAME, PIECE_NUMBER, PIECE_END };
struct piece { enum piece_kind kind; const char *s, *key; };

struct prose { struct piece *piece; int n, paragraphs; struct kept *kept; };

struct prose *prose_new(void)
{
    struct prose *p = calloc(1, sizeof *p);

    if (!p)
        abort();
    return p;
}

void prose_free(struct prose *p)
{
    if (!p)
        return;
    free(p->piece);
    text_kept_free(p->kept);
    free(p);
}

static void add(struct prose *p, enum piece_kind kind, const char *s, const char *key)
{
    p->piece = realloc(p->piece, (size_t)(p->n + 1) * sizeof *p->piece);
    if (!p->piece)
        abort();
    p->piece[p->n++] = (struct piece){ kind, text_keep(&p->kept, s), key ? text_keep(&p->kept, key) : NULL };
}

void prose_put(struct prose *p, const char *ours) { add(p, PIECE_OURS, ours, NULL); }
void prose_name(struct prose *p, const char *theirs) { add(p, PIECE_NAME, theirs, NULL); }
void prose_number(struct prose *p, const char *key, enum measure u, double v)
{
    add(p, PIECE_NUMBER, unit_shown(u, v).s, key);
}

void prose_run(struct prose *p, int64_t run)
{
    char s[32];

    snprintf(s, sizeof s, "run %" PRId64, run);
    prose_name(p, s);
}

void prose_end(struct prose *p)
{
    add(p, PIECE_END, "", NULL);
    p->paragraphs++;
}

int prose_paragraphs(const struct prose *p) { return p->paragraphs; }

void prose_html(const struct prose *p, const char *before, const char *after, struct text *to)
{
    for (int i = 0; i < p->n; i++) {
        const struct piece *x = &p->piece[i];
        if (i == 0 || p->piece[i - 1].kind == PIECE_END)
            text_put(to, before);
        if (x->kind == PIECE_NAME)
            text_put(to, "<bdi class=\"name\">");
        else if (x->kind == PIECE_NUMBER)
            text_add(to, "<b data-q=\"%s\">", x->key);
        text_html(to, x->s);
        if (x->kind == PIECE_NAME)
            text_put(to, "</bdi>");
        else if (x->kind == PIECE_NUMBER)
            text_put(to, "</b>");
        else if (x->kind == PIECE_END)
            text_put(to, after);
    }
}

void prose_markdown(const struct prose *p, const char *before, struct text *to)
{
    for (int i = 0; i < p->n; i++) {
        const struct piece *x = &p->piece[i];
        if (i == 0 || p->piece[i - 1].kind == PIECE_END)
            text_put(to, before);
        if (x->kind == PIECE_NAME)
            text_markdown(to, x->s);
        else if (x->kind == PIECE_NUMBER)
            text_add(to, "**%s**", x->s);
        else
            text_put(to, x->kind == PIECE_END ? "\n" : x->s);
    }
}
