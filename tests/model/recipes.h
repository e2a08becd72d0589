/* recipes.h -- a recipe's text as the plan that it describes, or refused. */
#ifndef DPX_TESTS_RECIPES_H
#define DPX_TESTS_RECIPES_H

#include "tests/check.h"

#include <string.h>

#include "base/fail.h"
#include "base/yaml.h"
#include "model/exchange/recipe.h"

static inline int read_recipe(const char *text, const char *model, const char *cluster, int64_t seq, struct plan *p, struct notes *notes)
{
    json_t *config = yaml_read(text, strlen(text), "recipe.yml");
    int rc;

    assert_non_null(config);
    memset(p, 0, sizeof *p);
    p->seq = seq;
    assert_int_equal(model_load(model ? model : recipe_model(config), &p->model), 0);
    assert_int_equal(cluster_load(cluster, &p->cluster), 0);
    rc = recipe_read(config, "recipe.yml", p, notes);
    json_decref(config);
    return rc;
}

static inline bool noted(const struct notes *n, const char *what)
{
    for (int i = 0; i < n->n && i < 24; i++)
        if (strstr(n->text[i], what))
            return true;
    return false;
}

static inline void refuses(const char *text, int64_t seq, const char *because)
{
    struct plan p;
    char why[512];

    fail_capture(why, sizeof why);
    int rc = read_recipe(text, "llama-2-7b", "8xh100", seq, &p, NULL);
    fail_capture(NULL, 0);
    assert_int_equal(rc, -1);
    if (!strstr(why, because))
        fail_msg("\"%s\" does not say \"%s\"", why, because);
    plan_free(&p);
}

#endif
