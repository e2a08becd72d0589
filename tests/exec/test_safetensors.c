/* safetensors: hand-made files, broken ones, and what is written reads back. */
#include "tests/exec/scratch.h"

#include <jansson.h>
#include <sys/resource.h>
#include <signal.h>

#include "exec/data/safetensors.h"
#include "exec/kernels/half.h"

static char file[4096];

/* A file of this header and n bytes of data, 0, 1, 2 ...; returns its size. */
static size_t make(const char *header, size_t n)
{
    uint64_t length = strlen(header);

    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < n; i++)
        file[8 + length + i] = (char)i;
    return 8 + length + n;
}

static void refused(const char *header, size_t n, const char *words)
{
    const char *path = scratch_put("a.safetensors", file, make(header, n));

    capture();
    assert_null(safetensors_open(path));
    heard(words);
    assert_non_null(strstr(said, path));
    remove(path);
}

static struct safetensors *opened(const char *header, size_t n)
{
    const char *path = scratch_put("a.safetensors", file, make(header, n));
    struct safetensors *s = safetensors_open(path);

    assert_non_null(s);
    remove(path);                       /* it stays open */
    return s;
}

#define TWO "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}," \
            "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[24,30]}}"

static void tensors_are_found_by_name_with_their_shapes(void **state)
{
    (void)state;
    struct safetensors *s = opened(TWO, 30);
    const struct st_tensor *a = safetensors_find(s, "a"), *b = safetensors_find(s, "b");

    assert_int_equal(s->ntensors, 2);
    assert_non_null(a);
    assert_int_equal(a->ndim, 2);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->shape[1], 3);
    assert_non_null(b);
    assert_string_equal(b->dtype, "BF16");
    assert_int_equal(b->numel, 3);
    assert_null(safetensors_find(s, "c"));
    safetensors_close(s);
}

/* Bytes 0, 1, 2 ...: element i of fp32 has the bits of (4i, 4i+1, 4i+2, 4i+3), least first. */
static void any_part_of_a_tensor_is_read(void **state)
{
    (void)state;
    struct safetensors *s = opened(TWO, 30);
    float got[3];

    for (int from = 0; from <= 6; from++)
        for (int n = 0; n <= 3 && from + n <= 6; n++) {
            assert_int_equal(safetensors_read(s, safetensors_find(s, "a"), from, n, got), 0);
            for (int i = 0; i < n; i++) {
                uint32_t bits, first = (uint32_t)(4 * (from + i));
                memcpy(&bits, &got[i], 4);
                assert_int_equal(bits, first | (first + 1) << 8 | (first + 2) << 16 | (first + 3) << 24);
            }
        }
    assert_int_equal(safetensors_read(s, safetensors_find(s, "b"), 1, 1, got), 0);
    assert_true(got[0] == half_from_bf16(27 << 8 | 26));
    safetensors_close(s);
}

static void half_precision_is_read(void **state)
{
    (void)state;
    static const uint16_t fp16[] = { 0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0x3555, 0x7c00, 0x8000 };
    static const float want[] = { 1, -2, 65504, 0x1p-24f, 0x1p-14f, 0x1.554p-2f, INFINITY, -0.0f };
    size_t n = make("{\"h\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16]}}", 16);
    const char *path;
    struct safetensors *s;
    float got[8];

    memcpy(file + n - 16, fp16, 16);
    path = scratch_put("h.safetensors", file, n);
    s = safetensors_open(path);
    assert_non_null(s);
    assert_int_equal(safetensors_read(s, &s->tensors[0], 0, 8, got), 0);
    assert_memory_equal(got, want, sizeof want);
    safetensors_close(s);
    remove(path);
}

static void scalars_empty_tensors_and_metadata_are_allowed(void **state)
{
    (void)state;
    struct safetensors *s = opened(
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
        "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[4,7]}}   ", 7);

    assert_int_equal(s->ntensors, 3);
    assert_int_equal(safetensors_find(s, "one")->numel, 1);
    assert_int_equal(safetensors_find(s, "empty")->numel, 0);
    assert_false(safetensors_readable(safetensors_find(s, "mask")));
    safetensors_close(s);
}

