/* form_automodel_kernels.c -- see form_automodel_kernels.h.  NeMo Automodel of August 2026, as its image has it (docker/Dockerfile): with flash-attn,
 * Transformer Engine and Liger-Kernel. */
#include "model/form/form_automodel_kernels.h"

#include <stdio.h>
#include <string.h>

#include "model/arch/training.h"
#include "model/family/family.h"
#include "model/plan/attention.h"
#include "model/plan/liger.h"
#include "model/plan/modules_apart.h"

/* _transformers/registry.py, of the families that a plan can have. */
static const char *const own_dense[] = { "llama", "qwen2", "qwen3", "ministral3" };
static const char *const norms_fused[] = { "llama", "qwen2" };
static const char *const own_mixtures[] = { "qwen3_moe", "deepseek_v3", "glm4_moe", "gpt_oss" };

#define IS_AMONG(name, list) is_among(name, list, sizeof (list) / sizeof *(list))

static bool is_among(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, list[i]))
            return true;
    return false;
}

static bool says_true(const struct form_file *f, const char *path) { return json_is_true(form_value(f->doc, path)); }

static bool may_own(const struct form_file *f) { return !says_true(f, "model.force_hf") && !says_true(f, "quantization.load_in_4bit"); }

static bool is_gpt2(const struct form_file *f)
{
    const char *target = json_string_value(form_value(f->doc, "model._target_"));

    return target && strstr(target, "build_gpt2_model");
}

bool automodel_own_dense(struct form_reading *r, const struct model *m) { return may_own(r->file) && IS_AMONG(m->family, own_dense); }

static bool own_mixture(const struct form_file *f, const struct model *m) { return may_own(f) && IS_AMONG(m->family, own_mixtures); }

/* initialize_rms_norm_module(): "torch_fp32" is compiled, "torch" PyTorch's fused norm, "te" and "quack" are fused: each keeps its input and a number a row,
 * as Liger-Kernel's does.  Qwen3's and Ministral 3's classes have norms of transformers' operations. */
static bool fuses_norms(const struct form_file *f, const struct model *m)
{
    return !is_gpt2(f) && ((may_own(f) && IS_AMONG(m->family, norms_fused)) || own_mixture(f, m));
}

/* _apply_preload_overrides(): not beside tp_size and cp_size. */
static void read_liger(struct form_reading *r, const struct plan *p, bool staged)
{
    static const char key[] = "model.use_liger_kernel";
    struct liger_options of;
    enum loss_kind loss;
    const char *lacks;
    bool stated = form_value(r->file->doc, key);

    if (!form_true(r, key, true) || !liger_usual(&p->model, &of, &loss, &lacks))
        return;
    if (staged) {
        notes_add(r->notes, "%s%s: Automodel puts Liger-Kernel's layers into transformers' class where it is installed, as in its image: in stages they are "
                  "planned as transformers', which keep more", key, stated ? "" : ": not given");
        return;
    }
    if (of.rope || of.rms_norm || of.glu_activation || lacks)
        notes_add(r->notes, "%s%s: Automodel puts Liger-Kernel's layers into transformers' class where it is installed, as in its image%s%s%s", key,
                  stated ? "" : ": not given", lacks ? "; its " : "", lacks ? lacks : "", lacks ? " are not modelled: taken as transformers', which keep more" : "");
    form_set(r, "liger.rope", json_boolean(of.rope));
    form_set(r, "liger.rms_norm", json_boolean(of.rms_norm));
    form_set(r, "liger.glu_activation", json_boolean(of.glu_activation));
    if (loss == LOSS_LIGER && !strcmp(json_string_value(json_object_get(r->plan, "loss")), "fp32")) {
        form_set(r, "loss", json_string("liger-cross-entropy"));
        notes_add(r->notes, "%s: of %s it puts its cross-entropy in the place of torch.nn.functional's, which MaskedCrossEntropy calls: planned so", key, p->model.family);
    }
}

