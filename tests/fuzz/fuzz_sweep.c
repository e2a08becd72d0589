/* Axes of a sweep: KEY=VALUES with white space between them.  Odd first bytes: of a search, even ones: of a plan. */
#include "tests/fuzz/fuzz.h"

#include "sim/plan/sweep.h"

static void check(const struct sweep *s)
{
    int64_t points = 1;

    must_hold(s->naxes >= 1 && s->naxes <= SWEEP_AXES);
    for (int a = 0; a < s->naxes; a++) {
        must_hold(s->axis[a].n >= 1 && s->axis[a].key[0]);
        points *= s->axis[a].n;
    }
    must_hold(points == s->points && points <= SWEEP_POINTS);
    for (int a = 0; a < s->naxes; a++) {
        must_hold(sweep_value(s, 0, a)[0] && sweep_value(s, points - 1, a)[0]);
        must_hold(!strcmp(sweep_value(s, 0, a), s->axis[a].value[0]));
        must_hold(!strcmp(sweep_value(s, points - 1, a), s->axis[a].value[s->axis[a].n - 1]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sweep s = { .has_plan = !(size && data[0] % 2) };
    struct opt_pairs over = { 0 };
    char *text = fuzz_string(data, size), *rest;

    fuzz_quiet();
    for (char *pair = strtok_r(text, " \t\r\n", &rest); pair; pair = strtok_r(NULL, " \t\r\n", &rest))
        if (strchr(pair, '=') && over.n < (int)(sizeof over.at / sizeof *over.at))
            over.at[over.n++] = pair;
    fuzz_said[0] = '\0';
    if (sweep_axes(&s, &over) == 0)
        check(&s);
    else
        must_hold(fuzz_said[0]);
    sweep_free(&s);
    free(text);
    return 0;
}
