/* recipe_loss.c -- see recipe_loss.h.  trl/trainer/{sft,grpo,rloo}_trainer.py of 1.6, 1.7 to 1.14, and 1.15 and 1.16. */
#include "model/exchange/recipe_loss.h"

#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/exchange/recipe.h"
#include "model/plan/loss_check.h"

/* GB of the logits of all positions in fp32, as a loss of them has them. */
static double whole_logits(const struct plan *p) { return (double)p->micro_batch * (double)p->seq * (double)p->model.vocab * 4 / 1e9; }

/* 1.7 to 1.14, SFTTrainer's default: the head's weight in fp32, and its gradient. */
static double wide_head(const struct plan *p) { return (double)p->model.vocab * (double)p->model.hidden * 8 / 1e9; }

/* Why it is not planned goes to `why`, without the key. */
static bool is_planned(struct plan *p, char *why, size_t size)
{
    struct fail_sink before = fail_divert(why, size);
    bool ok = loss_check(p, "") == 0;
    const char *from = strstr(why, "loss: ");

    fail_restore(before);
    if (from)
        memmove(why, from + strlen("loss: "), strlen(from + strlen("loss: ")) + 1);
    return ok;
}

/* What TRL itself does not start with. */
static int check_head(const json_t *config, const char *where, const struct plan *p)
{
    const json_t *fused = json_object_get(json_object_get(config, "liger_kernel_config"), "fused_linear_cross_entropy");

    if (json_is_true(json_object_get(config, "use_liger_kernel")) && json_is_true(fused))
        return fail("%s: liger_kernel_config: fused_linear_cross_entropy: TRL refuses it since 1.15, whose loss has no logits either: leave it out", where);
    if (json_is_true(json_object_get(config, "packing")) && p->parallel.context > 1 && p->parallel.context_method != CONTEXT_ULYSSES)
        return fail("%s: packing: TRL refuses it beside cp_size, whose attention has no mask between samples: packing: false", where);
    for (int i = 0; i < p->model.ntensors; i++)
        if (p->model.tensors[i].role == ROLE_HEAD && tensor_is_adapter(&p->model.tensors[i]))
            return fail("%s: lora_target_modules: lm_head: TRL refuses an adapter of the head since 1.15 (\"the adapter would never be trained\")", where);
    return 0;
}

/* Where it is planned. */
static void tell(const json_t *config, const struct plan *p, struct notes *notes)
{
    if (recipe_trl_trainer(config) == TRL_GRPO)
        notes_add(notes, "loss: chunked-logprob, as TRL has it since 1.15, of all positions: TRL scores the completion's alone; before 1.15 logits of the "
                  "completion: --set loss=fp32 has those of all positions");
    else if (json_is_true(json_object_get(config, "use_liger_kernel")))
        notes_add(notes, "loss: chunked-logprob, as TRL has it since 1.15 beside Liger's other kernels; before, with use_liger_kernel: fused-linear");
    else
        notes_add(notes, "loss: chunked-logprob, as TRL has it since 1.15; 1.7 to 1.14 took the head's weight and its gradient in fp32 (%.3g GB), before 1.7 "
                  "logits of all positions (%.3g GB in fp32: --set loss=fp32)", wide_head(p), whole_logits(p));
}

int recipe_trl_loss(const json_t *config, const char *where, struct plan *p, struct notes *notes)
{
    const char *kind = json_string_value(json_object_get(config, "loss_type"));
    enum trl_trainer trainer = recipe_trl_trainer(config);
    char why[512] = "";
    enum loss_kind before = p->loss;

    if ((trainer != TRL_SFT && trainer != TRL_GRPO) || (kind && !strcmp(kind, RECIPE_LOGITS)))
        return 0;
    if (check_head(config, where, p) < 0)
        return -1;
    p->loss = LOSS_CHUNKED_LOGPROB;
    if (is_planned(p, why, sizeof why)) {
        tell(config, p, notes);
        return 0;
    }
    p->loss = before;
    /* the log-softmax, its gradient, and the logits with theirs in 16 bits: some three times the logits in fp32 */
    notes_add(notes, "TRL since 1.15 has no whole logits; planned with logits of all positions, up to %.3g GB more than it takes (%.3g GB in fp32, three times)",
              3 * whole_logits(p), whole_logits(p));
    notes_add(notes, "why its own loss is not planned here: %.240s", why);
    return 0;
}
