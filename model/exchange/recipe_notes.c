/* recipe_notes.c -- see recipe_notes.h.  TRL 1.9 (trainer/sft_trainer.py), LLaMA-Factory (model/adapter.py), axolotl (utils/schemas/config.py). */
#include "model/exchange/recipe_notes.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"

#include "model/arch/hf_packed.h"
#include "model/arch/packed.h"
#include "model/arch/training.h"
#include "model/exchange/unread.h"
#include "model/plan/attention.h"

static bool is_set(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    return v && !json_is_null(v);
}

static bool is_true(const json_t *config, const char *key) { return json_is_true(json_object_get(config, key)); }

/* Steps that one generation's samples serve (GRPOConfig.__post_init__()). */
static int64_t steps_served(const json_t *config, const struct plan *p)
{
    const json_t *said = json_object_get(config, "steps_per_generation"), *batch = json_object_get(config, "generation_batch_size");

    if (json_is_integer(said))
        return json_integer_value(said);
    return json_is_integer(batch) ? json_integer_value(batch) / (p->micro_batch * plan_data_ranks(p)) : p->accumulation;
}

/* Log-probabilities by the model that drew the samples: a forward pass of its own for a generation, where its samples outlive a step or vLLM drew
 * them (grpo_trainer.py, _generate_and_score_completions()).  A phase plan has a phase of it. */
static void note_scored(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    const json_t *times = json_object_get(of->config, "num_iterations"), *corrects = json_object_get(of->config, "vllm_importance_sampling_correction");
    int64_t serves = steps_served(of->config, p), iterations = json_is_integer(times) ? json_integer_value(times) : 1, every = serves * iterations;
    int64_t passes = 1 + recompute_whole(p->recompute) + (of->adapts ? 1 : 2);
    bool vllm = is_true(of->config, "use_vllm") && !json_is_false(corrects);
    char why[160] = "vllm_importance_sampling_correction, usual beside use_vllm";

    if (iterations < 1 || every < 1 || (p->accumulation % every == 0 && !vllm))
        return;
    if (!vllm)
        snprintf(why, sizeof why, "gradient_accumulation_steps %lld is no multiple of steps_per_generation %lld x num_iterations %lld",
                 (long long)p->accumulation, (long long)serves, (long long)iterations);
    notes_add(notes, "old log-probabilities: TRL scores what was generated in a forward pass more (%s), which is not in the plan: some %.0f %% of an update's "
              "compute", why, 100. / (double)(passes * iterations));
}

/* What TRL's GRPO holds and runs beside the model that trains; with a reference model it is refused (recipe_refuses.c). */
static void note_models(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    if (recipe_trl_trainer(of->config) != TRL_GRPO)
        return;
    note_scored(of, p, notes);
    notes_add(notes, "GRPO has no reference model, as beta is 0%s", is_set(of->config, "beta") ? "" : ", TRL's default");
    notes_add(notes, "the plan is the update alone: generation, rewards and vLLM's share of the memory are not in it");
}

/* Adapters whose dtype is 16 bits, where the plan has PEFT's fp32: weight, gradient and two states of 4 bytes for 2 each. */
static void note_adapters(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    bool trls = of->form == RECIPE_TRL || (of->form == RECIPE_AXOLOTL && recipe_has_preferences(of->config));       /* axolotl's trainers of them are TRL's */
    bool packed = trls && p->train.base != BASE_PLAIN, pure = of->form == RECIPE_FACTORY && of->pure && !p->train.narrow;
    int64_t n = 0;

    for (int i = 0; i < p->model.ntensors; i++)         /* copies (modules_to_save) are in 16 bits here, too */
        n += tensor_is_adapter(&p->model.tensors[i]) ? p->model.tensors[i].numel : 0;
    if (of->adapts && (packed || pure) && p->dialect == DIALECT_TORCH && p->strategy == STRAT_DDP)
        notes_add(notes, "%s in bf16; planned in fp32: up to %.3g GB more than they take",
                  packed ? "TRL keeps adapters of packed weights" : "pure_bf16 keeps adapters", (double)n * 8 / 1e9);
}

/* TRL hands bnb_4bit_quant_storage on as it is, transformers' own is uint8; axolotl and LLaMA-Factory give that of the other weights. */
static void note_storage(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    const json_t *stated = json_object_get(of->config, "bnb_4bit_quant_storage");
    const char *storage = json_string_value(stated ? stated : json_object_get(of->config, "bnb_4bit_quant_storage_dtype"));  /* PEFT's script */
    bool codes = p->train.base == BASE_NF4 || p->train.base == BASE_NF4_DOUBLE;

    if (of->form == RECIPE_TRL && codes && p->strategy == STRAT_FSDP && (!storage || !strstr(storage, "float")))
        notes_add(notes, "bnb_4bit_quant_storage is %s: FSDP shards weights in 4 bits only where it is the dtype of the others; planned so: write %s",
                  storage ? storage : "not given (uint8)", p->precision == DT_BF16 ? "bfloat16" : "float16");
}

