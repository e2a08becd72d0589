/* Layers that round what they multiply (torchao's fake quantisation): which they are and what each keeps, by arithmetic, and the memory of
 * steps that PyTorch's own trackers recorded with torchao (tests/golden/tune/record_qat.py). */
#include "tests/model/recorded_steps.h"

#include "base/fail.h"
#include "model/plan/attention.h"
#include "model/plan/qat.h"
#include "model/program/program.h"

#define GOLDEN "tests/golden/tune/qat.jsonl"
#define GOLDEN_MSLK "tests/golden/tune/qat_mslk.jsonl"

static int read_plan(const char *words, struct plan *p, char *why, size_t size)
{
    char text[1024];

    snprintf(text, sizeof text, "{ \"dpx_plan\": 1, \"dialect\": \"torch\", \"precision\": \"bf16\", \"cluster\": \"8xh100\", \"seq\": 512, %s }", words);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    fail_capture(why, size);
    int rc = plan_from_json(j, "p", p);
    fail_capture(NULL, 0);
    json_decref(j);
    return rc;
}

static struct plan plan_of(const char *words)
{
    char why[512] = "";
    struct plan p;

    if (read_plan(words, &p, why, sizeof why) < 0)
        fail_msg("%s", why);
    return p;
}

#define SHARDS  "\"strategy\": \"fsdp\", \"fsdp\": { \"model_dtype\": \"bf16\" }"
#define OF_8B   "\"model\": \"llama-3.1-8b\", " SHARDS
#define ADAPTS  ", \"train\": \"lora\", \"lora\": { \"narrow\": true, \"target_modules\": [\"q_proj\", \"v_proj\"] }"
#define ROUNDS  ", \"qat\": \"8da4w\""
#define MSLK    ", \"qat\": \"8da4w-mslk\""

static int64_t rounded(const char *words)
{
    struct plan p = plan_of(words);
    int64_t sum = 0;

    for (int t = 0; t < p.model.ntensors; t++)
        sum += qat_converts(&p, &p.model.tensors[t]) ? p.model.tensors[t].numel : 0;
    plan_free(&p);
    return sum;
}

/* A block of 8B: q and o of 4096 x 4096, k and v of 1024 x 4096, three of 14336 x 4096; of 1B, whose head is tied: 2048 x 2048 twice, 512 x
 * 2048 twice, three of 8192 x 2048.  Rows of 14336 are whole groups of 2048, those of 4096 of 4096. */
static void linear_layers_of_whole_groups_round(void **state)
{
    const int64_t block = 2 * 4096LL * 4096 + 2 * 1024LL * 4096 + 3 * 14336LL * 4096;

    (void)state;
    assert_int_equal(rounded(OF_8B), 0);
    assert_int_equal(rounded(OF_8B ROUNDS), 32 * block + 128256LL * 4096);
    assert_int_equal(rounded(OF_8B ROUNDS ", \"qat_group\": 4096"), 32 * (block - 14336LL * 4096) + 128256LL * 4096);
    assert_int_equal(rounded(OF_8B ROUNDS ADAPTS), 32 * (4096LL * 4096 + 1024 * 4096));
    assert_int_equal(rounded("\"model\": \"llama-3.2-1b\", " SHARDS ROUNDS), 16 * (2 * 2048LL * 2048 + 2 * 512 * 2048 + 3 * 8192 * 2048));
}

static int64_t kept(const char *words)
{
    struct plan p = plan_of(words);
    struct program g = { 0 };

    assert_int_equal(program_build(&p, &g), 0);
    int64_t bytes = g.piece[PIECE_BLOCK].saved;
    program_free(&g);
    plan_free(&p);
    return bytes;
}

/* Of n tokens a layer keeps, of its own rounded input, 4 bytes before the clamp and 2 behind it for each number, where nn.Linear has kept its
 * input: that of q, k and v is kept still by none of them (the norm keeps it), gate's and up's alike, o's and down's are kept by no other: the
 * attention's output stays for attention itself.  Of each weight 4 + 2, and 1 / scale of each group and token. */
static void a_layer_keeps_six_bytes_of_each_number(void **state)
{
    const int64_t n = 512, h = 4096, f = 14336, weights = 2 * h * h + 2 * 1024 * h + 3 * f * h, inputs = 6 * h + f;
    int64_t more = kept(OF_8B ROUNDS) - kept(OF_8B);
    int64_t want = 6 * weights + 6 * n * inputs + 4 * (weights / 256) + 7 * 4 * n;

    (void)state;
    want -= 2 * n * (h + h + f);        /* the norms' outputs, which products kept, and down's input */
    assert_close((double)more, (double)want, 1e-6);
}

