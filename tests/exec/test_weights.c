/* The first values of a model: by a seed, or of a file that must fit the model. */
#include "tests/exec/scratch.h"

#include "exec/data/safetensors.h"
#include "exec/data/weights.h"

#define GPT2  "tests/golden/parity/gpt2"
#define LLAMA "tests/golden/parity/llama"

static struct model gpt2, llama;

static int load_models(void **state)
{
    return scratch_make(state) < 0 || model_load(GPT2, &gpt2) < 0 || model_load(LLAMA, &llama) < 0 ? -1 : 0;
}

static int free_models(void **state)
{
    model_free(&gpt2);
    model_free(&llama);
    return scratch_remove(state);
}

static int named(const struct model *m, const char *name)
{
    for (int i = 0; i < m->ntensors; i++)
        if (!strcmp(m->tensors[i].name, name))
            return i;
    fail_msg("%s has no tensor %s", m->name, name);
    return -1;
}

static float *filled(const struct weights *w, const struct model *m, int tensor)
{
    float *v = malloc((size_t)m->tensors[tensor].numel * sizeof *v);

    assert_non_null(v);
    assert_int_equal(weights_fill(w, tensor, 0, m->tensors[tensor].numel, v), 0);
    return v;
}

/* ---- From a seed ---- */

/* Over n values the standard deviation is known to 1/sqrt(2n) of itself: six of those. */
static void has_std(const struct weights *w, const struct model *m, const char *name, double std)
{
    int t = named(m, name);
    int64_t n = m->tensors[t].numel;
    float *v = filled(w, m, t);
    double sum = 0, squares = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)v[i];
        squares += (double)v[i] * (double)v[i];
    }
    assert_true(fabs(sum / (double)n) < 6 * std / sqrt((double)n));
    assert_close(sqrt(squares / (double)n), std, 6 / sqrt(2 * (double)n));
    free(v);
}

static void gpt2_is_initialised_as_hugging_face_does(void **state)
{
    (void)state;
    struct weights *w = weights_from_seed(&gpt2, 1);

    assert_non_null(w);
    has_std(w, &gpt2, "transformer.wte.weight", 0.02);
    has_std(w, &gpt2, "transformer.wpe.weight", 0.02);
    has_std(w, &gpt2, "transformer.h.1.attn.c_attn.weight", 0.02);
    has_std(w, &gpt2, "transformer.h.1.mlp.c_fc.weight", 0.02);
    has_std(w, &gpt2, "transformer.h.1.attn.c_proj.weight", 0.02 / sqrt(6));      /* 3 layers */
    has_std(w, &gpt2, "transformer.h.1.mlp.c_proj.weight", 0.02 / sqrt(6));
    weights_close(w);
}

static void llama_scales_no_projection(void **state)
{
    (void)state;
    struct weights *w = weights_from_seed(&llama, 1);

    assert_non_null(w);
    has_std(w, &llama, "model.embed_tokens.weight", 0.02);
    has_std(w, &llama, "model.layers.2.self_attn.o_proj.weight", 0.02);
    has_std(w, &llama, "model.layers.2.mlp.down_proj.weight", 0.02);
    has_std(w, &llama, "lm_head.weight", 0.02);
    weights_close(w);
}

static void biases_are_zero_and_norm_weights_one(void **state)
{
    (void)state;
    struct weights *w = weights_from_seed(&gpt2, 1);
    int vectors = 0;

    assert_non_null(w);
    for (int t = 0; t < gpt2.ntensors; t++) {
        float *v;
        if (gpt2.tensors[t].ndim != 1)
            continue;
        v = filled(w, &gpt2, t);
        for (int64_t i = 0; i < gpt2.tensors[t].numel; i++)
            assert_true(v[i] == (gpt2.tensors[t].is_bias ? 0.0f : 1.0f));
        free(v);
        vectors++;
    }
    assert_int_equal(vectors, 3 * 8 + 2);       /* two norms and four biases a block, ln_f */
    weights_close(w);
}

