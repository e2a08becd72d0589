/* The data: sources, their order, and who computes which sample. */
#include "tests/exec/scratch.h"

#include "exec/data/tokens.h"

static struct tokens *opened(const char *path, int64_t vocab, int64_t seq, enum tokens_order order)
{
    struct tokens *t = tokens_open(&(struct tokens_args){ path, vocab, seq, 1, order });

    assert_non_null(t);
    return t;
}

static void refused(const char *path, int64_t vocab, int64_t seq, const char *words)
{
    capture();
    assert_null(tokens_open(&(struct tokens_args){ path, vocab, seq, 1, TOKENS_SHUFFLED }));
    heard(words);
}

/* ---- The chain ---- */

/* Counts who follows whom, over samples of the chain. */
enum { VOCAB = 40, SEQ = 1000, SAMPLES = 400 };
static int follows[VOCAB][VOCAB], seen[VOCAB];

static void count(struct tokens *t)
{
    static int32_t ids[SEQ], labels[SEQ];

    memset(follows, 0, sizeof follows);
    memset(seen, 0, sizeof seen);
    for (int s = 0; s < SAMPLES; s++) {
        assert_int_equal(tokens_sample(t, s, ids, labels), 0);
        for (int i = 0; i < SEQ; i++) {
            assert_in_range(ids[i], 0, VOCAB - 1);
            assert_true(i == SEQ - 1 || ids[i + 1] == labels[i]);
            follows[ids[i]][labels[i]]++;
            seen[ids[i]]++;
        }
    }
}

/* The mean of -log p(next | token) with p counted: biased by about (parameters)/(2n), here
 * 120/800000; its standard error is that of log p, 0.67/sqrt(400000). */
static void the_chains_entropy_is_what_is_counted(void **state)
{
    (void)state;
    struct tokens *t = opened(NULL, VOCAB, SEQ, TOKENS_SHUFFLED);
    double entropy = 0;

    count(t);
    for (int a = 0; a < VOCAB; a++)
        for (int b = 0; b < VOCAB; b++)
            if (follows[a][b])
                entropy -= follows[a][b] * log((double)follows[a][b] / seen[a]) / (SAMPLES * SEQ);
    assert_close(tokens_entropy(t), 1.75 * log(2), 1e-15);
    assert_close(entropy, tokens_entropy(t), 0.005);
    tokens_close(t);
}

static void has_four_successors_each(int vocab)
{
    struct tokens *t = opened(NULL, vocab, SEQ, TOKENS_SHUFFLED);

    count(t);
    for (int a = 0; a < vocab; a++) {
        int n = 0;
        for (int b = 0; b < vocab; b++)
            n += follows[a][b] > 0;
        assert_int_equal(n, 4);
    }
    tokens_close(t);
}

static void every_token_has_four_successors(void **state)
{
    (void)state;
    has_four_successors_each(4);
    has_four_successors_each(5);
    has_four_successors_each(VOCAB);
}

/* 10000 of each, of a chain that mixes within a few steps: well within a tenth. */
static void all_tokens_are_equally_frequent(void **state)
{
    (void)state;
    struct tokens *t = opened(NULL, VOCAB, SEQ, TOKENS_SHUFFLED);

    count(t);
    for (int a = 0; a < VOCAB; a++)
        assert_in_range(seen[a], 9000, 11000);
    tokens_close(t);
}

static void the_chain_is_small_whatever_the_vocabulary(void **state)
{
    (void)state;
    struct tokens *t = opened(NULL, 50257, SEQ, TOKENS_SHUFFLED);
    int32_t ids[SEQ], labels[SEQ], largest = 0;

    for (int s = 0; s < 20; s++) {
        assert_int_equal(tokens_sample(t, s, ids, labels), 0);
        for (int i = 0; i < SEQ; i++)
            largest = labels[i] > largest ? labels[i] : largest;
    }
    assert_int_equal(largest, 255);
    tokens_close(t);
    refused(NULL, 3, 8, "at least 4 tokens");
}

static void samples_depend_on_seed_and_index_only(void **state)
{
    (void)state;
    struct tokens *a = opened(NULL, 97, 32, TOKENS_SHUFFLED), *b = opened(NULL, 97, 32, TOKENS_SHUFFLED);
    struct tokens *c = tokens_open(&(struct tokens_args){ .vocab = 97, .seq = 32, .seed = 2 });
    int32_t x[32], y[32], labels[32];

    assert_non_null(c);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(tokens_sample(a, i, x, labels), 0);
        assert_int_equal(tokens_sample(b, 9 - i, y, labels), 0);
        assert_int_equal(tokens_sample(b, i, y, labels), 0);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(tokens_sample(c, i, y, labels), 0);
        assert_memory_not_equal(x, y, sizeof x);
        assert_int_equal(tokens_sample(a, i + 1, y, labels), 0);
        assert_memory_not_equal(x, y, sizeof x);
    }
    tokens_close(a);
    tokens_close(b);
    tokens_close(c);
}

/* ---- Files ---- */