void automodel_read_norms(struct form_reading *r, const struct plan *p, const struct automodel_mesh *mesh)
{
    bool planned = mesh->tensor == 1 && mesh->pipeline == 1;        /* liger_check() */

    if (is_gpt2(r->file))
        return;
    if (!fuses_norms(r->file, &p->model)) {
        if (mesh->tensor == 1 && mesh->context == 1 && !automodel_own_dense(r, &p->model))
            read_liger(r, p, mesh->pipeline > 1);
    } else if (planned && family_for(&p->model)->liger.norm == LIGER_HAS) {
        form_set(r, "liger.rms_norm", json_true());
        notes_add(r->notes, "model.backend.rms_norm: Automodel's own class has fused norms: planned as Liger-Kernel's, which keep the same");
    }
}

/* resolve_sdpa_method(): beside recompute PyTorch's attention is FlashAttention-2, for cuDNN's may not be taken again in backward. */
static void without_cudnn(struct plan *p)
{
    if (p->recompute != RECOMPUTE_NONE && attention_takes(p, ATTENTION_BY_FLASH_2))
        p->attention = ATTENTION_BY_FLASH_2;
}

bool automodel_rows_of_documents(const struct form_file *f)
{
    const json_t *packed = form_value(f->doc, "packed_sequence.packed_sequence_size");
    bool packs = json_is_integer(packed) && json_integer_value(packed) > 0;
    const char *strategy = json_string_value(form_value(f->doc, "packed_sequence.packing_strategy"));
    const char *collate = json_string_value(form_value(f->doc, "dataloader.collate_fn"));

    return (packs && (!strategy || strcmp(strategy, "neat") != 0)) || (collate && strstr(collate, "packed_sequence_thd_collater"));
}

/* PyTorch's own ("sdpa") is planned; the ring and gpt-oss's have notes of their own. */
static void note_backend(const char *backend, const struct plan *p, struct notes *notes)
{
    bool ring = p->parallel.context > 1 && p->parallel.expert > 1;

    if (backend && strcmp(backend, "sdpa") != 0 && !ring && !family_for(&p->model)->sinks)
        notes_add(notes, "model.backend.attn is not in the plan: attention is planned with PyTorch's kernels, not with those of \"%.20s\"", backend);
}

/* Own mixtures have backend.attn: Transformer Engine's where it is installed, whose choice is cuDNN's from Hopper on as PyTorch's is.  All else has
 * attn_implementation; _apply_preload_overrides() makes it flash attention for packed samples of transformers' classes, and sdpa beside cp_size. */
void automodel_put_attention(const struct form_file *f, struct plan *p, struct notes *notes)
{
    static const char key[] = "model.attn_implementation";
    const char *said = json_string_value(form_value(f->doc, key)), *backend = json_string_value(form_value(f->doc, "model.backend.attn"));
    const json_t *packed = form_value(f->doc, "packed_sequence.packed_sequence_size");
    bool packs = json_is_integer(packed) && json_integer_value(packed) > 0;

    if (is_gpt2(f))
        return;
    note_backend(backend, p, notes);
    if (own_mixture(f, &p->model)) {
        if (backend && !strcmp(backend, "sdpa"))
            without_cudnn(p);
        return;
    }
    if (p->parallel.context > 1) {
        if (attention_flash(p) == FLASH_CUDNN && (!backend || strcmp(backend, "te") != 0))
            notes_add(notes, "distributed.cp_size: Automodel leaves cuDNN's attention out beside it: on this GPU attention takes longer than planned");
        return;
    }
    bool own = may_own(f) && IS_AMONG(p->model.family, own_dense), forced = packs && !own && said && strncmp(said, "flash", 5) != 0;
    if (own && automodel_rows_of_documents(f)) {
        if (!backend)
            notes_add(notes, "model.backend.attn: not given: rows of packed documents go through Transformer Engine's attention where it is installed, as in Automodel's "
                      "image, whatever %s says: planned with PyTorch's kernels, cuDNN's from Hopper on as its own", key);
        return;
    }
    const char *word = !said || forced ? "flash_attention_2" : said;
    if (!strcmp(word, "sdpa"))
        without_cudnn(p);
    if (!said || forced)
        notes_add(notes, "%s%s: Automodel takes flash attention 2%s where it is installed, as in its image", key, said ? "" : ": not given",
                  forced ? " for packed samples" : "");
    form_put_attention(p, key, word, notes);
}

