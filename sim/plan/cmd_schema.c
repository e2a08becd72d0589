/* cmd_schema.c -- dpxplan schema: the JSON Schema of plan.json, or of a phase plan. */
#include "base/opts.h"
#include "sim/plan/commands.h"
#include "sim/plan/phase_schema.h"
#include "sim/plan/plan_schema.h"

int cmd_schema(int argc, char **argv)
{
    bool json = false;                          /* a schema is JSON in any case */
    bool phases = false;
    const struct opt opts[] = { OPTS_EXAMPLE("dpxplan schema"), { "phases", "that of a phase plan (dpxplan phases) instead", .flag = &phases }, { "json", "as without it: a schema is one JSON document", .flag = &json }, { 0 } };
    int rc = opts_parse("dpxplan schema", "plan.json as a JSON Schema, from the table of its keys: for editors, which complete and check by it.", opts, argc, argv);

    return rc != OPTS_OK ? (rc < 0 ? EXIT_MISUSE : EXIT_DONE) : dpxplan_print_json(phases ? phase_schema() : plan_schema(), EXIT_DONE);
}