static void bytes_are_tokens(void **state)
{
    (void)state;
    const char *path = scratch_put("text", "to be or not\xff", 13);
    struct tokens *t = opened(path, 256, 4, TOKENS_SEQUENTIAL);
    int32_t ids[4], labels[4];
    static const int32_t second[] = { 'e', ' ', 'o', 'r' }, after[] = { ' ', 'o', 'r', ' ' };

    assert_int_equal(tokens_windows(t), 3);
    assert_true(isnan(tokens_entropy(t)));
    assert_int_equal(tokens_sample(t, 1, ids, labels), 0);
    assert_memory_equal(ids, second, sizeof ids);
    assert_memory_equal(labels, after, sizeof labels);
    assert_int_equal(tokens_sample(t, 2, ids, labels), 0);
    assert_int_equal(labels[3], 255);
    assert_int_equal(tokens_sample(t, 3 + 1, ids, labels), 0);      /* the next epoch */
    assert_memory_equal(ids, second, sizeof ids);
    assert_non_null(strstr(tokens_about(t), "13 bytes as tokens, 3 samples an epoch"));
    tokens_close(t);
    refused(path, 255, 4, "vocabulary of at least 256, not 255");
    refused(path, 256, 13, "has 13 tokens: a sample needs 14");
    remove(path);
}

/* 40 windows of one token each, whose values are their places. */
static void each_epoch_has_every_window_once_in_its_own_order(void **state)
{
    (void)state;
    unsigned char bytes[41];
    const char *path;
    struct tokens *t;
    int32_t order[3][40], label;

    for (int i = 0; i < 41; i++)
        bytes[i] = (unsigned char)i;
    path = scratch_put("text", bytes, sizeof bytes);
    t = opened(path, 256, 1, TOKENS_SHUFFLED);
    for (int epoch = 0; epoch < 3; epoch++) {
        uint64_t reached = 0;
        for (int i = 0; i < 40; i++) {
            assert_int_equal(tokens_sample(t, epoch * 40 + i, &order[epoch][i], &label), 0);
            assert_int_equal(label, order[epoch][i] + 1);
            reached |= (uint64_t)1 << order[epoch][i];
        }
        assert_true(reached == ((uint64_t)1 << 40) - 1);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[1], order[2], sizeof order[0]);
    tokens_close(t);
    remove(path);
}

/* A file of llm.c with these numbers in its header; `bytes` of tokens follow. */
static const char *token_file(int32_t magic, int32_t version, int32_t count, const void *bytes, size_t n)
{
    static char all[2048];

    memset(all, 0, sizeof all);
    memcpy(all, (int32_t[]){ magic, version, count }, 12);
    memcpy(all + 1024, bytes, n);
    return scratch_put("t.bin", all, 1024 + n);
}

static void token_files_of_llm_c_are_read(void **state)
{
    (void)state;
    static const uint16_t narrow[] = { 5, 50256, 0, 65535, 7 };
    static const uint32_t wide[] = { 5, 128255, 0, 65536, 7 };
    int32_t ids[2], labels[2];
    const char *path = token_file(20240520, 1, 5, narrow, sizeof narrow);
    struct tokens *t = opened(path, 65536, 2, TOKENS_SEQUENTIAL);

    assert_int_equal(tokens_sample(t, 1, ids, labels), 0);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 65535);
    assert_int_equal(labels[1], 7);
    tokens_close(t);
    path = token_file(20240801, 7, 5, wide, sizeof wide);
    t = opened(path, 128256, 2, TOKENS_SEQUENTIAL);
    assert_int_equal(tokens_sample(t, 0, ids, labels), 0);
    assert_int_equal(ids[1], 128255);
    tokens_close(t);
    remove(path);
}

static void token_files_that_are_not_as_they_say_are_refused(void **state)
{
    (void)state;
    static const uint16_t narrow[] = { 5, 50256, 0, 65535, 7 };
    static const uint32_t wide[] = { 5, 0xffffffff, 0 };
    const char *path = scratch_path("t.bin");

    token_file(20240520, 2, 5, narrow, sizeof narrow);
    refused(path, 65536, 2, "version 2: must be 1");
    token_file(20240520, 1, 6, narrow, sizeof narrow);
    refused(path, 65536, 2, "6 tokens of 2 bytes, but it has 1034 bytes");
    token_file(20240520, 1, -1, narrow, sizeof narrow);
    refused(path, 65536, 2, "-1 tokens");
    scratch_put("t.bin", (int32_t[]){ 20240520, 1, -506 }, 12);     /* 1024 - 2*506 = 12 */
    refused(path, 65536, 2, "-506 tokens");
    token_file(20240520, 1, 5, narrow, sizeof narrow);
    refused(path, 50257, 2, "token 3 is 65535: the model's vocabulary has 50257");
    token_file(20240801, 7, 3, wide, sizeof wide);
    refused(path, INT32_MAX, 2, "token 1 is 4294967295");
    token_file(20240521, 1, 5, narrow, sizeof narrow);
    refused(path, 65536, 2, "not a token file of llm.c");
    scratch_put("t.bin", "", 0);
    refused(path, 65536, 2, "not a token file of llm.c");
    remove(path);
    refused(path, 65536, 2, "No such file");
    refused(scratch_folder, 65536, 2, "not a regular file");
}

