/* recipe_muon.c -- see recipe_muon.h.
 *
 * src/llamafactory/third_party/muon/muon.py (August 2026), _create_muon_optimizer(): matrices whose names have neither embed nor lm_head; momentum
 * in the gradient's dtype, Newton-Schulz in bf16, by expressions of Python, where torch.optim.Muon's, which the plan has, is one addmm after the
 * other.  Its AdamW steps tensor by tensor.  States are the same. */
#include "model/exchange/recipe_muon.h"

#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"

bool recipe_has_muon(const json_t *config, enum recipe_form form)
{
    return form == RECIPE_FACTORY && json_is_true(json_object_get(config, "use_muon"));
}

int recipe_read_muon(const char *where, struct plan *p, struct notes *notes)
{
    if (p->strategy != STRAT_DDP || p->dialect != DIALECT_TORCH)
        return fail("%s: use_muon: of LLaMA-Factory's Muon whole matrices are planned: DDP, or one GPU", where);
    if (!training_is_all(&p->train))
        return fail("%s: use_muon: planned of full fine-tuning alone", where);
    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        bool named = strstr(t->name, "embed") || strstr(t->name, "lm_head");
        if (t->ndim == 2 && (t->block < 0) != named)
            return fail("%s: use_muon: LLaMA-Factory goes by names (embed, lm_head), by which %s is not what it is in the plan", where, t->name);
    }
    p->optimizer = OPTIMIZER_MUON;
    p->optimizer_form = OPTIMIZER_FOREACH;
    notes_add(notes, "use_muon: kernels are planned as torch.optim.Muon's; LLaMA-Factory's, by single operations, pass over memory more often");
    return 0;
}

/* The gradient with its momentum in fp32; X, a X, B X and their sum; A and B.  Or A, b A, c A, (c A) A and their sum.  AdamW: two roots. */
int64_t recipe_muon_moment(int64_t numel, int64_t side)
{
    int64_t sum = 12 * numel + 4 * side * side, gram = 6 * numel + 10 * side * side;

    return side == 0 ? 8 * numel : sum > gram ? sum : gram;
}

/* AdamW's step of the plan has square roots of all that it steps at once. */
double recipe_muon_more(const struct plan *p)
{
    int64_t most = 0, rest = 0;

    for (int i = 0; i < p->model.ntensors; i++) {
        const struct tensor *t = &p->model.tensors[i];
        bool muon = plan_orthogonalises(p, t);
        int64_t side = !muon ? 0 : t->shape[0] < t->shape[1] ? t->shape[0] : t->shape[1], one = recipe_muon_moment(t->numel, side);
        most = one > most ? one : most;
        rest += muon ? 0 : 4 * t->numel;
    }
    return most > rest ? (double)(most - rest) : 0;
}
