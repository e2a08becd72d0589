/* lower_megatron_states.c -- what Megatron-LM's optimizers keep of a parameter, and FusedAdam's step.
 *
 * Sources (megatron-core 0.16.1): optimizer/optimizer.py, distrib_optimizer.py; Transformer Engine's optimizers/fused_adam.py.  States are
 * made in the first step.  FusedAdam.step() turns every state that is not in fp32 into a tensor of fp32, runs one kernel, and casts back;
 * those of a group of parameters live until the next group's kernel is called (tensor_lists), so all of them are there at once.  The 16 bits
 * that bf16 parameters lack of fp32 (store_param_remainders) the kernel reads as they are. */
#include "model/framework/megatron/lower_megatron.h"

#include "model/lower/common/lower_internal.h"
#include "model/lower/common/optimizer.h"
#include "model/plan/megatron_states.h"

/* An allocation for each parameter of which the rank has some: bytes of an element, and numbers beside (scales), each an allocation. */
struct state { int64_t bytes; int numbers; };

enum owned { OWNED_ALL, OWNED_WHOLE, OWNED_SHARED_OUT };

/* A family of allocations; of a part of the parameters, -1 where there are none. */
static int declare_own(struct mega *z, enum category cat, const char *what, enum owned of, const struct state *state, int n)
{
    int64_t all = 0;
    int buf = -1;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && (all > 0 || of == OWNED_ALL))
            buf = sched_buf(z->s, cat, what, NULL, 0, 1, all);
        for (int i = 0; i < z->nchunks; i++)
            for (int q = 0; q < z->chunk[i].nparams * n; q++) {
                const struct mega_param *x = &z->chunk[i].param[q / n];
                bool out = megatron_shares_out(z, x->tensor);
                int64_t own = of == OWNED_ALL || out == (of == OWNED_SHARED_OUT) ? megatron_own(z, &z->chunk[i], x) : 0;
                int64_t bytes = own > 0 ? round512(own * state[q % n].bytes) + state[q % n].numbers * round512(4) : 0;
                if (pass == 0)
                    all += bytes;
                else if (buf >= 0)
                    sched_part(z->s, buf, bytes);
            }
    }
    return buf;
}

/* A scale for each state that is not in fp32; of a Float8Tensor its own inverse, and its quantizer's scale and largest number too. */
static int numbers_of(enum adam_state s) { return s == ADAM_FP32 ? 0 : s == ADAM_FP8 ? 4 : 1; }

static int64_t largest_own(const struct mega *z)
{
    int64_t most = 0;

    for (int i = 0; i < z->nchunks; i++)
        for (int q = 0; q < z->chunk[i].nparams; q++) {
            int64_t n = megatron_own(z, &z->chunk[i], &z->chunk[i].param[q]);
            most = n > most ? n : most;
        }
    return most;
}

static void declare_narrow(struct mega *z)
{
    static const struct state wide[] = { { 4, 0 }, { 4, 0 }, { 4, 0 } };
    enum adam_state of[3];
    int n = megatron_narrow_states(z->p, of);
    bool bf16 = false;

    for (int i = 0; i < n; i++)
        bf16 = bf16 || of[i] == ADAM_BF16;
    z->unscaled[0] = n > 0 ? declare_own(z, CAT_TEMPORARIES, "states in fp32", OWNED_WHOLE, wide, n) : -1;
    z->unscaled[1] = n > 0 ? declare_own(z, CAT_TEMPORARIES, "experts' states in fp32", OWNED_SHARED_OUT, wide, n) : -1;
    z->narrowed = bf16 && largest_own(z) > 0 ? sched_buf(z->s, CAT_TEMPORARIES, "a state in bf16", NULL, 0, 1, round512(2 * largest_own(z))) : -1;
}

void megatron_declare_states(struct mega *z)
{
    const struct megatron_options *o = &z->p->megatron;
    bool own = megatron_adam_has_main(z->p), fp16 = own && o->main_params_dtype == MAIN_FP16;
    enum adam_state avg = o->use_precision_aware_optimizer ? o->exp_avg_dtype : ADAM_FP32;
    enum adam_state sq = o->use_precision_aware_optimizer ? o->exp_avg_sq_dtype : ADAM_FP32;
    const struct state main = { megatron_main_bytes(z->p), fp16 };
    const struct state moments[] = { { megatron_moment_bytes(z->p, avg), numbers_of(avg) }, { megatron_moment_bytes(z->p, sq), numbers_of(sq) } };
    const char *title = main.bytes == 4 ? "fp32 parameters" : fp16 ? "fp16 parameters" : "remainders of fp32 parameters";

    z->master = z->r.kept != DT_FP32 ? declare_own(z, CAT_OPTIMIZER, title, OWNED_ALL, &main, 1) : -1;
    z->moments = declare_own(z, CAT_OPTIMIZER, optimizer_states_title(z->p), OWNED_ALL, moments, 2);
    z->wide = z->r.grad == DT_FP32 || own ? -1 : declare_own(z, CAT_TEMPORARIES, "fp32 gradients", OWNED_ALL, &(struct state){ 4, 0 }, 1);
    declare_narrow(z);
}