#define ONE(dtype, shape, offsets) \
    "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void a_tensor_that_breaks_a_rule_is_refused_by_name(void **state)
{
    (void)state;
    refused("{\"x\":[]}", 0, "\"x\" is not a JSON object");
    refused("{\"x\":{}}", 0, "\"x\" has no dtype");
    refused(ONE("\"F33\"", "[1]", "[0,4]"), 4, "\"x\" has a dtype");
    refused(ONE("32", "[1]", "[0,4]"), 4, "\"x\" has no dtype");
    refused(ONE("\"F32\"", "1", "[0,4]"), 4, "\"x\" has no shape");
    refused(ONE("\"F32\"", "[-1]", "[0,4]"), 4, "list of sizes");
    refused(ONE("\"F32\"", "[1.0]", "[0,4]"), 4, "list of sizes");
    refused(ONE("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "list of sizes");
    refused(ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 8 dimensions");
    refused(ONE("\"F32\"", "[1]", "[0]"), 4, "data_offsets");
    refused(ONE("\"F32\"", "[1]", "[4,0]"), 4, "data_offsets");
    refused(ONE("\"F32\"", "[1]", "[-4,0]"), 4, "data_offsets");
    refused(ONE("\"F32\"", "[1]", "[0,8]"), 4, "behind the end");
    refused(ONE("\"F32\"", "[2]", "[0,4]"), 4, "another number of bytes");
    refused(ONE("\"F32\"", "[1]", "[0,5]"), 5, "another number of bytes");
    refused(ONE("\"F4\"", "[3]", "[0,2]"), 2, "another number of bytes");
    refused("{\"a\\nb\":{}}", 0, "control character");
}

#define PAIR(first, second) \
    "{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" first "}," \
    "\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" second "}}"

static void tensors_must_tile_the_data(void **state)
{
    (void)state;
    refused(PAIR("[0,2]", "[0,2]"), 2, "overlaps another one");
    refused(PAIR("[0,2]", "[1,3]"), 3, "\"y\" overlaps another one");
    refused(PAIR("[0,2]", "[3,5]"), 5, "\"y\" does not begin");
    refused(PAIR("[1,3]", "[3,5]"), 5, "\"x\" does not begin");
    refused(PAIR("[0,2]", "[2,4]"), 5, "1 bytes behind the last tensor");
    refused("{}", 1, "1 bytes behind the last tensor");
}

static void a_header_that_is_none_is_refused(void **state)
{
    (void)state;
    refused("", 0, "is not JSON");
    refused("[]", 0, "not a JSON object");
    refused("{} x", 0, "is not JSON");
    refused("{\"x\":{},\"x\":{}}", 0, "is not JSON");
    refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999]}}", 0, "is not JSON");
}

static void a_header_longer_than_the_file_is_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { 3, 100000000, 100000001, UINT64_MAX };
    char bytes[10] = "        {}";

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const char *path;
        memcpy(bytes, &lengths[i], 8);
        path = scratch_put("a.safetensors", bytes, sizeof bytes);
        capture();
        assert_null(safetensors_open(path));
        heard(i < 2 ? "cut short" : "not a safetensors file");
        remove(path);
    }
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    size_t n = make(TWO, 30);

    for (size_t cut = 0; cut < n; cut++) {
        const char *path = scratch_put("cut.safetensors", file, cut);
        capture();
        assert_null(safetensors_open(path));
        heard(path);
        remove(path);
    }
}

/* No crash, and a file that is accepted can be read to its end. */
static void a_header_changed_anywhere_is_refused_or_readable(void **state)
{
    (void)state;
    static const char with[] = { 0, '0', '9', '"', '{', '}', '[', ',', '-', '\x7f', '\xff' };
    size_t n = make(TWO, 30);
    float got[8];

    for (size_t at = 0; at < n - 30; at++)
        for (size_t w = 0; w < sizeof with; w++) {
            char was = file[at];
            struct safetensors *s;
            file[at] = with[w];
            capture();
            s = safetensors_open(scratch_put("odd.safetensors", file, n));
            fail_capture(NULL, 0);
            file[at] = was;
            for (int i = 0; s && i < s->ntensors; i++)
                if (safetensors_readable(&s->tensors[i]))
                    assert_int_equal(safetensors_read(s, &s->tensors[i], 0, s->tensors[i].numel, got), 0);
            assert_true(s || said[0]);
            safetensors_close(s);
        }
    remove(scratch_path("odd.safetensors"));
}