/* TRL hands its dtype, float32 unless it is given, on as bitsandbytes' compute dtype (trainer/utils.py, get_quantization_config()): codes become fp32,
 * which autocast makes 16 bits for the product, and MatMul4Bit.backward() for its own.  PEFT's script has an option of its own, float16. */
static void note_compute(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    const char *key = recipe_key(of->config, RECIPE_TRL, SAYS_DTYPE), *dtype = json_string_value(json_object_get(of->config, key));
    const char *compute = json_string_value(json_object_get(of->config, "bnb_4bit_compute_dtype"));
    const char *model = json_string_value(json_object_get(of->config, recipe_key(of->config, RECIPE_TRL, SAYS_MODEL)));
    bool codes = p->train.base == BASE_NF4 || p->train.base == BASE_NF4_DOUBLE, peft = json_object_get(of->config, "use_4bit_quantization") != NULL;
    bool wide = compute ? !strcmp(compute, "float32") : !peft && !hf_packed_nf4(model) && (!dtype || !strcmp(dtype, "float32"));
    int64_t n = 0, bytes[PACKED_PARTS];

    for (int i = 0; i < p->model.ntensors; i++)
        n += packed_parts(&p->model.tensors[i], bytes) > 0 ? p->model.tensors[i].numel : 0;
    if (of->form == RECIPE_TRL && codes && wide && p->precision != DT_FP32)
        notes_add(notes, "%s is %s: weights in codes become fp32 and then 16 bits before each product, planned as 16 bits at once: %.3g GB more are read and "
                  "written in each pass over the model; %s: bfloat16 has none of it", compute ? "bnb_4bit_compute_dtype" : key,
                  compute || dtype ? "float32" : "not given, float32 in TRL", (double)n * 8 / 1e9, compute ? "bnb_4bit_compute_dtype" : key);
}

/* Families whose attention patch_self_attn_lora() (monkeypatch/lora_kernels.py) does not find as it looks for it: three products side by side, then
 * o_proj (models/ of transformers 5.24). */
static bool stops_kernels(const struct plan *p)
{
    static const char *const others[] = { "bloom", "cohere", "deepseek_v3", "falcon", "glm4_moe", "gpt2", "gpt_neox", "gptj", "mpt", "olmo2", "olmo3", "olmoe",
                                          "opt", "phi", "phi3", "stablelm" };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(p->model.family, others[i]))
            return true;
    return false;
}

/* check_auto_enable_lora_kernels(). */
static void note_kernels(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    static const char *const kernels[] = { "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel" };
    bool fsdp1 = p->dialect == DIALECT_TORCH_FSDP1;

    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (is_set(of->config, kernels[i]))
            return;
    if (!of->adapts || recipe_has_preferences(of->config) || is_true(of->config, "trust_remote_code") || p->train.base == BASE_INT8 || fsdp1)
        return;
    if (stops_kernels(p))
        notes_add(notes, "axolotl takes its fused LoRA kernels by itself, which do not know %s's attention: the run stops before its first step (\"Original QKV code "
                  "not found\", or O): lora_qkv_kernel: false, lora_o_kernel: false and lora_mlp_kernel: false are planned", p->model.family);
    else
        notes_add(notes, "axolotl takes its fused LoRA kernels by itself (lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel), which keep less: not "
                  "modelled");
}

/* PEFT's prepare_model_for_kbit_training() makes what is not in codes fp32, of which axolotl makes embed_tokens, lm_head and norms narrow again
 * (loaders/model.py, _convert_embedding_modules_dtype()): not GPT-J's wte, which no head shares. */
static bool stays_wide(const struct model *m)
{
    int table = model_next_tensor(m, TENSOR_EMBED, -1);

    return !m->tied && table >= 0 && strstr(m->tensors[table].name, "wte");
}

static void note_widened(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    if (of->adapts && p->train.base != BASE_PLAIN && p->strategy == STRAT_DDP && stays_wide(&p->model))
        notes_add(notes, "axolotl keeps the embedding of %s (wte) in fp32 beside weights in codes: %.3g GB more than planned", p->model.family,
                  (double)p->model.vocab * (double)p->model.hidden * 2 / 1e9);
}

