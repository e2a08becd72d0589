/* script_keys.c -- see script_keys.h. */
#include "model/exchange/script_keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/plan/knob.h"

static const char HEAD[] = "# The training script decides:\n";

static bool always(const struct knob *k)
{
    static const char *const names[] = { "seq", "micro_batch", "accumulation", "clip", "loss", "optimizer", "optimizer_form" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!k->object[0] && !strcmp(k->name, names[i]))
            return true;
    return false;
}

void script_keys_write(const struct plan *p, size_t tool, FILE *to)
{
    struct plan plain = *p;
    const struct knob *k;

    fputs(HEAD, to);
    plan_defaults(&plain, p->strategy, p->dialect, p->precision);
    for (int i = 0; (k = knob_at(i)); i++) {
        const struct knob_name *n = knob_name_in(k, tool);
        char key[96];
        bool there = n->section && strcmp(n->section, "dpx") != 0 && knob_concerns(k, n, knob_cell(p));
        if (!(k->cells & knob_cell(p)) || there || k->type == KNOB_FIXED || knob_idle(p, k))
            continue;
        json_t *v = knob_write(p, k), *usual = knob_write(&plain, k);
        if (always(k) || !json_equal(v, usual)) {
            char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
            knob_key_text(k, key, sizeof key);
            fprintf(to, "#   %s %s\n", key, json_is_string(v) ? json_string_value(v) : text);
            free(text);
        }
        json_decref(v);
        json_decref(usual);
    }
}

int64_t script_keys_count(const char *text, const char *name)
{
    const char *at = text ? strstr(text, HEAD) : NULL;
    size_t n = strlen(name);

    for (at = at ? at + strlen(HEAD) : NULL; at && !strncmp(at, "#   ", 4); at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (!strncmp(at + 4, name, n) && at[4 + n] == ' ')
            return strtoll(at + 5 + n, NULL, 10);
    return 0;
}