static void a_file_that_shrinks_after_it_was_opened_is_an_error(void **state)
{
    (void)state;
    const char *path = scratch_put("a.safetensors", file, make(TWO, 30));
    struct safetensors *s = safetensors_open(path);
    float got[6];

    assert_non_null(s);
    assert_int_equal(truncate(path, s->tensors[0].begin + 8), 0);
    capture();
    assert_int_equal(safetensors_read(s, &s->tensors[0], 0, 6, got), -1);
    heard("16 more were expected");
    assert_int_equal(safetensors_read(s, &s->tensors[0], 0, 2, got), 0);
    safetensors_close(s);
    remove(path);
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    capture();
    assert_null(safetensors_open(scratch_path("missing")));
    heard("No such file");
    capture();
    assert_null(safetensors_open(scratch_folder));
    heard("not a regular file");
}

/* ---- Writing ---- */

static const struct st_entry entries[] = {
    { "first",  DT_FP32, 2, { 3, 5 } },
    { "none",   DT_FP32, 1, { 0 } },
    { "second", DT_BF16, 1, { 7 } },
    { "third",  DT_FP32, 0, { 0 } },
};
enum { NENTRIES = sizeof entries / sizeof *entries };
static const int64_t numels[NENTRIES] = { 15, 0, 7, 1 };

static float value(int tensor, int64_t i)
{
    return (float)(tensor * 100 + (int)i) + 0.5f;       /* 8 bits: exact in bf16 below 256 */
}

static void write_all(struct st_writer *w, int64_t piece)
{
    float v[16];

    for (int t = 0; t < NENTRIES; t++)
        for (int64_t at = 0; at < numels[t]; at += piece) {
            int64_t n = numels[t] - at < piece ? numels[t] - at : piece;
            for (int64_t i = 0; i < n; i++)
                v[i] = value(t, at + i);
            assert_int_equal(safetensors_write(w, t, at, n, v), 0);
        }
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    const char *path = scratch_path("w.safetensors");

    for (int64_t piece = 1; piece <= 15; piece++) {
        struct st_writer *w = safetensors_create(path, entries, NENTRIES);
        struct safetensors *s;
        assert_non_null(w);
        write_all(w, piece);
        assert_int_equal(safetensors_finish(w), 0);
        s = safetensors_open(path);
        assert_non_null(s);
        assert_int_equal(s->ntensors, NENTRIES);
        for (int t = 0; t < NENTRIES; t++) {
            float got[16];
            const struct st_tensor *st = safetensors_find(s, entries[t].name);
            assert_non_null(st);
            assert_int_equal(st->numel, numels[t]);
            assert_int_equal(safetensors_read(s, st, 0, st->numel, got), 0);
            for (int64_t i = 0; i < st->numel; i++)
                assert_true(got[i] == (t == 2 ? half_from_bf16(half_to_bf16(value(t, i))) : value(t, i)));
        }
        safetensors_close(s);
    }
    remove(path);
}

/* Readers map the data: it begins at a multiple of 8. */
static void data_is_aligned_and_metadata_names_the_format(void **state)
{
    (void)state;
    const char *path = scratch_path("w.safetensors");
    struct st_writer *w = safetensors_create(path, entries, NENTRIES);
    uint64_t length;
    size_t n;
    char *bytes;
    json_t *header, *format;

    assert_non_null(w);
    write_all(w, 15);
    assert_int_equal(safetensors_finish(w), 0);
    bytes = scratch_get(path, &n);
    memcpy(&length, bytes, 8);
    assert_int_equal(length % 8, 0);
    assert_int_equal(n, 8 + length + 15 * 4 + 7 * 2 + 4);
    header = json_loadb(bytes + 8, length, 0, NULL);
    format = json_object_get(json_object_get(header, "__metadata__"), "format");
    assert_string_equal(json_string_value(format), "pt");
    json_decref(header);
    free(bytes);
    remove(path);
}

static void a_file_discarded_leaves_what_was_there(void **state)
{
    (void)state;
    const char *path = scratch_put("w.safetensors", "old", 3);
    struct st_writer *w = safetensors_create(path, entries, NENTRIES);
    size_t n;
    char *bytes;

    assert_non_null(w);
    write_all(w, 4);
    safetensors_discard(w);
    assert_int_equal(access(scratch_path("w.safetensors.dpx-tmp"), F_OK), -1);
    bytes = scratch_get(path, &n);
    assert_int_equal(n, 3);
    free(bytes);
    remove(path);
    safetensors_discard(NULL);
}