static void a_token_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    static const uint16_t narrow[] = { 5, 6, 7, 8, 9 };
    size_t n;
    char *bytes = scratch_get(token_file(20240520, 1, 5, narrow, sizeof narrow), &n);

    for (size_t cut = 0; cut < n; cut++)
        refused(scratch_put("t.bin", bytes, cut), 65536, 2, "t.bin: ");
    free(bytes);
    remove(scratch_path("t.bin"));
}

static void a_file_that_changes_under_a_run_is_an_error(void **state)
{
    (void)state;
    static const uint16_t narrow[] = { 5, 6, 7, 8, 9 }, other[] = { 5, 6, 7, 8, 99 };
    const char *path = token_file(20240520, 1, 5, narrow, sizeof narrow);
    struct tokens *t = opened(path, 10, 2, TOKENS_SEQUENTIAL);
    int32_t ids[2], labels[2];

    token_file(20240520, 1, 5, other, sizeof other);
    capture();
    assert_int_equal(tokens_sample(t, 1, ids, labels), -1);
    heard("token 4 is 99");
    assert_int_equal(truncate(path, 1030), 0);
    capture();
    assert_int_equal(tokens_sample(t, 1, ids, labels), -1);
    heard("it was longer when it was opened");
    tokens_close(t);
    remove(path);
}

/* 20 steps of 12 windows of 24 tokens and the last label: tests/golden/parity. */
static void the_parity_tokens_are_20_steps_of_12_windows(void **state)
{
    (void)state;
    struct tokens *t = opened("tests/golden/parity/tokens.bin", 97, 24, TOKENS_SEQUENTIAL);
    int32_t ids[24], labels[24], last = 0;

    assert_int_equal(tokens_windows(t), 20 * 12);
    for (int i = 0; i < 240; i++) {
        assert_int_equal(tokens_sample(t, i, ids, labels), 0);
        assert_true(i == 0 || ids[0] == last);          /* windows share their ends */
        last = labels[23];
        for (int j = 0; j < 24; j++) {                  /* make_parity.py's rule */
            int step = (labels[j] - 5 * ids[j]) % 97;
            step += step < 0 ? 97 : 0;
            assert_true(step == 3 || step == 11 || step == 40);
        }
    }
    tokens_close(t);
}

/* ---- Who computes what ---- */

/* Micro-batch 2 on 3 ranks: samples 0 1 | 2 3 | 4 5, then the next micro-step. */
static void samples_go_to_ranks_in_the_stated_order(void **state)
{
    (void)state;
    struct tokens_place p = tokens_place(9, 2, 3);

    assert_int_equal(p.micro_step, 1);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.slot, 1);
}

static void every_sample_has_one_place_at_any_world_size(void **state)
{
    (void)state;
    static const struct { int64_t world, micro_batch; } cut[] = {
        { 1, 24 }, { 1, 1 }, { 2, 3 }, { 3, 2 }, { 4, 6 }, { 6, 4 }, { 8, 1 }, { 24, 1 },
    };

    for (size_t c = 0; c < sizeof cut / sizeof *cut; c++) {
        int64_t steps = 24 / (cut[c].world * cut[c].micro_batch);
        int taken[24] = { 0 };
        for (int64_t i = 0; i < 24; i++) {
            struct tokens_place p = tokens_place(i, cut[c].micro_batch, cut[c].world);
            assert_in_range(p.micro_step, 0, steps - 1);
            assert_in_range(p.rank, 0, cut[c].world - 1);
            assert_in_range(p.slot, 0, cut[c].micro_batch - 1);
            assert_int_equal(tokens_index(&p, cut[c].micro_batch, cut[c].world), i);
            taken[(p.micro_step * cut[c].world + p.rank) * cut[c].micro_batch + p.slot]++;
        }
        for (int i = 0; i < 24; i++)
            assert_int_equal(taken[i], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chains_entropy_is_what_is_counted),
        cmocka_unit_test(every_token_has_four_successors),
        cmocka_unit_test(all_tokens_are_equally_frequent),
        cmocka_unit_test(the_chain_is_small_whatever_the_vocabulary),
        cmocka_unit_test(samples_depend_on_seed_and_index_only),
        cmocka_unit_test(bytes_are_tokens),
        cmocka_unit_test(each_epoch_has_every_window_once_in_its_own_order),
        cmocka_unit_test(token_files_of_llm_c_are_read),
        cmocka_unit_test(token_files_that_are_not_as_they_say_are_refused),
        cmocka_unit_test(a_token_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_file_that_changes_under_a_run_is_an_error),
        cmocka_unit_test(the_parity_tokens_are_20_steps_of_12_windows),
        cmocka_unit_test(samples_go_to_ranks_in_the_stated_order),
        cmocka_unit_test(every_sample_has_one_place_at_any_world_size),
    };
    return cmocka_run_group_tests_name("exec/tokens", tests, scratch_make, scratch_remove);
}
