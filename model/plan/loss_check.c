/* loss_check.c -- see loss_check.h. */
#include "model/plan/loss_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/training.h"
#include "model/arch/training_names.h"
#include "model/family/family.h"
#include "model/plan/float8.h"
#include "model/plan/framework.h"
#include "model/plan/knob.h"

bool loss_is_of_actor(enum loss_kind loss) { return loss == LOSS_ACTOR_CHUNKS || loss == LOSS_ACTOR_KERNEL; }
bool loss_is_distributed(enum loss_kind loss) { return loss == LOSS_DISTRIBUTED || loss == LOSS_DISTRIBUTED_LATE; }
bool loss_reads_head(enum loss_kind loss) { return loss == LOSS_FUSED_LINEAR || loss == LOSS_CUT || loss == LOSS_CHUNKED_LOGPROB || loss_is_of_actor(loss); }

/* NeMo Automodel's model hands out a rank's part of them, which the loss gathers. */
bool loss_cuts_logits(const struct plan *p)
{
    return p->parallel.tensor > 1 && (p->parallel.loss_parallel || p->parallel.inputs_apart) && p->dialect == DIALECT_TORCH;
}

int64_t loss_kept_bytes(const struct plan *p)
{
    bool none = p->logits_kept == LOGITS_DROPPED || p->parallel.pipeline > 1;
    int64_t numel = p->micro_batch * plan_rank_seq(p) * p->model.vocab / (loss_cuts_logits(p) ? p->parallel.tensor : 1);

    if (p->logits_kept == LOGITS_AND_SHIFTED && p->micro_batch > 1)     /* of one sample .contiguous() is the view itself */
        numel += p->micro_batch * (plan_rank_seq(p) - 1) * p->model.vocab;
    return none ? 0 : numel * (p->logits_kept == LOGITS_IN_FP32 ? 4 : dtype_bytes(p->precision));
}

int64_t loss_stays_bytes(const struct plan *p) { return p->logits_until == UNTIL_NEXT_LOGITS ? loss_kept_bytes(p) : 0; }
int64_t loss_leaves_bytes(const struct plan *p) { return p->logits_until == UNTIL_BACKWARD_ENDS ? loss_kept_bytes(p) : 0; }

/* A loop of Python's names the logits in every micro-step; in a pipeline PyTorch's schedule keeps what the last stage returns, as it is, where it is asked for
 * (return_outputs). */
static int check_kept(const struct plan *p, const char *where)
{
    if (p->logits_kept == LOGITS_DROPPED)
        return 0;
    if (p->kernels == KERNELS_DPX)
        return fail("%s: logits_kept: kernels \"dpx\" keep none", where);
    if (p->logits_kept == LOGITS_AND_SHIFTED && (p->parallel.pipeline > 1 || p->parallel.context > 1 || p->parallel.tensor > 1))
        return fail("%s: logits_kept: \"as-made-shifted\" is of ranks that have whole samples and all of their logits", where);
    if (p->parallel.pipeline > 1 && (p->dialect != DIALECT_TORCH || p->logits_kept == LOGITS_IN_FP32))
        return fail("%s: logits_kept: in a pipeline PyTorch's schedules keep them, as the model made them: \"none\"%s", where,
                    p->dialect == DIALECT_TORCH ? " or \"as-made\"" : "");
    return 0;
}

/* Scaled or capped behind the product, which a loss that computes it has to know of. */
static int check_scaled(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    const struct family *family = family_for(m);

    if (family->liger.own_loss && p->loss == LOSS_FUSED_LINEAR)
        return fail("%s: loss: fused-linear: Liger-Kernel refuses %s, which scales its logits: take liger-cross-entropy", where, m->family);
    if (family->scaled_logits)
        return fail("%s: loss: %s scales its logits by a number, which is not modelled beside a loss without logits", where, m->family);
    return 0;
}

/* verl's: of FSDP's weights in 16 bits, or Megatron-LM's. */
static int check_actor(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    const char *word = knob_find("", "loss", knob_cell(p))->words[p->loss];
    struct recipe r = plan_recipe(p);

    if (p->strategy != STRAT_FSDP && !kernels_are_megatron(p->kernels))
        return fail("%s: loss: %s is verl's, whose actors are under FSDP or Megatron-LM", where, word);
    if (p->precision == DT_FP32 || (r.autocast && r.frozen == DT_FP32))
        return fail("%s: loss: %s is modelled of hidden states and a head in 16 bits", where, word);
    if (p->parallel.context > 1 && p->parallel.context_method != CONTEXT_ULYSSES && !kernels_are_megatron(p->kernels))
        return fail("%s: loss: %s: verl shares positions with ulysses", where, word);
    return p->loss == LOSS_ACTOR_KERNEL && m->hidden % 128 != 0 ? fail("%s: loss: %s: its kernel takes hidden states of a multiple of 128, %s has %" PRId64, where,
                                                                      word, m->name, m->hidden) : 0;
}