static void any_shards_make_the_same_tensor(void **state)
{
    (void)state;
    struct weights *w = weights_from_seed(&gpt2, 7);
    int t = named(&gpt2, "transformer.h.0.mlp.c_fc.weight");
    int64_t n = gpt2.tensors[t].numel;
    float *whole = filled(w, &gpt2, t), *cut = malloc((size_t)n * sizeof *cut);

    assert_non_null(cut);
    for (int64_t ranks = 2; ranks <= 8; ranks++) {
        for (int64_t r = ranks - 1; r >= 0; r--)
            assert_int_equal(weights_fill(w, t, r * n / ranks, (r + 1) * n / ranks - r * n / ranks,
                                          cut + r * n / ranks), 0);
        assert_memory_equal(whole, cut, (size_t)n * sizeof *cut);
    }
    free(whole);
    free(cut);
    weights_close(w);
}

static void tensors_and_seeds_have_values_of_their_own(void **state)
{
    (void)state;
    struct weights *w = weights_from_seed(&gpt2, 7), *other = weights_from_seed(&gpt2, 8);
    float a[8], b[8], c[8];

    assert_int_equal(weights_fill(w, named(&gpt2, "transformer.wte.weight"), 0, 8, a), 0);
    assert_int_equal(weights_fill(w, named(&gpt2, "transformer.wpe.weight"), 0, 8, b), 0);
    assert_int_equal(weights_fill(other, named(&gpt2, "transformer.wte.weight"), 0, 8, c), 0);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    weights_close(w);
    weights_close(other);
}

/* ---- From a file ---- */

static void holds_what_the_file_holds(const struct model *m, const char *path)
{
    struct weights *w = weights_from_file(m, path, 1);
    struct safetensors *s = safetensors_open(path);

    assert_non_null(w);
    assert_non_null(s);
    for (int t = 0; t < m->ntensors; t++) {
        const struct st_tensor *st = safetensors_find(s, m->tensors[t].name);
        float *got = filled(w, m, t), *want = malloc((size_t)st->numel * sizeof *want), middle[5];
        assert_non_null(want);
        assert_int_equal(safetensors_read(s, st, 0, st->numel, want), 0);
        assert_memory_equal(got, want, (size_t)st->numel * sizeof *want);
        assert_int_equal(weights_fill(w, t, 11, 5, middle), 0);
        assert_memory_equal(middle, want + 11, sizeof middle);
        free(got);
        free(want);
    }
    weights_close(w);
    safetensors_close(s);
}

static void checkpoints_of_transformers_are_read(void **state)
{
    (void)state;
    holds_what_the_file_holds(&gpt2, GPT2 "/init.safetensors");
    holds_what_the_file_holds(&llama, LLAMA "/init.safetensors");
}

/* A file of GPT-2's tensors as the entries say, all of them zero. */
static const char *write_zeros(const struct st_entry *entries, int n)
{
    static const float zeros[8192];
    const char *path = scratch_path("w.safetensors");
    struct st_writer *w = safetensors_create(path, entries, n);

    assert_non_null(w);
    for (int i = 0; i < n; i++) {
        int64_t numel = 1;
        for (int d = 0; d < entries[i].ndim; d++)
            numel *= entries[i].shape[d];
        assert_true(numel <= 8192);
        assert_int_equal(safetensors_write(w, i, 0, numel, zeros), 0);
    }
    assert_int_equal(safetensors_finish(w), 0);
    return path;
}

static struct st_entry entries[64];

/* GPT-2's own, to be changed; returns their number. */
static int gpt2_entries(void)
{
    assert_true(gpt2.ntensors <= 60);
    for (int i = 0; i < gpt2.ntensors; i++) {
        const struct tensor *t = &gpt2.tensors[i];
        entries[i] = (struct st_entry){ t->name, DT_FP32, t->ndim, { t->shape[0], t->shape[1] } };
    }
    return gpt2.ntensors;
}

static void accepted(int n)
{
    const char *path = write_zeros(entries, n);
    struct weights *w = weights_from_file(&gpt2, path, 1);

    assert_non_null(w);
    weights_close(w);
    remove(path);
}

static void refused(int n, const char *words)
{
    const char *path = write_zeros(entries, n);

    capture();
    assert_null(weights_from_file(&gpt2, path, 1));
    heard(words);
    assert_non_null(strstr(said, path));
    remove(path);
}

