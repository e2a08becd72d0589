/* The order of module hooks and gradients in stage 3, against the traces that the
 * recorder of the golden lists saw: in each file's comments, behind a colon, as
 * ">module" (forward fetch), "<module" (backward fetch), ")module" (release) and
 * "+parameter" (a gradient enters the bucket). */
#include "tests/check.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/framework/deepspeed_3/zero3_trace.h"
#include "model/lower/lower.h"

struct hooks { char **word; int n, cap; };

static void add_words(struct hooks *h, char *text)
{
    for (char *w = strtok(text, " "); w; w = strtok(NULL, " ")) {
        if (!strchr("><)+", *w))
            continue;
        if (h->n == h->cap) {
            h->cap = h->cap ? 2 * h->cap : 256;
            h->word = realloc(h->word, (size_t)h->cap * sizeof *h->word);
            assert_non_null(h->word);
        }
        h->word[h->n++] = strdup(w);
    }
}

/* The comment "# last micro-step ...: ...: >. >model ..." and the lines that go on. */
static void read_file(const char *path, struct plan *p, struct hooks *h)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    bool in = false;

    assert_non_null(f);
    while (getline(&line, &room, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "# last micro-step", 17)) {
            in = true;
        } else if (in && !strncmp(line, "#   ", 4)) {
            add_words(h, line + 1);
        } else if (!strncmp(line, "plan ", 5)) {
            json_t *j = json_loads(line + 5, 0, NULL);
            assert_int_equal(plan_from_json(j, path, p), 0);
            json_decref(j);
        } else if (*line != '#') {
            break;
        } else {
            in = false;
        }
    }
    free(line);
    fclose(f);
}

/* Our word for an event; modules without parameters are not named. */
static void word_of(const struct ds *d, const struct z3_trace *t, const struct z3_event *e, char *out, int size)
{
    const struct z3_module *m = &t->modules[e->module];
    const char *name = "*";

    if (e->kind == Z3_GRAD) {
        snprintf(out, (size_t)size, "+%s", d->m->tensors[e->tensor].name);
        return;
    }
    if (m->n > 0)
        name = m->bit == 2 ? "lm_head" : d->m->modules[d->m->tensors[m->first].module].name;
    snprintf(out, (size_t)size, "%c%s", e->kind == Z3_RELEASE ? ')' : e->backward ? '<' : '>', name);
}

static bool same(const char *ours, const char *recorded)
{
    return *ours == *recorded && (ours[1] == '*' || !strcmp(ours, recorded));
}

/* What passes of pieces have adds up to what fires. */
static void passes_have_all_hooks(const struct z3_trace *t, uint16_t of[NPIECE][NPASS][NPASS])
{
    int fire[NPASS] = { 0 }, counted[NPASS] = { 0 };

    for (int i = 0; i < t->nevents; i++) {
        const struct z3_event *e = &t->events[i];
        if (e->kind == Z3_FETCH || e->kind == Z3_RELEASE)
            fire[e->backward ? PASS_BACKWARD : PASS_FORWARD]++;
        for (int k = 0; k < NPASS && e->kind == Z3_ENTER; k++)
            counted[k] += of[e->piece][e->pass][k];
    }
    assert_true(fire[PASS_FORWARD] > 0 && fire[PASS_BACKWARD] > 0);
    assert_int_equal(counted[PASS_FORWARD], fire[PASS_FORWARD]);
    assert_int_equal(counted[PASS_BACKWARD], fire[PASS_BACKWARD]);
}

static void hooks_fire_as_recorded(void **state)
{
    const char *path = *state;
    struct hooks h = { 0 };
    struct schedules s = { 0 };
    struct z3_trace t;
    struct local_model local;
    struct plan p;
    struct ds d;
    int at = 0;

    read_file(path, &p, &h);
    assert_true(h.n > 0);
    assert_int_equal(lower(&p, 0, &s), 0);
    assert_int_equal(local_model_of(&p, 0, &local), 0);
    assert_int_equal(ds_init(&d, &local, &s, &(const struct walk_hooks){ .fate = GRADS_KEEP }), 0);
    assert_int_equal(z3_trace_build(&d, &t), 0);
    for (int i = 0; i < t.nevents; i++) {
        char ours[128];
        if (t.events[i].kind == Z3_ENTER || t.events[i].kind == Z3_LEAVE)
            continue;
        word_of(&d, &t, &t.events[i], ours, sizeof ours);
        if (at == h.n || !same(ours, h.word[at]))
            fail_msg("%s: hook %d: recorded %s, ours %s (after %s)", path, at + 1,
                     at < h.n ? h.word[at] : "nothing", ours, at > 0 ? h.word[at - 1] : "nothing");
        at++;
    }
    assert_int_equal(at, h.n);
    passes_have_all_hooks(&t, s.module_hooks);
    z3_trace_free(&t);
    ds_free(&d);
    schedules_free(&s);
    plan_free(&p);
    for (int i = 0; i < h.n; i++)
        free(h.word[i]);
    free(h.word);
}

int main(void)
{
    struct CMUnitTest *tests;
    glob_t g;

    if (glob("tests/golden/collectives/deepspeed/s3_*.txt", 0, NULL, &g) != 0 || g.gl_pathc < 43) {
        print_error("fewer than 43 recorded traces\n");
        return 1;
    }
    tests = calloc(g.gl_pathc, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < g.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){ .name = strrchr(g.gl_pathv[i], '/') + 1,
                                        .test_func = hooks_fire_as_recorded, .initial_state = g.gl_pathv[i] };
    int failed = _cmocka_run_group_tests("module hooks of stage 3", tests, g.gl_pathc, NULL, NULL);
    free(tests);
    globfree(&g);
    return failed;
}