/* Of MSLK's weights 18 for each number, and 16 for each group: extremes, their distance, the scale. */
static void weights_as_mslk_has_them_keep_eighteen(void **state)
{
    const int64_t n = 512, h = 4096, f = 14336, weights = 2 * h * h + 2 * 1024 * h + 3 * f * h, inputs = 6 * h + f;
    int64_t more = kept(OF_8B MSLK) - kept(OF_8B), want = 18 * weights + 6 * n * inputs + 16 * (weights / 256) + 7 * 4 * n - 2 * n * (h + h + f);

    (void)state;
    assert_close((double)more, (double)want, 1e-6);
    assert_int_equal(rounded(OF_8B MSLK ", \"loss\": \"fused-linear\""), rounded(OF_8B ROUNDS) - 128256LL * 4096);      /* which reads the head's weight itself */
}

static void what_it_is_not_modelled_beside_is_refused_by_name(void **state)
{
    static const struct { const char *words, *because; } row[] = {
        { OF_8B ", \"qat_group\": 64", "qat_group" },
        { OF_8B ROUNDS ", \"kernels\": \"torch-compile\"", "kernels torch-sdpa" },
        { OF_8B ROUNDS ", \"recompute\": \"selective\"", "recompute none or full" },
        { OF_8B ROUNDS ", \"loss\": \"fused-linear\"", "calls the head" },
        { OF_8B ROUNDS ", \"parallel\": { \"tensor\": 2 }", "data parallelism" },
        { OF_8B ROUNDS ", \"qat_group\": 24", "rows of whole groups of 24" },
        { OF_8B ROUNDS ADAPTS ", \"qat_group\": 24", "in_dim must be divisible" },
        { OF_8B MSLK ADAPTS, "train all" },
        { OF_8B MSLK ", \"loss\": \"linear-chunks\"", "calls the head once" },
        { OF_8B MSLK ", \"qat_group\": 24", "view of groups" },
        { "\"model\": \"llama-3.2-1b\", " SHARDS MSLK, "a head of its own" },
        { "\"model\": \"llama-3.1-8b\", \"strategy\": \"ddp\"" ROUNDS, "without autocast" },
        { "\"model\": \"mixtral-8x7b\", " SHARDS ROUNDS, "without experts" },
        { "\"model\": \"gpt2\", " SHARDS ROUNDS, "no nn.Linear with a weight of its own" },      /* Conv1D, and a tied head */
        { "\"model\": \"llama-3.1-8b\", \"strategy\": \"fsdp\", \"fsdp\": { \"model_dtype\": \"bf16\", \"cpu_offload\": true }" ROUNDS, "nothing on the host" },
    };
    char why[512];
    struct plan p;

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int rc = read_plan(row[i].words, &p, why, sizeof why);
        if (rc == 0 || !strstr(why, row[i].because))
            fail_msg("%s: %s", row[i].words, rc == 0 ? "is taken" : why);
    }
}

static int wrong;

static void check_peak(const struct step *s)
{
    int64_t got = s->ledger.phase[SCHED_STEADY].bytes, want = json_integer_value(json_object_get(json_object_get(s->line, "steady"), "peak_total"));
    double error = (double)(got - want) / (double)want;

    if (fabs(error) <= 1e-4 || (got > want && got - want <= attention_scratch(&s->plan)))
        return;
    const struct peak *p = &s->ledger.phase[SCHED_STEADY];
    print_error("%s: %lld at %s, PyTorch counts %lld (%+.3f %%)\n", s->name, (long long)got, s->schedules.ops[p->op].what, (long long)want, 100 * error);
    for (int c = 0; c < NCAT; c++)
        if (p->by[c])
            print_error(" %s %lld", category_name((enum category)c), (long long)p->by[c]);
    print_error("\n%s\n", json_dumps(json_object_get(json_object_get(s->line, "steady"), "peak_by_category"), 0));
    wrong++;
}

static void peaks_agree(void **state)
{
    (void)state;
    wrong = 0;
    assert_true(each_line(GOLDEN, check_peak) >= 19);
    assert_int_equal(each_line(GOLDEN_MSLK, check_peak), 7);
    assert_int_equal(wrong, 0);
}

static void check_entries(const struct step *s)
{
    char why[256];

    if (!schedules_check(&s->schedules, why, sizeof why))
        fail_msg("%s: %s", s->name, why);
}

static void entries_use_what_is_there(void **state)
{
    (void)state;
    each_line(GOLDEN, check_entries);
    each_line(GOLDEN_MSLK, check_entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers_of_whole_groups_round),
        cmocka_unit_test(a_layer_keeps_six_bytes_of_each_number),
        cmocka_unit_test(weights_as_mslk_has_them_keep_eighteen),
        cmocka_unit_test(what_it_is_not_modelled_beside_is_refused_by_name),
        cmocka_unit_test(peaks_agree),
        cmocka_unit_test(entries_use_what_is_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
