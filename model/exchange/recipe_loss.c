/* recipe_loss.c -- see recipe_loss.h.  trl/trainer/sft_trainer.py of 1.6, 1.7 to 1.14, and 1.15 and 1.16. */
#include "model/exchange/recipe_loss.h"

#include <string.h>

#include "base/fail.h"
#include "model/exchange/recipe.h"
#include "model/plan/loss_check.h"

/* GB of the logits of all positions in fp32, as a loss of them has them. */
static double whole_logits(const struct plan *p) { return (double)p->micro_batch * (double)p->seq * (double)p->model.vocab * 4 / 1e9; }

/* 1.7 to 1.14, by default: the head's weight in fp32, and its gradient. */
static double wide_head(const struct plan *p) { return (double)p->model.vocab * (double)p->model.hidden * 8 / 1e9; }

static bool is_planned(struct plan *p, char *why, size_t size)
{
    struct fail_sink before = fail_divert(why, size);
    bool ok = loss_check(p, "loss") == 0;

    fail_restore(before);
    return ok;
}

void recipe_trl_loss(const json_t *config, struct plan *p, struct notes *notes)
{
    const char *kind = json_string_value(json_object_get(config, "loss_type"));
    char why[256] = "";
    bool liger = json_is_true(json_object_get(config, "use_liger_kernel"));
    enum loss_kind before = p->loss;

    if (recipe_trl_trainer(config) != TRL_SFT || (kind && !strcmp(kind, RECIPE_LOGITS)))
        return;
    p->loss = LOSS_CHUNKED_LOGPROB;
    if (is_planned(p, why, sizeof why)) {
        if (liger)
            notes_add(notes, "loss: chunked-logprob, as TRL has it since 1.15 beside Liger's other kernels; before, with use_liger_kernel: fused-linear");
        else
            notes_add(notes, "loss: chunked-logprob, as TRL has it since 1.15; 1.7 to 1.14 took the head's weight and its gradient in fp32 (%.3g GB), before 1.7 "
                      "logits of all positions (%.3g GB in fp32: --set loss=fp32)", wide_head(p), whole_logits(p));
        return;
    }
    p->loss = before;
    notes_add(notes, "TRL since 1.15 has no whole logits, which is not planned here (%s): planned with logits of all positions (%.3g GB in fp32)", why,
              whole_logits(p));
}