/* Recipes of TRL and alignment-handbook are launched with an accelerate config that says who shares what. */
static void note_sharing(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    if (!of->launched && p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH && p->cluster.world_size > 1)
        notes_add(notes, "nothing in it says who shares what: planned as DDP; where accelerate's config says so, give that with --accelerate FILE");
}

/* The attention that the recipe names; NULL: none.  axolotl has older flags, as PEFT's examples/sft and older recipes of TRL have. */
static const char *attention_of(const struct recipe_about *of)
{
    static const char *const flags[] = { "flash_attention", "flex_attention", "xformers_attention", "sdp_attention" };
    static const char *const olds[] = { "use_flash_attn", "use_flash_attention_2" };
    const char *asks = json_string_value(json_object_get(of->config, of->form == RECIPE_FACTORY ? "flash_attn" : "attn_implementation"));

    for (size_t i = 0; !asks && of->form == RECIPE_AXOLOTL && i < sizeof flags / sizeof *flags; i++)
        if (is_true(of->config, flags[i]))
            asks = flags[i];
    for (size_t i = 0; !asks && of->form == RECIPE_TRL && i < sizeof olds / sizeof *olds; i++)
        if (is_true(of->config, olds[i]))
            asks = "flash_attention_2";
    return asks;
}

/* loaders/model.py, _configure_embedding_dtypes(): norms, embedding and head are made fp32 before full fine-tuning, and narrow again for the
 * sake of other attention than torch's, or of cut-cross-entropy. */
int recipe_check_embedding(const struct recipe_about *of, const struct plan *p, const char *where)
{
    const char *asks = attention_of(of);
    bool torchs = !asks || !strcmp(asks, "sdpa") || !strcmp(asks, "eager") || !strcmp(asks, "sdp_attention");
    bool alone = p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH && p->precision != DT_FP32;
    bool wide = of->form == RECIPE_AXOLOTL && !of->adapts && torchs && alone && p->loss != LOSS_CUT;

    if (of->form == RECIPE_FACTORY && of->adapts && !of->pure && p->train.modules_to_save[0] && plan_recipe(p).copies != DT_FP32)
        return fail("%s: additional_target: LLaMA-Factory makes all that trains fp32 (model/adapter.py), copies beside frozen weights in 16 bits too, which is "
                    "not planned: leave it out, or set pure_bf16", where);
    return wide ? fail("%s: attn_implementation: beside other attention than flash attention's axolotl trains embedding, head and norms in fp32, "
                       "which is not planned: attn_implementation: flash_attention_2", where) : 0;
}

/* Layers in int8 multiply gradients in the dtype of their inputs (MatMul8bitLt.backward(), which has no autocast), and TRL loads a model in fp32 unless its
 * dtype is given: norms, residuals and what the layers hand on are fp32, too. */
int recipe_check_int8(const struct recipe_about *of, const struct plan *p, const char *where)
{
    const char *key = recipe_key(of->config, RECIPE_TRL, SAYS_DTYPE), *dtype = json_string_value(json_object_get(of->config, key));
    bool wide = dtype ? !strcmp(dtype, "float32") : !recipe_asks_checkpoint(of->config, of->form);

    return of->form == RECIPE_TRL && p->train.base == BASE_INT8 && wide && p->precision != DT_FP32
         ? fail("%s: %s: %s: layers in int8 multiply their gradients in the dtype of their inputs, fp32 then, many times slower than 16 bits, which is not planned: "
                "%s: bfloat16", where, key, dtype ? dtype : "not given, float32 in TRL", key) : 0;
}

int recipe_check_attention(const json_t *config, enum recipe_form form, const char *where)
{
    static const char *const factorys[] = { "auto", "disabled", "sdpa", "fa2", "fa3", NULL };
    static const char *const others[] = { "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention",
                                          "xformers", "sage", "s2", "fp8", "paged|eager", "paged|sdpa", NULL };
    const char *const *known = form == RECIPE_FACTORY ? factorys : others;
    const char *key = recipe_key(config, form, SAYS_ATTENTION), *asks = key ? json_string_value(json_object_get(config, key)) : NULL;

    if (!asks || strchr(asks, '/'))             /* a kernel of the hub, by its id */
        return 0;
    for (int i = 0; known[i]; i++)
        if (!strcmp(asks, known[i]))
            return 0;
    return fail("%s: %s: \"%.40s\" is no attention that %s has: %s", where, key, asks, recipe_form_name(form),
                form == RECIPE_FACTORY ? "auto, disabled, sdpa, fa2, fa3" : "eager, sdpa, flash_attention_2, flash_attention_3, flex_attention");
}

