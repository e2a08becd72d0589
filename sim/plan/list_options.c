/* list_options.c -- the options of each command that libdpx answers, from the tables that read them. */
#include "sim/plan/list_options.h"

#include "base/opts.h"
#include "sim/plan/bill.h"
#include "sim/plan/convert.h"
#include "sim/plan/eval.h"
#include "sim/plan/explain.h"
#include "sim/plan/fit_answer.h"
#include "sim/plan/limits_answer.h"
#include "sim/plan/phases.h"
#include "sim/plan/search_answer.h"
#include "sim/plan/sweep.h"

static void of_command(json_t *to, const char *command, const struct opt *opts)
{
    json_t *rows = opts_table_json(opts), *row;
    size_t i;

    json_array_foreach(rows, i, row)
        json_object_set_new(row, "command", json_string(command));
    json_array_extend(to, rows);
    json_decref(rows);
}

int list_options(json_t *to)
{
    struct search_asked search = SEARCH_ASKED;
    struct eval_args eval = EVAL_ARGS;
    struct explain_args explain = EXPLAIN_ARGS;
    struct sweep_asked sweep = SWEEP_ASKED;
    struct bill_asked bill = BILL_ASKED;
    struct phases_asked phases = PHASES_ASKED;
    struct limits_asked limits = LIMITS_ASKED;
    struct fit_asked fit = FIT_ASKED;
    struct import_args import = IMPORT_ARGS;
    struct export_args export = { .to = NULL };

    of_command(to, "fit", (const struct opt[]){ FIT_OPTS(fit), { 0 } });
    of_command(to, "search", (const struct opt[]){ SEARCH_ASKED_OPTS(search), { 0 } });
    of_command(to, "bill", (const struct opt[]){ BILL_OPTS(bill), { 0 } });
    of_command(to, "phases", (const struct opt[]){ PHASES_OPTS(phases), { 0 } });
    of_command(to, "limits", (const struct opt[]){ LIMITS_OPTS(limits), { 0 } });
    of_command(to, "import", (const struct opt[]){ IMPORT_OPTS(import), { 0 } });
    of_command(to, "export", (const struct opt[]){ EXPORT_OPTS(export), { 0 } });
    of_command(to, "eval", (const struct opt[]){ EVAL_OPTS(eval), { 0 } });
    of_command(to, "explain", (const struct opt[]){ EXPLAIN_OPTS(explain), { 0 } });
    of_command(to, "sweep", (const struct opt[]){ SWEEP_OPTS(sweep), { 0 } });
    return 0;
}
