/* prose.h -- sentences that hold names and numbers, for the page and for the summary.
 *
 *     struct prose *p = prose_new();
 *     prose_put(p, "Use ");
 *     prose_name(p, label);
 *     prose_put(p, ": ");
 *     prose_number(p, "runs/7/tokens_per_s", UNIT_TOKENS_S, v);
 *     prose_end(p);                        (of the paragraph)
 *
 * A number says where it is found in the tables, as those of table.h do. */
#ifndef DPX_PROSE_H
#define DPX_PROSE_H

#include <stdint.h>

#include "base/chart/text.h"
#include "base/chart/unit.h"

struct prose;

struct prose *prose_new(void);
void prose_free(struct prose *p);           /* accepts NULL */

void prose_put(struct prose *p, const char *ours);          /* words of our own: no markup is seen in them */
void prose_name(struct prose *p, const char *theirs);
void prose_number(struct prose *p, const char *key, enum measure u, double v);
/* "run 7" with its number named as such. */
void prose_run(struct prose *p, int64_t run);
void prose_end(struct prose *p);

int  prose_paragraphs(const struct prose *p);
/* Each paragraph between `before` and `after`. */
void prose_html(const struct prose *p, const char *before, const char *after, struct text *to);
void prose_markdown(const struct prose *p, const char *before, struct text *to);

#endif
