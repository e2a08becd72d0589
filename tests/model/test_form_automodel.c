/* What NeMo Automodel holds beside the plan of its model: by hand, in bytes. */
#include "tests/model/form_files.h"

#include "model/form/form_rows.h"
#include "model/lower/lower.h"
#include "model/memory/evaluate.h"
#include "model/plan/loss_check.h"
#include "model/schedule/ledger.h"

/* Norms that are fused in Automodel's own class and are not in the plan: 4 bytes of each input of two norms a block (32 of 4,096 values) and the last one, of 512
 * tokens; of cut rows half of it, of recomputed blocks those of one.  Qwen3's own class has transformers' norms. */
static void norms_that_are_planned_unfused_have_a_size(void **state)
{
    static const struct { const char *model, *mesh; double bytes; } files[] = {
        { "llama-3-8b", "  tp_size: 2\n", 4.0 * 65 * 512 * 4096 }, { "llama-3-8b", "  tp_size: 2\n  sequence_parallel: true\n", 4.0 * 65 * 512 * 4096 / 2 },
        { "llama-3-8b", "  tp_size: 2\n  activation_checkpointing: true\n", 4.0 * 3 * 512 * 4096 }, { "llama-3-8b", "  tp_size: 1\n", 0 },
        { "qwen3-8b", "  tp_size: 2\n", 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024], said[80];
        snprintf(text, sizeof text, AUTOMODEL "distributed:\n  strategy: fsdp2\n%s" CHAT, files[i].mesh);
        if (read_text_of(files[i].model, "a.yaml", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        snprintf(said, sizeof said, "an upper bound of memory and time, of %.2g GB a micro-batch", files[i].bytes * 1e-9);
        if (notes_say_that(&notes, files[i].bytes > 0 ? said : "an upper bound of memory") != (files[i].bytes > 0))
            fail_msg("%s of %s: %s", files[i].mesh, files[i].model, said);
        plan_free(&p);
    }
}

/* Without its window a plan of mistral-7b has flash attention, no mask and no repeated keys: what is told is what they take.  Rows of documents are Transformer
 * Engine's where nothing else is said (models/llama/model.py: THD), whatever attn_implementation is; neat packing's are attn_implementation's. */
static void attention_that_is_not_planned_is_told_with_its_size(void **state)
{
    static const struct { const char *model, *mesh; bool documents, flash; } files[] = {
        { "mistral-7b", "", false, false }, { "llama-3-8b", "packed_sequence:\n  packed_sequence_size: 512\n", true, false },
        { "llama-3-8b", "packed_sequence:\n  packed_sequence_size: 512\n  packing_strategy: neat\n", false, true }, { "llama-3-8b", "", false, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct evaluation with, without;
        struct plan p;
        char text[800], why[1024], said[80];
        snprintf(text, sizeof text, AUTOMODEL "distributed:\n  strategy: fsdp2\n%s" CHAT, files[i].mesh);
        if (i == 0)
            memcpy(strstr(text, "512\n"), "8192\n", 6);             /* beyond the window of 4,096 */
        if (read_text_of(files[i].model, "a.yaml", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        assert_int_equal(p.attention == ATTENTION_BY_FLASH_2, files[i].flash);
        assert_int_equal(notes_say_that(&notes, "Transformer Engine's attention"), files[i].documents);
        assert_int_equal(notes_say_that(&notes, "takes flash attention 2"), !files[i].documents);
        assert_int_equal(evaluate(&p, &with), 0);
        p.model.window = 0;
        p.attention = i == 0 ? ATTENTION_BY_FLASH_2 : p.attention;
        assert_int_equal(evaluate(&p, &without), 0);
        snprintf(said, sizeof said, "of memory and time, of up to %.2g GB more", 1e-9 * (double)(with.m.needed - without.m.needed));
        assert_int_equal(notes_say_that(&notes, said), i == 0);
        evaluation_free(&with);
        evaluation_free(&without);
        plan_free(&p);
    }
}

/* recipes/llm/train_ft.py names the model's `out` while backward runs: 2 bytes of each of 512 x 128,256 logits (0.13 GB), of which two ranks of tensor parallelism
 * have half each.  A pipeline's schedule returns those of all micro-batches, whatever the loss: its own (stage_ports.h), no name of the loop's.
 * FusedLinearCrossEntropy has none, and the other two save them themselves. */
static void logits_that_automodel_names_stay(void **state)
{
#define LOSS "loss_fn:\n  _target_: nemo_automodel.components.loss."
    static const struct { const char *mesh, *loss; int ranks; enum logits_kept kept; } files[] = {
        { "  dp_size: 2\n", "", 1, LOGITS_AS_MADE }, { "  cp_size: 1\n", LOSS "masked_ce.MaskedCrossEntropy\n  fp32_upcast: false\n", 1, LOGITS_AS_MADE },
        { "  tp_size: 2\n", "", 2, LOGITS_AS_MADE }, { "  pp_size: 2\n", "", 0, LOGITS_AS_MADE }, { "  pp_size: 2\n", LOSS "chunked_ce.ChunkedCrossEntropy\n", 0, LOGITS_AS_MADE },
        { "  pp_size: 2\n", LOSS "te_parallel_ce.TEParallelCrossEntropy\n", 0, LOGITS_AS_MADE }, { "  pp_size: 2\n  tp_size: 2\n", "", 0, LOGITS_AS_MADE },
        { "  dp_size: 2\n", LOSS "chunked_ce.ChunkedCrossEntropy\n", 1, LOGITS_DROPPED },
        { "  dp_size: 2\n", LOSS "linear_ce.FusedLinearCrossEntropy\n", 1, LOGITS_DROPPED },
        { "  dp_size: 2\n", LOSS "te_parallel_ce.TEParallelCrossEntropy\n", 1, LOGITS_DROPPED },
    };
#undef LOSS

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024];
        snprintf(text, sizeof text, AUTOMODEL "distributed:\n  strategy: fsdp2\n%s%s" CHAT, files[i].mesh, files[i].loss);
        if (strstr(text, "pp_size"))
            strstr(text, "size: 1")[6] = '2';           /* a micro-batch a stage */
        if (read_text_of("llama-3-8b", "a.yaml", text, strstr(text, "pp_size: 2\n  tp") ? "4xh100" : "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        if (p.logits_kept != files[i].kept || loss_kept_bytes(&p) != (files[i].kept && files[i].ranks ? 2LL * 512 * 128256 / files[i].ranks : 0))
            fail_msg("%s%s: kept %d, %lld bytes", files[i].mesh, files[i].loss, (int)p.logits_kept, (long long)loss_kept_bytes(&p));
        plan_free(&p);
    }
}

static int64_t peak_of(const struct plan *p)
{
    struct schedules s = { 0 };
    struct ledger l;

    assert_int_equal(lower(p, 0, &s), 0);
    ledger_run(&s, &l);
    schedules_free(&s);
    return l.peak.bytes;
}

/* Mistral's block of 218,112,000 parameters waits for backward in 16 bits.  Of Qwen3-30B's 128 experts each of 8 ranks has 16 alone, 16 x 3 x 2048 x 768 in each of
 * 48 layers: FSDP would hold a second copy of them in 16 bits, and of several micro-steps gradients of 4 bytes for those of 2.  In stages of 24 layers half of
 * it, and of a schedule that runs twice its first run's gradients besides.  What is said to be freed is freed; 16 ranks share experts by two; weights in fp32 have a copy of 16 bits anyway. */
static void blocks_and_experts_that_no_gather_brings(void **state)
{
#define MOE "  ep_size: 8\n  moe:\n    wrap_outer_model: true\n"
    static const int64_t experts = INT64_C(16) * 3 * 2048 * 768;
    static const struct { const char *model, *gpus, *local, *all, *mesh; bool last, ignored; int64_t more; } files[] = {
        { "mistral-7b", "8xh100", "8", "64", "", true, false, INT64_C(2) * 218112000 },
        { "mistral-7b", "8xh100", "8", "64", "  reshard_after_forward: null\n", true, false, INT64_C(2) * 218112000 },
        { "mistral-7b", "8xh100", "8", "64", "  reshard_after_forward: true\n", false, false, 0 },
        { "mistral-7b", "8xh100", "8", "64", "  reshard_after_forward: false\n", false, false, 0 },
        { "mistral-7b", "8xh100", "8", "64", "  pp_size: 2\n", true, false, 0 },
        { "qwen3-30b-a3b", "8xh100", "8", "64", MOE, false, true, -48 * 2 * experts }, { "qwen3-30b-a3b", "8xh100", "8", "128", MOE, false, true, -48 * 4 * experts },
        { "qwen3-30b-a3b", "2x8xh100", "1", "16", MOE, false, false, 0 }, { "qwen3-30b-a3b", "2x8xh100", "16", "128", MOE "  pp_size: 2\n", false, true, -24 * 4 * experts },
        { "qwen3-30b-a3b", "2x8xh100", "16", "256", MOE "  pp_size: 2\n", false, true, -24 * 6 * experts },
    };
#undef MOE

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024];
        snprintf(text, sizeof text, "step_scheduler:\n  local_batch_size: %s\n  global_batch_size: %s\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM."
                 "from_pretrained\ndistributed:\n  strategy: fsdp2\n%s" CHAT, files[i].local, files[i].all, files[i].mesh);
        if (read_text_of(files[i].model, "a.yaml", text, files[i].gpus, &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        if (p.fsdp.keeps_last_unit != files[i].last || p.fsdp.ignores_experts != files[i].ignored)
            fail_msg("%s of %s: last %d, experts %d", files[i].mesh, files[i].model, p.fsdp.keeps_last_unit, p.fsdp.ignores_experts);
        int64_t with = peak_of(&p);
        p.fsdp.keeps_last_unit = p.fsdp.ignores_experts = false;
        if (with - peak_of(&p) != files[i].more)
            fail_msg("%s of %s: %lld bytes more, not %lld", files[i].mesh, files[i].model, (long long)(with - peak_of(&p)), (long long)files[i].more);
        plan_free(&p);
    }
}

/* Outputs of 32 blocks, 2 bytes of 20 x 512 x 4096, are told, and not in the plan: 2.7 GB, by which the plan fits 80 GB.  Of 16 samples there is room for both. */
static void what_is_told_and_decides_is_refused(void **state)
{
    static const char *const local[] = { "16", "20" }, *const all[] = { "128", "160" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024];
        snprintf(text, sizeof text, "step_scheduler:\n  local_batch_size: %s\n  global_batch_size: %s\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM."
                 "from_pretrained\n  output_hidden_states: true\n  use_liger_kernel: false\ndistributed:\n  strategy: fsdp2\n" CHAT, local[i], all[i]);
        int rc = read_text_of("mistral-7b", "a.yaml", text, "8xh100", &p, &notes, why);
        assert_int_equal(rc, -i);
        assert_true(i == 0 || strstr(why, "whether it fits is not known"));
        assert_true(i == 1 || notes_say_that(&notes, "output_hidden_states: every block's output stays until the loss: 2.1 GB more"));
        plan_free(&p);
    }
}

/* moe/experts.py: of a micro-step's 512 tokens of 2,048 numbers in 48 layers 7 others of 8 ranks are sent x in 16 bits and the sum in fp32 (all-reduce: twice),
 * whose gradients are those in fp32 and 16 bits: 22 bytes, with recompute 32.  The plan sends 8 copies over 8 ranks there and back, three times at most. */
static void an_exchange_that_is_not_planned_has_its_bytes(void **state)
{
    static const double one = 7.0 * 512 * 2048 * 48;
    static const struct { const char *word, *again; double sent, planned; } files[] = {
        { "torch", "", 22 * one, 8 * one }, { "torch", "  activation_checkpointing: true\n", 32 * one, 12 * one }, { "deepep", "", 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024], said[200] = "another exchange of tokens than torch's all-to-all";
        snprintf(text, sizeof text, AUTOMODEL "  backend: {dispatcher: %s}\ndistributed:\n  strategy: fsdp2\n  ep_size: 8\n%s" CHAT, files[i].word, files[i].again);
        strstr(text, "global_batch_size: ")[19] = '8';
        if (read_text_of("qwen3-30b-a3b", "a.yaml", text, "8xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        if (files[i].sent > 0)
            snprintf(said, sizeof said, "%.3g GB sent by a rank in a micro-step, where the plan's all-to-alls send %.3g GB", files[i].sent * 1e-9, files[i].planned * 1e-9);
        if (!notes_say_that(&notes, said))
            fail_msg("%s: not said: %s", text, said);
        plan_free(&p);
    }
}

/* Gemma 2's attention by single operations, of 42 blocks, 16 heads and 512 x 512 pairs: the capped scores' tanh and the probabilities in 16 bits, and the softmax in
 * fp32; of recomputed blocks one's. */
static void scores_of_a_bound_have_a_size(void **state)
{
    static const struct { const char *again; int blocks; } files[] = { { "", 42 }, { "  activation_checkpointing: true\n", 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024], said[200];
        snprintf(text, sizeof text, AUTOMODEL "distributed:\n  strategy: fsdp2\n%s" CHAT, files[i].again);
        if (read_text_of("gemma-2-9b", "a.yaml", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        snprintf(said, sizeof said, "an upper bound of memory and time, of %.3g GB a micro-batch more", files[i].blocks * 16.0 * 512 * 512 * 8 * 1e-9);
        if (!notes_say_that(&notes, said))
            fail_msg("%s: not said: %s", text, said);
        plan_free(&p);
    }
}

/* model_init.py: bitsandbytes' layers take the place of all linear layers, the head's too, of the streaming loader, which force_hf passes by; an embedding's weight is none. */
static void a_head_is_packed_with_the_rest(void **state)
{
    static const struct { const char *model, *more; bool head; } files[] = {
        { "llama-3-8b", "", true }, { "qwen3-8b", "", true }, { "llama-3-8b", "  force_hf: true\n", false }, { "qwen3-0.6b", "", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct notes notes = { 0 };
        struct plan p;
        char text[800], why[1024];
        snprintf(text, sizeof text, AUTOMODEL "%sdistributed: {strategy: fsdp2}\npeft: {dim: 8}\nquantization: {load_in_4bit: true}\n" CHAT, files[i].more);
        if (read_text_of(files[i].model, "a.yaml", text, "2xh100", &p, &notes, why) < 0)
            fail_msg("%s: %s", text, why);
        assert_int_equal(p.train.base_head, files[i].head);
        plan_free(&p);
    }
}

/* Puts a word at a path, unless something stands there: whether it did. */
static bool put_word(json_t *doc, const char *path, const char *word)
{
    char part[100];
    const char *dot;

    while ((dot = strchr(path, '.'))) {
        snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        if (!json_object_get(doc, part))
            json_object_set_new(doc, part, json_object());
        doc = json_object_get(doc, part);
        path = dot + 1;
    }
    if (!json_is_object(doc) || json_object_get(doc, path))
        return false;
    return json_object_set_new(doc, path, json_string(word)) == 0;
}

/* Of each key that the form says it reads, nonsense is refused or named in one of these files at least: a key in a list of those that are read is not yet one that is. */
static void a_key_that_is_read_is_looked_at_somewhere(void **state)
{
    static const struct { const char *text; const char *model, *cluster; } files[] = {
        { AUTOMODEL "distributed: {strategy: fsdp2}\n" CHAT, "llama-3-8b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2, pp_size: 2}\n" CHAT, "llama-3-8b", "4xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2, tp_size: 2}\n" CHAT, "llama-3-8b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2, ep_size: 2}\n" CHAT, "qwen3-30b-a3b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2}\npeft: {_target_: nemo_automodel.components._peft.lora.PeftConfig}\nquantization: {load_in_4bit: true}\n" CHAT,
          "llama-3-8b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2}\noptimizer: {_target_: flashoptim.FlashAdamW}\n" CHAT, "llama-3-8b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2}\noptimizer: {_target_: transformer_engine.pytorch.optimizers.FusedAdam, master_weights: true}\n" CHAT, "llama-3-8b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2}\noptimizer: {_target_: transformer_engine.pytorch.optimizers.FusedAdam, master_weights: true, store_param_remainders: true}\n" CHAT,
          "llama-3-8b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2, pp_size: 2}\nloss_fn: {_target_: nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy}\n" CHAT, "llama-3-8b", "4xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2}\npeft: {dim: 8, dropout: 0.1}\noptimizer: {_target_: transformer_engine.pytorch.optimizers.FusedAdam}\n" CHAT, "llama-3-8b",
          "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2}\npeft: {dim: 8, dropout: 0.1}\n" CHAT, "llama-3-8b", "2xh100" },
        { AUTOMODEL "distributed: {strategy: fsdp2}\nfp8: {enabled: true}\n" CHAT, "llama-3-8b", "2xh100" },
        { AUTOMODEL "  config: {_target_: transformers.AutoConfig.from_pretrained, pretrained_model_name_or_path: a/b}\n", "llama-3-8b", "2xh100" },
    };
    /* of them any text is a name of its own, or what is adapted */
    static const char *const any[] = { "model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path", "model.config", "distributed._target_",
                                       "recipe._target_", "peft.exclude_modules" };

    int silent = 0;

    (void)state;
    for (int k = 0; k < form_automodel.nrows; k++) {
        const struct form_row *row = &form_automodel.rows[k];
        bool seen = row->says != ROW_READ, put = false;
        for (size_t i = 0; i < sizeof any / sizeof *any; i++)
            seen = seen || !strcmp(row->path, any[i]);
        for (size_t i = 0; !seen && i < sizeof files / sizeof *files; i++) {
            struct row of = { .cluster = (char *)(uintptr_t)files[i].cluster, .model = (char *)(uintptr_t)files[i].model, .seq = (char[]){ "512" } };
            struct notes notes = { 0 };
            struct form_file f;
            struct plan p;
            char why[1024] = "";
            assert_int_equal(form_parse(strdup(files[i].text), "a.yaml", &f), 0);
            if (put_word(f.doc, row->path, "zzz.zzz")) {
                seen = read_as(&form_automodel, &f, &of, &p, &notes, why) < 0 ? strstr(why, "zzz") || strstr(why, row->path) : notes_say_that(&notes, row->path);
                put = true;
                plan_free(&p);
            }
            form_close(&f);
        }
        if (!seen && put)
            silent += fail("%s: \"zzz.zzz\" is never told", row->path) != 0;
    }
    assert_int_equal(silent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(norms_that_are_planned_unfused_have_a_size), cmocka_unit_test(attention_that_is_not_planned_is_told_with_its_size),
        cmocka_unit_test(logits_that_automodel_names_stay),
                                        cmocka_unit_test(blocks_and_experts_that_no_gather_brings), cmocka_unit_test(what_is_told_and_decides_is_refused),
                                        cmocka_unit_test(an_exchange_that_is_not_planned_has_its_bytes), cmocka_unit_test(scores_of_a_bound_have_a_size),
                                        cmocka_unit_test(a_head_is_packed_with_the_rest), cmocka_unit_test(a_key_that_is_read_is_looked_at_somewhere) };

    return cmocka_run_group_tests_name("model/form automodel", tests, NULL, NULL);
}