void automodel_recompute_modules(struct plan *p)
{
    if (p->recompute == RECOMPUTE_FULL && p->model.experts == 0 && modules_apart_fit(&p->model))
        p->recompute = RECOMPUTE_MODULES;
}

/* ---- values ---- */

static const char *const dispatchers[] = { "deepep", "hybridep", "uccl_ep", "mok", "torch", NULL };

/* A boolean, or one of the words of transformers' tokenizers. */
static void check_length(struct form_reading *r, const char *path, const char *const *words)
{
    if (form_value(r->file->doc, path) && !json_is_boolean(form_value(r->file->doc, path)))
        form_word(r, path, words, 0);
}

/* Of create_bnb_config() (components/quantization/qlora.py): products in 16 bits of codes that FSDP2 takes as tensors of the units' own dtype. */
static void check_codes(struct form_reading *r)
{
    static const char *const types[] = { "nf4", NULL }, *const dtypes[] = { "bfloat16", "torch.bfloat16", "bf16", NULL };

    form_word(r, "quantization.bnb_4bit_quant_type", types, 0);
    form_word(r, "quantization.bnb_4bit_compute_dtype", dtypes, 0);
    form_word(r, "quantization.bnb_4bit_quant_storage", dtypes, 0);
}

void automodel_check_values(struct form_reading *r)
{
    static const char *const flags[] = { "model.force_hf", "model.output_hidden_states", "quantization.load_in_4bit", "distributed.moe.ignore_router_for_ac",
                                         "distributed.moe.wrap_outer_model", "peft.use_memory_efficient_lora", "model.backend.fake_balanced_gate" };
    static const char *const cut[] = { "longest_first", "only_first", "only_second", "do_not_truncate", NULL };
    static const char *const filled[] = { "longest", "max_length", "do_not_pad", NULL };

    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        form_true(r, flags[i], false);
    form_word(r, "model.backend.dispatcher", dispatchers, 0);
    check_length(r, "dataset.truncation", cut);
    check_length(r, "dataset.padding", filled);
    check_codes(r);
}

/* ---- what costs something, and is not in the plan ---- */

static double in_gb(double bytes) { return bytes * 1e-9; }

/* "of N GB a micro-batch more": three digits and more are written out. */
static void note_bound(struct notes *notes, const char *what, double bytes)
{
    char gb[24];

    snprintf(gb, sizeof gb, bytes < 99e9 ? "%.2g" : "%.0f", in_gb(bytes));
    notes_add(notes, "%s: an upper bound of memory and time, of %s GB a micro-batch more", what, gb);
}

static double tokens_of(const struct plan *p) { return (double)(p->micro_batch * plan_rank_seq(p)); }

/* moe/parallelizer.py, apply_ac(): the router's product in 16 bits, and topk()'s values and places in 8 bytes, are saved. */
static double note_routers(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    const json_t *again = form_value(f->doc, "distributed.moe.ignore_router_for_ac");
    double routers = 0;

    for (int t = 0; t < p->model.ntensors; t++)
        routers += p->model.tensors[t].role == ROLE_ROUTER && !p->model.tensors[t].is_bias;
    double bytes = tokens_of(p) * routers * (double)(2 * p->model.experts + 10 * p->model.experts_used);
    if (!(routers > 0) || p->recompute != RECOMPUTE_FULL || !own_mixture(f, &p->model) || json_is_false(again) || says_true(f, "model.backend.fake_balanced_gate"))
        return 0;
    notes_add(notes, "distributed.moe.ignore_router_for_ac%s: logits and choices of routers are kept, not recomputed: %.2g GB a micro-batch more than is planned",
              again ? "" : " (usual: true)", in_gb(bytes));
    return bytes;
}