static int check_reads_head(const struct plan *p, const char *where)
{
    const struct model *m = &p->model;
    const char *word = knob_find("", "loss", knob_cell(p))->words[p->loss];
    struct recipe r = plan_recipe(p);

    for (int i = 0; i < m->ntensors; i++)
        if (m->tensors[i].role == ROLE_HEAD && (m->tensors[i].packed != BASE_PLAIN || float8_converts(p, &m->tensors[i])))
            return fail("%s: loss: %s reads the head's weight in 16 bits or fp32: leave the head out of what is converted", where, word);
    if (m->tied && framework_of(p)->meets_tied_grads)
        return fail("%s: loss: %s: %s ties its head to its embedding, and how %s keeps the head's part of that gradient, made by the loss itself, "
                    "is not modelled yet: take liger-cross-entropy, FSDP or DDP", where, word, m->name,
                    p->strategy == STRAT_DP ? "DataParallel" : "DeepSpeed");
    if (p->loss == LOSS_CHUNKED_LOGPROB && p->strategy == STRAT_DP)
        return fail("%s: loss: chunked-logprob is TRL's, which refuses DataParallel: ddp", where);
    if (loss_is_of_actor(p->loss) && check_actor(p, where) < 0)
        return -1;
    if (p->parallel.pipeline > 1 && !kernels_are_megatron(p->kernels))
        return fail("%s: loss: under a pipeline the loss is computed of what the last stage returns: fp32", where);
    if (p->loss == LOSS_CUT && (p->precision == DT_FP32 || (r.autocast && r.frozen == DT_FP32)))
        return fail("%s: loss: cut-cross-entropy refuses hidden states in fp32 (\"Backwards requires embeddings to be bf16 or fp16\"), which a model "
                    "in fp32 has, also under autocast: keep the model in bf16 (model_dtype)", where);
    return p->loss == LOSS_CHUNKED_LOGPROB ? 0 : check_scaled(p, where);     /* its kernel scales and caps */
}

/* A head of numbers has no logits, and a loss of its own, of what the whole model returns. */
static int check_numbers(const struct plan *p, const char *where)
{
    const struct parallel_options *by = &p->parallel;
    const char *head = p->model.head == HEAD_SCORE ? "score" : "value";
    bool whole = framework_of(p)->numbers_whole;

    if (whole && (p->model.head == HEAD_SCORE || by->context > 1 || p->megatron.mtp_num_layers > 0))
        return fail("%s: model: under Megatron-LM a number a token (:value) is planned, without context parallelism and multi-token prediction", where);
    if (whole)
        return p->loss == LOSS_FP32 ? 0 : fail("%s: loss: of a head of one number (:value) it is the framework's own: leave it out", where);
    if (p->kernels != KERNELS_TORCH_SDPA && p->kernels != KERNELS_TORCH_EAGER)
        return fail("%s: kernels: a model with a head of one number (:%s) is planned with torch-sdpa and torch-eager", where, head);
    if (by->tensor > 1 || by->pipeline > 1 || by->context > 1 || p->strategy == STRAT_DP)
        return fail("%s: parallel: a model with a head of one number (:%s) is planned under DDP, FSDP and DeepSpeed, without tensor, pipeline or context "
                    "parallelism", where, head);
    if (p->loss != LOSS_FP32)
        return fail("%s: loss: of a head of one number (:%s) it is the framework's own: leave it out", where, head);
    if (training_is_lora(&p->train) && !training_listed(p->train.modules_to_save, "score", true))
        return fail("%s: lora.modules_to_save: PEFT trains the head of one number (:%s) beside adapters: name \"score\" there", where, head);
    return 0;
}

int loss_check(const struct plan *p, const char *where)
{
    if (p->model.head != HEAD_LOGITS)
        return check_numbers(p, where);

    bool parts = p->loss == LOSS_CHUNKED || p->loss == LOSS_LINEAR_CHUNKS, autocast = plan_recipe(p).autocast, cut = parts || loss_reads_head(p->loss);
    const struct model *m = &p->model;

    if (check_kept(p, where) < 0)
        return -1;
    if (p->loss == LOSS_FP32)
        return 0;
    if (p->kernels == KERNELS_DPX)
        return fail("%s: loss: kernels \"dpx\" have one loss, in fp32", where);
    if (p->loss == LOSS_COMPUTE && p->precision != DT_BF16)
        return fail("%s: loss: \"bf16\" needs precision bf16", where);
    if (autocast && p->loss == LOSS_COMPUTE)
        return fail("%s: loss: torch.autocast computes cross-entropy in fp32: another loss than bf16", where);
    if (loss_is_distributed(p->loss) && !kernels_are_megatron(p->kernels))
        return fail("%s: loss: distributed-logprob is NeMo-RL's of a policy on Megatron-LM: dialect megatron", where);
    if (parts && !framework_of(p)->tool->torch)
        return fail("%s: loss: chunked and linear-chunks are torchtune's, of dialects torch and torch-fsdp1", where);
    if (p->loss == LOSS_LINEAR_CHUNKS && (p->parallel.pipeline > 1 || p->parallel.context > 1))
        return fail("%s: loss: linear-chunks is not modelled beside pipeline or context parallelism", where);
    if (cut && m->tensors[m->ntensors - 1].role == ROLE_HEAD && m->tensors[m->ntensors - 1].is_bias)
        return fail("%s: loss: losses in parts or without logits are not modelled for a head with a bias", where);
    return loss_reads_head(p->loss) ? check_reads_head(p, where) : 0;
}