static void the_prefix_may_be_missing(void **state)
{
    (void)state;
    int n = gpt2_entries();

    for (int i = 0; i < n; i++)
        entries[i].name += strlen("transformer.");
    accepted(n);
}

static void a_tied_head_and_masks_are_passed_over(void **state)
{
    (void)state;
    int n = gpt2_entries();

    entries[n++] = (struct st_entry){ "lm_head.weight", DT_FP32, 2, { 97, 32 } };
    entries[n++] = (struct st_entry){ "h.0.attn.bias", DT_FP32, 4, { 1, 1, 32, 32 } };
    entries[n++] = (struct st_entry){ "transformer.h.0.attn.masked_bias", DT_FP32, 0, { 0 } };
    accepted(n);
}

static void bf16_is_widened(void **state)
{
    (void)state;
    int n = gpt2_entries();

    for (int i = 0; i < n; i++)
        entries[i].dtype = DT_BF16;
    accepted(n);
}

static void a_missing_tensor_is_named_with_its_shape(void **state)
{
    (void)state;
    int n = gpt2_entries();

    entries[4] = entries[n - 1];
    refused(n - 1, "no tensor \"transformer.h.0.attn.c_attn.weight\" of shape [32, 96]");
}

static void a_shape_that_differs_is_told_with_both(void **state)
{
    (void)state;
    int n = gpt2_entries();

    entries[4].shape[0] = 96;
    entries[4].shape[1] = 32;
    refused(n, "\"transformer.h.0.attn.c_attn.weight\" has shape [96, 32], the model's has [32, 96]");
    gpt2_entries();
    entries[2].ndim = 2;
    entries[2].shape[1] = 1;
    refused(n, "has shape [32, 1], the model's has [32]");
}

static void a_tensor_of_another_model_is_refused(void **state)
{
    (void)state;
    int n = gpt2_entries();

    entries[n++] = (struct st_entry){ "transformer.h.3.ln_1.weight", DT_FP32, 1, { 32 } };
    refused(n, "holds tensor \"transformer.h.3.ln_1.weight\", which model gpt2 does not have");
}

static void an_untied_head_must_be_there(void **state)
{
    (void)state;
    struct model untied = llama;
    const char *path = LLAMA "/init.safetensors";

    capture();
    assert_null(weights_from_file(&gpt2, path, 1));
    heard("no tensor \"transformer.wte.weight\"");
    untied.ntensors--;                          /* its last tensor is the head */
    capture();
    assert_null(weights_from_file(&untied, path, 1));
    heard("holds tensor \"lm_head.weight\"");
}

static void integers_are_no_weights(void **state)
{
    (void)state;
    const char *path = write_zeros(entries, gpt2_entries());
    size_t n;
    char *bytes = scratch_get(path, &n);

    memcpy(strstr(bytes + 8, "F32"), "I32", 3);
    scratch_put("w.safetensors", bytes, n);
    capture();
    assert_null(weights_from_file(&gpt2, path, 1));
    heard("\"transformer.wte.weight\" has dtype I32: must be F32, BF16 or F16");
    free(bytes);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_initialised_as_hugging_face_does),
        cmocka_unit_test(llama_scales_no_projection),
        cmocka_unit_test(biases_are_zero_and_norm_weights_one),
        cmocka_unit_test(any_shards_make_the_same_tensor),
        cmocka_unit_test(tensors_and_seeds_have_values_of_their_own),
        cmocka_unit_test(checkpoints_of_transformers_are_read),
        cmocka_unit_test(the_prefix_may_be_missing),
        cmocka_unit_test(a_tied_head_and_masks_are_passed_over),
        cmocka_unit_test(bf16_is_widened),
        cmocka_unit_test(a_missing_tensor_is_named_with_its_shape),
        cmocka_unit_test(a_shape_that_differs_is_told_with_both),
        cmocka_unit_test(a_tensor_of_another_model_is_refused),
        cmocka_unit_test(an_untied_head_must_be_there),
        cmocka_unit_test(integers_are_no_weights),
    };
    return cmocka_run_group_tests_name("exec/weights", tests, load_models, free_models);
}
