/* search_answer.h -- a search: the question, the answer, and the answer as a document.  dpxplan search and dpx_search()
 * are both this.
 *
 *     struct search_asked a = SEARCH_ASKED;
 *     const struct opt opts[] = { SEARCH_ASKED_OPTS(a), { 0 } };
 *     ... opts_parse() or opts_json() ...
 *     struct search_answer s;
 *     int rc = search_answer_open(&a, &s);                         the question; search_question_print() says it
 *     if (rc != EXIT_DONE)
 *         return rc;
 *     rc = search_answer_find(&a, &s);
 *     if (rc == EXIT_DONE || rc == EXIT_NO)
 *         ... s.ranked[0 .. s.n - 1], search_answer_json(&a, &s) ...
 *     search_answer_free(&s); */
#ifndef DPX_SEARCH_ANSWER_H
#define DPX_SEARCH_ANSWER_H

#include "sim/plan/money.h"
#include "sim/plan/search_args.h"
#include "sim/search/ranking.h"

struct search_asked {
    struct search_args ask;
    int64_t  top;
    struct money_question money;
    bool   (*go_on)(void *of, int64_t done, int64_t total);     /* as search_options has it */
    void    *go_on_of;
    bool     keeps;
};

#define SEARCH_ASKED { .ask = SEARCH_ARGS, .top = 10, .money = MONEY_NONE }
#define SEARCH_ASKED_OPTS(a) \
    OPTS_EXAMPLE("dpxplan search --model llama-3.1-8b --cluster 8xh100 --seq 8k \\\n      --global-batch 64"), \
    SEARCH_OPTS((a).ask, true), \
    MONEY_OPTS((a).money), \
    { "top", "ideas to show", .i = &(a).top, .min = 1 }

struct search_answer {
    struct question q;
    struct search_result r;
    struct ranked *ranked;          /* n ideas, the best first */
    int64_t n, tied;
    double  started;                /* by a clock */
};

/* EXIT_DONE, or the exit status with the reason reported and nothing to free. */
int     search_answer_open(const struct search_asked *a, struct search_answer *out);
/* EXIT_DONE, EXIT_NO where nothing fits, or the exit status with the reason reported. */
int     search_answer_find(const struct search_asked *a, struct search_answer *s);
/* Seconds since the question was opened. */
double  search_answer_seconds(const struct search_answer *s);
/* The document that --json prints (new reference).  Its search_s are the seconds until it is complete. */
json_t *search_answer_json(const struct search_asked *a, const struct search_answer *s);
void    search_answer_free(struct search_answer *s);

#endif
