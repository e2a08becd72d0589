/* optimizer_choice.c -- see optimizer_choice.h. */
#include "model/plan/optimizer_choice.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/experts_check.h"
#include "model/plan/knob.h"

/* The cells whose row of the optimizer has more words than one. */
static uint64_t cells_with_choice(void)
{
    const struct knob *k;
    uint64_t cells = 0;

    for (int i = 0; (k = knob_at(i)); i++)
        if (!k->object[0] && !strcmp(k->name, "optimizer") && k->type == KNOB_WORD)
            cells |= k->cells;
    return cells;
}

static int choose_name(struct plan *p, int optimizer, const char *where)
{
    const struct knob *k = knob_find("", "optimizer", knob_cell(p));
    const char *word = knob_words("optimizer")[optimizer];
    char cells[256];

    if (!k)
        return fail("%s: dialect: %s has no %s", where, dialect_name(p->dialect), strategy_name(p->strategy));
    if (k->type == KNOB_WORD) {
        knob_set(p, k, optimizer);
        if (optimizer == OPTIMIZER_MUON && p->dialect == DIALECT_DEEPSPEED && !p->framework_version[0])
            strcpy(p->framework_version, "0.19.8");     /* the first that is known to have it */
        return 0;
    }
    if (!strcmp(word, k->words[0]))
        return 0;
    if (knob_lacks("", "optimizer", word))
        return fail("%s: optimizer: %s", where, knob_lacks("", "optimizer", word));
    knob_cells_short(cells_with_choice(), cells, sizeof cells);
    return fail("%s: optimizer: planned with %s alone so far, not with %s; these have others: %s", where, k->words[0], word, cells);
}

static int choose_form(struct plan *p, int form, const char *where)
{
    const struct knob *k = knob_find("", "optimizer_form", knob_cell(p));
    char cells[256];

    if (k) {
        knob_set(p, k, form);
        return 0;
    }
    knob_cells_short(knob_cells("", "optimizer_form"), cells, sizeof cells);
    return fail("%s: optimizer_form: its optimizer has one form; these have others: %s", where, cells);
}

int optimizer_choose(struct plan *p, const struct optimizer_choice *c, const char *where)
{
    if (!optimizer_is_chosen(c))
        return 0;
    if (c->optimizer >= 0 && experts_optimizer_refused(&p->model, (enum optimizer)c->optimizer))
        return fail("%s: optimizer: %s", where, experts_optimizer_refused(&p->model, (enum optimizer)c->optimizer));
    if (c->optimizer >= 0 && choose_name(p, c->optimizer, where) < 0)
        return -1;
    return c->form >= 0 ? choose_form(p, c->form, where) : 0;
}

bool optimizer_carry(const struct plan *from, struct plan *p)
{
    struct optimizer_choice c = { (int)from->optimizer, knob_has(p, "", "optimizer_form") ? (int)from->optimizer_form : -1 };
    char why[256];

    struct fail_sink before = fail_divert(why, sizeof why);
    bool has = optimizer_choose(p, &c, "") == 0;
    fail_restore(before);
    return has;
}

void optimizer_choice_text(const struct optimizer_choice *c, char *to, size_t size)
{
    int n = 0;

    to[0] = '\0';
    if (c && c->optimizer >= 0)
        n = snprintf(to, size, ", optimizer %s", knob_words("optimizer")[c->optimizer]);
    if (c && c->form >= 0 && (size_t)n < size)
        snprintf(to + n, size - (size_t)n, ", optimizer form %s", knob_words("optimizer_form")[c->form]);
}