static void note_experts(const struct plan *p, struct notes *notes)
{
    if (p->parallel.expert > 1)
        notes_add(notes, "distributed.ep_size: routers and experts are planned as torchtitan computes them, embedding and head in one unit: Automodel's are its own "
                  "(components/moe), in units of their own");
}

/* moe/experts.py.  "torch": each rank gathers all ranks' tokens in 16 bits and computes what its experts have of them; results are summed in fp32, and so are their
 * gradients in backward, and those of tokens in 16 bits.  Of T tokens of a rank, width H and n ranks: (n - 1) T H of 2 + 8 bytes, and of 8 + 4; the plan's all-to-all
 * sends each token's k copies there and back, (n - 1) / n k T H of 2 + 2, and as many in backward. */
static void note_exchange(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    static const char key[] = "model.backend.dispatcher";
    const char *said = json_string_value(form_value(f->doc, key));
    double routers = 0, again = p->recompute == RECOMPUTE_NONE ? 1 : 2, n = (double)p->parallel.expert;

    for (int t = 0; t < p->model.ntensors; t++)
        routers += p->model.tensors[t].role == ROLE_ROUTER && !p->model.tensors[t].is_bias;
    if (!said || n <= 1 || routers <= 0)
        return;
    double one = (n - 1) * tokens_of(p) * (double)p->model.hidden * routers / (double)p->parallel.pipeline;
    if (strcmp(said, "torch") != 0)
        notes_add(notes, "%s: another exchange of tokens than torch's all-to-all is not modelled", key);
    else
        notes_add(notes, "%s: torch gathers all ranks' tokens and sums results in fp32: %.3g GB sent by a rank in a micro-step, where the plan's all-to-alls send %.3g GB: "
                  "steps take longer than planned", key, in_gb(one * (10 * again + 12)), in_gb(one / n * (double)p->model.experts_used * (4 * again + 4)));
}

/* Where Liger-Kernel's norms are not planned: two norms a block, of those that are kept, and the last one. */
static void note_norms(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    double norms = 2 * (p->recompute == RECOMPUTE_NONE ? (double)p->model.layers / (double)p->parallel.pipeline : 1) + 1;

    if (fuses_norms(f, &p->model) && !p->liger.rms_norm)
        note_bound(notes, "model.backend.rms_norm: Automodel's own class has fused norms, which keep their input alone: planned with transformers', which keep "
                   "a copy of it in fp32, too", 4 * norms * tokens_of(p) * (double)p->model.hidden / (p->parallel.sequence ? (double)p->parallel.tensor : 1));
}

#define GPT_OSS(key) "model" key ": Automodel computes gpt-oss's attention with flex attention or TE, which keep no scores: the plan's kernels (torch-eager) keep them"

/* Probabilities of 16 bits, of each block that is kept. */
static void note_scores(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    double blocks = p->recompute == RECOMPUTE_NONE ? (double)p->model.layers / (double)p->parallel.pipeline : 1;

    if (family_for(&p->model)->sinks)
        note_bound(notes, form_value(f->doc, "model.backend.attn") ? GPT_OSS(".backend.attn") : GPT_OSS(""),
                   2 * blocks * (double)p->model.heads / (double)p->parallel.tensor * tokens_of(p) * (double)p->seq);
}

/* A checkpoint is the same tensor, and so is the input that a fused norm keeps. */
static double note_outputs(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    double bytes = 2 * tokens_of(p) * (double)(p->model.layers * p->model.hidden);

    if (!says_true(f, "model.output_hidden_states") || p->recompute != RECOMPUTE_NONE || p->liger.rms_norm)
        return 0;
    notes_add(notes, "model.output_hidden_states: every block's output stays until the loss: %.2g GB more than is planned", in_gb(bytes));
    return bytes;
}

/* _peft/lora_mlp.py: gate's and up's outputs are kept, the activation and the product made again, where the weights were there when adapters were put in
 * (install_fused_lora_mlp()): DDP's, and transformers' classes' on one GPU. */
