/* Files of more than 2^31 elements and 2^32 bytes: nothing but holes, and a few bytes at their ends. */
#include "tests/exec/scratch.h"

#include <fcntl.h>

#include "exec/data/safetensors.h"
#include "exec/data/tokens.h"

static void put_at(const char *path, int64_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), (ssize_t)n);
    assert_int_equal(close(fd), 0);
}

/* "a" has 2^31 + 10 elements of 2 bytes, "b" begins at byte 2^32 + 20 of the data. */
static void tensors_are_read_behind_2_31_elements(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2147483658],\"data_offsets\":[0,4294967316]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4294967316,4294967324]}}";
    static const uint16_t one_minus_two[] = { 0x3f80, 0xc000 };     /* bf16 */
    static const float b[] = { 0.5f, -8 };
    uint64_t length = sizeof header - 1;
    int64_t a_numel = ((int64_t)1 << 31) + 10, data = 8 + (int64_t)length, b_at = data + 2 * a_numel;
    const char *path = scratch_put("large.safetensors", &length, 8);
    float got[4];

    put_at(path, 8, header, (size_t)length);
    put_at(path, b_at - 4, one_minus_two, 4);       /* the last two of a */
    put_at(path, b_at, b, sizeof b);
    struct safetensors *s = safetensors_open(path);
    remove(path);                                   /* it stays open */
    assert_non_null(s);
    const struct st_tensor *a = safetensors_find(s, "a");
    assert_int_equal(a->numel, a_numel);
    assert_int_equal(safetensors_read(s, a, a_numel - 4, 4, got), 0);
    assert_true(got[0] == 0 && got[1] == 0 && got[2] == 1 && got[3] == -2);
    assert_int_equal(safetensors_read(s, safetensors_find(s, "b"), 0, 2, got), 0);
    assert_true(got[0] == 0.5f && got[1] == -8);
    safetensors_close(s);
}

/* A file of bytes: 2^31 + 41 tokens are (2^31 + 40) / 8 samples of 8. */
static void tokens_are_read_behind_2_31(void **state)
{
    (void)state;
    static const unsigned char last[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    int64_t n = ((int64_t)1 << 31) + 41, windows = (n - 1) / 8;
    const char *path = scratch_put("large.txt", "", 0);
    int32_t ids[8], labels[8];

    put_at(path, n - 9, last, 9);
    struct tokens *t = tokens_open(&(struct tokens_args){ path, 256, 8, 1, TOKENS_SEQUENTIAL });
    remove(path);
    assert_non_null(t);
    assert_int_equal(tokens_windows(t), windows);
    for (int epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(tokens_sample(t, epoch * windows + windows - 1, ids, labels), 0);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(ids[i], last[i]);
            assert_int_equal(labels[i], last[i + 1]);
        }
    }
    tokens_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_read_behind_2_31_elements),
        cmocka_unit_test(tokens_are_read_behind_2_31),
    };
    return cmocka_run_group_tests_name("exec/large files", tests, scratch_make, scratch_remove);
}