/* flash-attn by its names in transformers and in LLaMA-Factory, whose model/model_utils/attention.py has "auto" and "disabled" beside; axolotl's old flag. */
void recipe_read_attention(const struct recipe_about *of, struct plan *p)
{
    static const struct { const char *word; enum attention_by by; } words[] = {
        { "flash_attention_2", ATTENTION_BY_FLASH_2 }, { "fa2", ATTENTION_BY_FLASH_2 }, { "flash_attention", ATTENTION_BY_FLASH_2 },
        { "flash_attention_3", ATTENTION_BY_FLASH_3 }, { "fa3", ATTENTION_BY_FLASH_3 }, { "flash_attention_4", ATTENTION_BY_FLASH_4 },
    };
    const char *asks = attention_of(of);

    for (size_t i = 0; asks && i < sizeof words / sizeof *words; i++)
        if (!strcmp(asks, words[i].word) && attention_takes(p, words[i].by))
            p->attention = words[i].by;
}

/* What the recipe asks of attention where the plan has the scores of all pairs instead: families of which sdpa does not compute the same. */
static void note_attention(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    const char *asks = attention_of(of);
    bool other = asks && strcmp(asks, "eager") && strcmp(asks, "disabled") && strcmp(asks, "auto");

    if (other && strncmp(asks, "sd", 2) && p->kernels == KERNELS_TORCH_SDPA && p->attention == ATTENTION_BY_SDPA)
        notes_add(notes, "attention by %.40s is planned with PyTorch's scaled_dot_product_attention, %s", asks,
                  attention_masked(p) ? "which is handed a mask where flash-attn is handed a window: an upper bound" : "whose fused kernels keep as much");
    if (other && p->kernels == KERNELS_TORCH_EAGER)
        notes_add(notes, "attention by %.40s is not planned for %s: planned is eager, which keeps the scores of all pairs: an upper bound", asks,
                  p->model.family);
}

/* Documents of one row are kept apart by flash-attn's lengths, or by a mask: then scaled_dot_product_attention() takes all pairs of the row, and K and V for
 * each head.  TRL's "bfd" has one row of a micro-batch (DataCollatorForLanguageModeling, padding_free), axolotl one of each sample. */
static void note_packed(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    const char *asks = attention_of(of), *strategy = json_string_value(json_object_get(of->config, "packing_strategy"));
    bool trl = of->form == RECIPE_TRL && is_true(of->config, "packing") && (!strategy || strcmp(strategy, "wrapped") != 0);
    bool axolotl = of->form == RECIPE_AXOLOTL && is_true(of->config, "sample_packing");

    if ((trl || axolotl) && (!asks || !strncmp(asks, "sd", 2)) && p->kernels == KERNELS_TORCH_SDPA && p->attention == ATTENTION_BY_SDPA)
        notes_add(notes, "%s without flash attention: a mask keeps samples of a row of %lld tokens apart, and PyTorch's attention takes all its pairs, %lld times as many as "
                  "planned, and copies of K and V for each head: not planned; attn_implementation: flash_attention_2 has none of it",
                  trl ? "packing" : "sample_packing", (long long)(trl ? p->micro_batch * p->seq : p->seq), (long long)(trl ? 2 * p->micro_batch : 2));
}

bool recipe_asks_checkpoint(const json_t *config, enum recipe_form form)
{
    return form == RECIPE_TRL && json_is_null(json_object_get(config, recipe_key(config, form, SAYS_DTYPE)));
}

/* DeepSpeed's weights are of its own precision, and FSDP's that train are widened by accelerate, whatever they were loaded in. */
static void note_null(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    bool differs = p->strategy == STRAT_DDP && p->dialect == DIALECT_TORCH && p->ddp.model_dtype >= 0 && p->train.base == BASE_PLAIN;
    char size[160] = "";

    if (!recipe_asks_checkpoint(of->config, of->form))
        return;
    if (differs)
        snprintf(size, sizeof size, ", %.3g GB more on each GPU%s", 2e-9 * (double)p->model.params,
                 training_is_all(&p->train) ? ", and as much of gradients and of each state of AdamW" : "");
    notes_add(notes, "%s null: the checkpoint's own since transformers 5, taken as 16 bits; transformers 4 loads weights in fp32%s",
              recipe_key(of->config, of->form, SAYS_DTYPE), size);
}

/* Losses weighted by entropies: LLaMA-Factory's (train/trainer_utils.py) copies the logits that count, in fp32; axolotl's (monkeypatch/loss/eaft.py) has
 * whole logits in 16 bits. */