static bool fuses_adapted_mlp(const struct form_file *f, const struct plan *p)
{
    const struct model *m = &p->model;
    int adapted = 0;
    bool one = p->cluster.world_size == 1, ddp = json_string_value(form_value(f->doc, "distributed.strategy")) &&
               !strcmp(json_string_value(form_value(f->doc, "distributed.strategy")), "ddp");

    for (int t = 0; t < m->ntensors; t++)
        if (m->tensors[t].block == 0 && m->tensors[t].adapter == ADAPTER_LORA_A)
            adapted += m->tensors[t].role == ROLE_GATE || m->tensors[t].role == ROLE_UP || m->tensors[t].role == ROLE_DOWN;
    return adapted == 3 && m->act == ACT_SILU && m->experts == 0 && p->train.base == BASE_PLAIN && p->train.dropout <= 0 &&
           (ddp || (one && !(may_own(f) && IS_AMONG(m->family, own_dense))));
}

/* _peft/lora.py: A's output is made again in backward. */
static void note_adapters(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    const json_t *usual = form_value(f->doc, "peft.use_memory_efficient_lora");
    double ranks = 0, blocks = p->recompute == RECOMPUTE_NONE ? 1 : 1 / (double)p->model.layers;

    for (int t = 0; t < p->model.ntensors; t++)
        if (p->model.tensors[t].adapter == ADAPTER_LORA_A)
            ranks += (double)p->model.tensors[t].shape[0];
    if (p->parallel.tensor > 1 || json_is_false(usual))
        return;
    bool fused = fuses_adapted_mlp(f, p);
    double mlp = fused ? (p->liger.glu_activation ? 2.0 : 4.0) * (double)(p->model.layers * p->model.ffn) : 0;
    notes_add(notes, "peft.use_memory_efficient_lora%s: A's outputs%s are made again in backward: the plan keeps them: %.2g GB more", usual ? "" : " (usual: true)",
              fused ? " and the MLP's product" : "", in_gb(blocks * (2 * ranks + mlp) * tokens_of(p)));
}

/* Cuts samples to dataset.seq_length nobody but a truncation that is asked for, and the readers of datasets below ask for none by themselves; padding alone
 * fills up to it (components/datasets/llm). */
static bool is_no_bound(const struct form_file *f, const struct plan *p)
{
    static const char *const readers[] = { "ChatDataset", "ColumnMappedText", "make_agent_chat_dataset", "make_squad_dataset" };
    const char *target = json_string_value(form_value(f->doc, "dataset._target_")), *padding = json_string_value(form_value(f->doc, "dataset.padding"));
    const json_t *cuts = form_value(f->doc, "dataset.truncation");
    bool such = false, cut = json_is_true(cuts) || (json_is_string(cuts) && strcmp(json_string_value(cuts), "do_not_truncate") != 0);

    for (size_t i = 0; target && i < sizeof readers / sizeof *readers; i++)
        such = such || strstr(target, readers[i]);
    return such && !cut && !(padding && !strcmp(padding, "max_length")) && json_integer_value(form_value(f->doc, "dataset.seq_length")) == p->seq;
}

static void note_rows(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    if (json_integer_value(form_value(f->doc, "packed_sequence.packed_sequence_size")) > 0)
        notes_add(notes, "packed_sequence.packed_sequence_size: every row counts as full, and its attention as one sample's");
    else if (is_no_bound(f, p))
        notes_add(notes, "dataset.seq_length: samples are not cut to it without dataset.truncation, nor filled up to it without padding: max_length: rows of %lld tokens "
                  "are planned, the data's may be longer or shorter", (long long)p->seq);
}

double automodel_note_costs(const struct form_file *f, const struct plan *p, struct notes *notes)
{
    double more = note_routers(f, p, notes) + note_outputs(f, p, notes);

    note_rows(f, p, notes);
    note_norms(f, p, notes);
    note_scores(f, p, notes);
    note_experts(p, notes);
    note_exchange(f, p, notes);
    if (training_is_lora(&p->train))
        note_adapters(f, p, notes);
    return more;
}