void megatron_copy_params(struct mega *z)
{
    if (z->master < 0 || megatron_adam_has_main(z->p))
        return;
    sched_copy(z->s, STREAM_COMPUTE, PHASE_INIT, "fp32 parameters", z->own_elems * dtype_bytes(z->r.kept), z->own_elems * 4);
    sched_act(z->s, ACT_ALLOC | ACT_WRITE, z->master, 0, 0);
}

/* Of an element of a narrow state, before the kernel and after it: bf16 is read and written as fp32, then read, cast and copied; fp16 is
 * multiplied by its scale besides, looked through for its largest number, divided, copied; fp8 is looked through, and cast with its turned copy. */
static int cast_bytes(const struct plan *p, enum adam_state s)
{
    int narrow = megatron_moment_bytes(p, s);

    return s == ADAM_BF16 ? 6 + 6 + 4 : s == ADAM_FP16 ? 6 + 8 + 4 + 8 + 6 : 1 + 4 + 4 + 4 + narrow;
}

/* FusedAdam's one kernel: the gradient, bf16 parameters (read for their 16 bits of fp32), main parameters and moments. */
static void set_bytes(const struct mega *z, struct op *o)
{
    static const int passes[] = { [ADAM_BF16] = 3, [ADAM_FP16] = 5, [ADAM_FP8] = 3 };
    enum adam_state of[3];
    int n = megatron_narrow_states(z->p, of);
    bool own = megatron_adam_has_main(z->p), rest = own && z->p->megatron.main_params_dtype == MAIN_FP32 && z->p->megatron.store_param_remainders;

    if (own)
        o->u.optimizer.bytes = (uint32_t)(dtype_bytes(z->r.grad) + 2 + (rest ? 2 + 2 + 2 : 4 + 4) + 8 + 8);
    o->u.optimizer.passes = own ? 1 : o->u.optimizer.passes;
    for (int i = 0; i < n; i++) {
        o->u.optimizer.bytes += (uint32_t)cast_bytes(z->p, of[i]);
        o->u.optimizer.passes = (uint8_t)(o->u.optimizer.passes + passes[of[i]]);
    }
    o->u.optimizer.each = n > 0;
}

void megatron_adam(struct mega *z, bool first_step)
{
    int made = first_step ? ACT_ALLOC | ACT_READ | ACT_WRITE : ACT_RW;

    if (z->unscaled[0] >= 0 && z->unscaled[1] >= 0) {       /* an optimizer of its own, before or after */
        sched_op(z->s, OP_MEMORY, STREAM_COMPUTE, PHASE_OPTIMIZER, "experts' states to fp32 and back");
        sched_act(z->s, ACT_ALLOC | ACT_FREE, z->unscaled[1], 0, 0);
    }
    set_bytes(z, lower_adamw(z->s, z->p, z->master >= 0 ? ADAMW_THEN_CAST : ADAMW_ONE_KERNEL, z->own_elems));
    sched_act(z->s, made, z->moments, 0, 0);
    if (z->master >= 0)
        sched_act(z->s, megatron_adam_has_main(z->p) ? made : ACT_RW, z->master, 0, 0);
    if (z->unscaled[0] >= 0 || z->unscaled[1] >= 0)
        sched_act(z->s, ACT_ALLOC | ACT_FREE, z->unscaled[z->unscaled[0] < 0], 0, 0);
    if (z->narrowed >= 0)
        sched_act(z->s, ACT_ALLOC | ACT_FREE, z->narrowed, 0, 0);
    if (z->wide >= 0)
        sched_act(z->s, ACT_R, z->wide, 0, 0);
    for (int c = 0; c < z->nchunks && z->wide < 0; c++)
        sched_act(z->s, ACT_R, z->chunk[c].grads, 0, 0);
    for (int c = 0; c < z->nchunks; c++)
        sched_act(z->s, ACT_RW, z->chunk[c].params, 0, 0);
}