static void note_entropies(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    if (of->form == RECIPE_FACTORY && is_true(of->config, "use_eaft_loss"))
        notes_add(notes, "use_eaft_loss: the logits are copied in fp32 for their entropies: up to %.3g GB more than planned",
                  (double)(p->micro_batch * p->seq) * (double)p->model.vocab * 4 / 1e9);
    if (of->form == RECIPE_AXOLOTL && is_true(of->config, "use_eaft"))
        notes_add(notes, "use_eaft: a loss of logits in 16 bits, planned as one in fp32: an upper bound");
}

/* Ray starts so many workers, whatever there is: where LLaMA-Factory finds USE_RAY, and by axolotl's use_ray. */
static void note_workers(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    const json_t *said = json_object_get(of->config, "ray_num_workers");
    bool asked = of->form == RECIPE_FACTORY ? said != NULL : of->form == RECIPE_AXOLOTL && is_true(of->config, "use_ray");

    if (asked)
        unread_ranks(notes, "ray_num_workers", json_is_integer(said) ? json_integer_value(said) : 1, p->cluster.world_size);
    if (of->form == RECIPE_TRL)             /* what TRL's commands do not know of their file goes to accelerate (cli/commands/training.py) */
        unread_ranks(notes, "num_processes", json_integer_value(json_object_get(of->config, "num_processes")), p->cluster.world_size);
}

/* utils/schemas/validation.py, deprecate_sharegpt_datasets(). */
static void note_datasets(const struct recipe_about *of, struct notes *notes)
{
    const json_t *each;
    size_t i;

    json_array_foreach(json_object_get(of->config, "datasets"), i, each) {
        const char *type = json_string_value(json_object_get(each, "type"));
        if (type && !strncmp(type, "sharegpt", 8)) {
            notes_add(notes, "datasets: type: %.40s: axolotl of 2025 and later stops at it (\"Please use `type: chat_template` instead.\"); older ones train as planned", type);
            return;
        }
    }
}

/* A hidden state in 16 bits for each block. */
static void note_offload(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    const char *word = json_string_value(json_object_get(of->config, "gradient_checkpointing"));

    if (of->adapts && word && !strcmp(word, "offload"))
        notes_add(notes, "gradient_checkpointing: offload: checkpoints wait in host memory, which is not planned beside adapters: planned on the GPU, "
                  "up to %.3g GB more", (double)p->model.layers * (double)(p->micro_batch * p->seq * p->model.hidden) * 2e-9);
}

/* trl/generation/vllm_generation.py hands it to vLLM's LLM(model_impl=...). */
void recipe_note_engine(const json_t *config, struct notes *notes)
{
    const char *impl = json_string_value(json_object_get(config, "vllm_model_impl"));

    if (impl && strcmp(impl, "vllm"))
        notes_add(notes, "vllm_model_impl: %.40s: the engine runs transformers' modules, which are slower: generation is planned by vLLM's own", impl);
}

void recipe_note_removed(const json_t *config, struct notes *notes)
{
    static const char *const removed[] = { "max_prompt_length", "vllm_device", "vllm_max_model_len" };

    const char *loss = json_string_value(json_object_get(config, "loss_type"));

    if (loss && !strcmp(loss, "chunked_nll"))
        notes_add(notes, "loss_type: chunked_nll: TRL 1.16 knows nll and dft alone and stops at it; its nll is computed in chunks");
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        if (json_object_get(config, removed[i]))
            notes_add(notes, "%s: TRL 1.16 has no such key and stops at it: planned as an older version takes it", removed[i]);
}

void recipe_note(const struct recipe_about *of, const struct plan *p, struct notes *notes)
{
    if (of->form == RECIPE_TRANSFORMERS)
        notes_add(notes, "TrainingArguments say neither the model's dtype, nor who computes attention, nor adapters: taken as fp32 (a script that names none gets the "
                  "checkpoint's since transformers 5, mostly 16 bits), PyTorch's, all of it trains");
    if (of->form == RECIPE_TRL) {
        note_models(of, p, notes);
        recipe_note_removed(of->config, notes);
        recipe_note_engine(of->config, notes);
    }
    note_null(of, p, notes);
    if (of->form == RECIPE_TRL || of->form == RECIPE_TRANSFORMERS)
        note_sharing(of, p, notes);
    if (of->form == RECIPE_AXOLOTL) {
        note_kernels(of, p, notes);
        note_widened(of, p, notes);
        note_offload(of, p, notes);
        note_datasets(of, notes);
    }
    note_adapters(of, p, notes);
    note_storage(of, p, notes);
    note_compute(of, p, notes);
    note_attention(of, p, notes);
    note_packed(of, p, notes);
    note_entropies(of, p, notes);
    note_workers(of, p, notes);
}