static void a_folder_that_is_missing_is_named(void **state)
{
    (void)state;
    capture();
    assert_null(safetensors_create(scratch_path("no/w.safetensors"), entries, NENTRIES));
    heard("no/w.safetensors: No such file");
}

/* /dev/full says what a full disk says, on the first write that leaves the buffer. */
static void a_full_disk_is_an_error_that_names_the_path(void **state)
{
    (void)state;
    static const struct st_entry large = { "large", DT_FP32, 1, { 1 << 20 } };
    static float v[4096];
    struct st_writer *w = safetensors_create("/dev/full", &large, 1);
    int rc = 0;

    assert_non_null(w);
    capture();
    for (int64_t at = 0; rc == 0 && at < 1 << 20; at += 4096)
        rc = safetensors_write(w, 0, at, 4096, v);
    assert_int_equal(rc, -1);
    heard("/dev/full: No space left");
    safetensors_discard(w);
}

/* What fits the buffer meets the full disk only at the end. */
static void a_small_file_on_a_full_disk_too(void **state)
{
    (void)state;
    struct st_writer *w = safetensors_create("/dev/full", entries, NENTRIES);

    assert_non_null(w);
    write_all(w, 15);
    capture();
    assert_int_equal(safetensors_finish(w), -1);
    heard("/dev/full: No space left");
}

/* A limit on the size of files stands for the disk. */
static void a_disk_that_fills_up_leaves_the_old_file(void **state)
{
    (void)state;
    static const struct st_entry large = { "large", DT_FP32, 1, { 1 << 16 } };
    static float v[1 << 16];
    const char *path = scratch_put("w.safetensors", "old", 3);
    struct rlimit was, little = { .rlim_cur = 100000 };
    struct st_writer *w;
    size_t n;
    char *bytes;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    little.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    w = safetensors_create(path, &large, 1);
    assert_non_null(w);
    capture();
    assert_int_equal(safetensors_write(w, 0, 0, 1 << 16, v), -1);
    heard(path);
    safetensors_discard(w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    bytes = scratch_get(path, &n);
    assert_int_equal(n, 3);
    free(bytes);
    remove(path);
}

/* ---- bf16 ---- */

static void bf16_rounds_to_nearest_and_to_even(void **state)
{
    (void)state;
    assert_int_equal(half_to_bf16(1.0f), 0x3f80);
    assert_int_equal(half_to_bf16(1.0f + 0x1p-8f), 0x3f80);             /* halfway: to even */
    assert_int_equal(half_to_bf16(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
    assert_int_equal(half_to_bf16(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);   /* halfway: to even */
    assert_int_equal(half_to_bf16(-0x1.fffffep127f), 0xff80);           /* beyond the largest */
    assert_int_equal(half_to_bf16(INFINITY), 0x7f80);
    assert_true(isnan(half_from_bf16(half_to_bf16(NAN))));
}

static void every_bf16_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++)
        if (!isnan(half_from_bf16((uint16_t)h)))
            assert_int_equal(half_to_bf16(half_from_bf16((uint16_t)h)), h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_by_name_with_their_shapes),
        cmocka_unit_test(any_part_of_a_tensor_is_read),
        cmocka_unit_test(half_precision_is_read),
        cmocka_unit_test(scalars_empty_tensors_and_metadata_are_allowed),
        cmocka_unit_test(a_tensor_that_breaks_a_rule_is_refused_by_name),
        cmocka_unit_test(tensors_must_tile_the_data),
        cmocka_unit_test(a_header_that_is_none_is_refused),
        cmocka_unit_test(a_header_longer_than_the_file_is_refused),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_header_changed_anywhere_is_refused_or_readable),
        cmocka_unit_test(a_file_that_shrinks_after_it_was_opened_is_an_error),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(data_is_aligned_and_metadata_names_the_format),
        cmocka_unit_test(a_file_discarded_leaves_what_was_there),
        cmocka_unit_test(a_folder_that_is_missing_is_named),
        cmocka_unit_test(a_full_disk_is_an_error_that_names_the_path),
        cmocka_unit_test(a_small_file_on_a_full_disk_too),
        cmocka_unit_test(a_disk_that_fills_up_leaves_the_old_file),
        cmocka_unit_test(bf16_rounds_to_nearest_and_to_even),
        cmocka_unit_test(every_bf16_survives_the_round_trip),
    };
    return cmocka_run_group_tests_name("exec/safetensors", tests, scratch_make, scratch_remove);
}
