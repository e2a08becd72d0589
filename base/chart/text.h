/* text.h -- text that grows, with what comes from outside made harmless.
 *
 *     struct text t = { 0 };
 *     text_add(&t, "<td>");
 *     text_html(&t, model_name);           (whatever it holds, it stays text)
 *     ... t.s, t.n ...
 *     text_free(&t);
 *
 * Names of models, hosts and paths are not ours: they reach a page only through
 * text_html(), a CSV only through text_csv(), a Markdown table only through text_markdown(). */
#ifndef DPX_TEXT_H
#define DPX_TEXT_H

#include <stddef.h>

struct text { char *s; size_t n, room; };

void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3), nonnull(2)));
/* As it is. */
void text_put(struct text *t, const char *s);
void text_free(struct text *t);

/* Escaped for element content and quoted attributes, in HTML, SVG and XML.  Bytes that are not
 * UTF-8, control characters and those that turn the direction of writing become U+FFFD. */
void text_html(struct text *t, const char *s);
/* One field (RFC 4180).  What a spreadsheet would take for a formula gets a ' before it. */
void text_csv(struct text *t, const char *s);
/* Inside a Markdown paragraph or table cell: no markup, no HTML, no link, one line. */
void text_markdown(struct text *t, const char *s);
/* Columns that it takes, wide characters counted twice. */
int      text_columns(const char *s);
/* At most `columns` of it, an ellipsis for the rest. */
void     text_cut(struct text *t, const char *s, int columns);

/* A copy that lives until text_kept_free(). */
struct kept;
const char *text_keep(struct kept **k, const char *s);
void        text_kept_free(struct kept *k);

#endif
