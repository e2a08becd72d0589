/* Files of a rank: what was written comes back whatever its place, length and memory, by both engines; nothing is left
 * behind, crashed runs included; and what cannot be is said. */
#define _GNU_SOURCE
#include "tests/exec/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "exec/device/store.h"

/* ---- a disk that does what is asked of it here: threads' calls come by ---- */

static struct disk { int fails, most, interrupts, calls; bool ends; useconds_t slow; } disk;    /* fails: errno; most: bytes */
static pthread_mutex_t of_disk = PTHREAD_MUTEX_INITIALIZER;

/* errno of this call, or 0 with the bytes that it may move. */
static int disk_says(size_t *n)
{
    int e = 0;

    pthread_mutex_lock(&of_disk);
    if (disk.slow)
        usleep(disk.slow);
    disk.calls++;
    if (disk.interrupts > 0 && disk.interrupts--)
        e = EINTR;
    else if (disk.fails && disk.calls > 2)
        e = disk.fails;
    else if (disk.most && *n > (size_t)disk.most)
        *n = (size_t)disk.most;
    else if (disk.ends)
        *n = 0;
    pthread_mutex_unlock(&of_disk);
    return e;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    errno = disk_says(&n);
    return errno ? -1 : syscall(SYS_pwrite64, fd, p, n, at);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    errno = disk_says(&n);
    return errno ? -1 : syscall(SYS_pread64, fd, p, n, at);
}

static struct store *open_in(const char *folder, enum block_io_kind io, const struct store_file *file, int n)
{
    return store_open(&(struct store_args){ .folder = folder, .rank = 3, .io = io, .file = file, .n = n });
}

static struct store *open_one(int64_t bytes)
{
    struct store_file f = { "a-0", bytes };

    return open_in(scratch_folder, BLOCK_IO_BEST, &f, 1);
}

/* Folders of ranks below the scratch folder; the last one's path into `path`. */
static int folders(char *path, size_t size)
{
    DIR *d = opendir(scratch_folder);
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)); )
        if (e->d_name[0] != '.') {
            snprintf(path, size, "%s/%s", scratch_folder, e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static unsigned char byte(int64_t i) { return (unsigned char)(i * 7 + i / 251 + i / 65536); }

/* Ranges that begin and end anywhere, from memory that lies anywhere: the whole file is always what a plain array is
 * that the same was written into. */
static void what_was_written_is_read(void **state)
{
    (void)state;
    static const struct { int64_t at, n, memory; } part[] = {
        { 0, 5000000, 0 }, { 17, 1000, 3 }, { 4096, 4096, 0 }, { 4000, 200, 1 }, { 4095, 2, 5 }, { 1 << 20, 1 << 20, 0 },
        { (1 << 20) - 5, 3000000, 9 }, { 8192, 12288, 4096 }, { 4999999, 1, 0 }, { 4990000, 10000, 64 }, { 2500000, 0, 0 },
    };
    static const struct store_args how[] = {
        { .io = BLOCK_IO_BEST }, { .io = BLOCK_IO_THREADS }, { .io = BLOCK_IO_BEST, .each = true, .depth = 1 },
        { .io = BLOCK_IO_BEST, .block = 65536, .depth = 64 }, { .io = BLOCK_IO_THREADS, .block = 4096, .depth = 3 },
        { .io = BLOCK_IO_BEST, .block = 3 << 20, .each = true },
    };
    enum { BYTES = 5000000 };
    char *memory = aligned_alloc(4096, (BYTES / 4096 + 4) * 4096), *file = calloc(1, BYTES), *back = aligned_alloc(4096, 5001216 / 4096 * 4096 + 4096);

    for (size_t k = 0; k < sizeof how / sizeof *how; k++) {
        struct store_file two[] = { { "before", 100 }, { "it", BYTES } };
        struct store_args a = how[k];
        a.folder = scratch_folder, a.rank = 3, a.file = two, a.n = 2;
        struct store *s = store_open(&a);
        int64_t asked = 0;
        memset(file, 0, BYTES);
        assert_non_null(s);
        assert_int_equal(store_begin(s, 1), 4096);
        assert_int_equal(store_begin(s, 2), 4096 + 5001216);    /* 1221 blocks of 4096 */
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
            char *from = memory + part[i].memory;
            for (int64_t b = 0; b < part[i].n; b++)
                from[b] = (char)byte(b + 1000 * (int64_t)i);
            memcpy(file + part[i].at, from, (size_t)part[i].n);
            assert_int_equal(store_write(s, 4096 + part[i].at, from, part[i].n), 0);
            asked += part[i].n;
            memset(from, 0, (size_t)part[i].n);
            assert_int_equal(store_read(s, 4096 + part[i].at, from, part[i].n), 0);
            assert_memory_equal(from, file + part[i].at, (size_t)part[i].n);
            assert_int_equal(store_read(s, 4096, back, BYTES), 0);
            assert_memory_equal(back, file, BYTES);
        }
        assert_int_equal(store_bytes_written(s), asked);
        assert_int_equal(store_bytes_read(s), asked + 11 * (int64_t)BYTES);
        store_close(s);
    }
    free(memory);
    free(file);
    free(back);
}

/* On paper: 3 whole blocks of 4096; 100 bytes at 5000 lie in one, which is read first. */
static void blocks_are_counted(void **state)
{
    (void)state;
    struct store *s = open_one(3 * 4096);
    static char memory[3 * 4096];

    assert_non_null(s);
    assert_int_equal(store_write(s, 0, memory, sizeof memory), 0);
    assert_int_equal(store_blocks_written(s), 3 * 4096);
    assert_int_equal(store_write(s, 5000, memory, 100), 0);
    assert_int_equal(store_blocks_written(s), 4 * 4096);
    assert_int_equal(store_read(s, 8000, memory, 1000), 0);
    assert_int_equal(store_blocks_read(s), 2 * 4096);
    assert_int_equal(store_bytes_read(s), 1000);
    assert_int_equal(store_bytes_written(s), 3 * 4096 + 100);
    store_close(s);
}

static int64_t of_process(const char *what)
{
    FILE *f = fopen("/proc/self/io", "r");
    char line[128], format[32];
    long long n = -1;

    snprintf(format, sizeof format, "%s: %%lld", what);
    while (f && n < 0 && fgets(line, sizeof line, f))
        sscanf(line, format, &n);
    if (f)
        fclose(f);
    return n;
}

/* The kernel's own count of what this process asked of disks, where files are written around its cache.  Blocks of a
 * new file bring some of its directory's with them: it is written twice. */
static void the_kernel_counts_the_same(void **state)
{
    (void)state;
    enum { BYTES = 6 << 20 };
    struct store *s = open_one(BYTES);
    char *memory = aligned_alloc(4096, (BYTES / 4096 + 1) * 4096);

    assert_non_null(s);
    memset(memory, 1, BYTES);
    assert_int_equal(store_write(s, 0, memory, BYTES), 0);
    int64_t read = of_process("read_bytes"), written = of_process("write_bytes");
    if (!store_direct(s) || read < 0 || written == 0) {
        print_message("skipped: files are not written around the cache here, or the kernel does not count\n");
    } else {
        assert_int_equal(store_write(s, 0, memory, BYTES), 0);
        assert_int_equal(store_read(s, 4096, memory, BYTES - 4096), 0);
        assert_int_equal(of_process("read_bytes") - read, BYTES - 4096);
        assert_in_range(of_process("write_bytes") - written, BYTES, BYTES + 65536);
    }
    free(memory);
    store_close(s);
}

/* Two directions of 8 blocks each, none larger than the largest file. */
static void buffers_are_as_large_as_files_need(void **state)
{
    (void)state;
    const struct store_file small[] = { { "a", 100 }, { "b", 5000 } }, large[] = { { "a", 3 << 20 } };
    struct store_args a = { .file = small, .n = 2 };

    assert_int_equal(store_buffers(&a), 2 * 8 * 8192);
    a = (struct store_args){ .file = large, .n = 1 };
    assert_int_equal(store_buffers(&a), 2 * 8 * (1 << 20));
    a.block = 65536;                    /* 48 blocks */
    a.depth = 1000;
    assert_int_equal(store_buffers(&a), 2 * 48 * 65536);
    a.depth = 3;
    assert_int_equal(store_buffers(&a), 2 * 3 * 65536);
    a.n = 0;
    assert_int_equal(store_buffers(&a), 0);
}

/* scratch_remove() fails if a file is there. */
static void a_folder_with_a_file_each_is_there_while_it_is_open(void **state)
{
    (void)state;
    const struct store_file two[] = { { "master-0", 1 }, { "master-1", 4097 } };
    struct store *s = open_in(scratch_folder, BLOCK_IO_BEST, two, 2);
    char path[512], file[600];
    struct stat st;

    assert_non_null(s);
    assert_int_equal(folders(path, sizeof path), 1);
    assert_non_null(strstr(path, "/dpx-rank3-"));
    snprintf(file, sizeof file, "%s/master-1", path);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_size, 8192);
    store_close(s);
    assert_int_equal(folders(path, sizeof path), 0);
}

/* What a process left that was killed goes when the next one opens, or at a sweep; files of a living process stay. */
static void files_of_a_crashed_run_are_removed_and_no_others(void **state)
{
    (void)state;
    char path[512];

    for (int sweep = 0; sweep < 2; sweep++) {
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (child == 0) {
            struct store *s = open_one(100000);
            assert_int_equal(write(ready[1], s ? "y" : "n", 1), 1);
            for (;;)
                pause();
        }
        char answer = 0;
        assert_int_equal(read(ready[0], &answer, 1), 1);
        assert_int_equal(answer, 'y');
        assert_int_equal(store_sweep(scratch_folder), 1);       /* it lives */
        assert_int_equal(folders(path, sizeof path), 1);
        struct store *other = open_one(10);
        assert_int_equal(folders(path, sizeof path), 2);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (sweep)
            assert_int_equal(store_sweep(scratch_folder), 1);   /* `other` */
        else
            store_close(open_one(10));
        assert_int_equal(folders(path, sizeof path), 1);        /* `other` alone */
        store_close(other);
        assert_int_equal(folders(path, sizeof path), 0);
        close(ready[0]);
        close(ready[1]);
    }
}

/* Somebody's own folders, whose names only look alike, and one of the same form without the mark. */
static void what_others_keep_there_stays(void **state)
{
    static const char *const names[] = { "dpx-rankings", "dpx-rank0-notes", "dpx-rank-abcdef", "dpx-rank12-abcdefg", "dpx-rank0-a1B2c3" };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[600], file[700];
        snprintf(path, sizeof path, "%s/%s", scratch_folder, names[i]);
        snprintf(file, sizeof file, "%s/thesis.tex", path);
        assert_int_equal(mkdir(path, 0700), 0);
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fclose(f);
        assert_int_equal(store_sweep(scratch_folder), 0);
        store_close(open_one(10));
        assert_int_equal(access(file, F_OK), 0);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(path), 0);
    }
}

/* ---- what goes wrong ---- */

static void a_folder_that_somebody_has_locked_is_one_line(void **state)
{
    (void)state;
    int fd = open(scratch_folder, O_RDONLY | O_DIRECTORY);

    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    capture();
    assert_null(open_one(10));
    heard("another program has had a lock on this folder");
    assert_int_equal(store_sweep(scratch_folder), 0);
    close(fd);
}

static void a_disk_that_is_too_small_is_found_out_at_once(void **state)
{
    (void)state;
    capture();
    assert_null(open_one((int64_t)1 << 60));
    heard("no room for 1152921504606846976 bytes");
}

static void so_is_a_limit_of_file_sizes(void **state)
{
    (void)state;
    struct rlimit was, r = { 8192, RLIM_INFINITY };

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    r.rlim_max = was.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
    capture();
    struct store *s = open_one(8193);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_null(s);
    heard("/a-0: no room for 12288 bytes: File too large");
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    capture();
    assert_null(open_in("/nowhere/at/all", BLOCK_IO_BEST, &(struct store_file){ "a", 1 }, 1));
    heard("/nowhere/at/all: no files can be made in it: No such file or directory");
    capture();
    assert_null(open_in("/proc", BLOCK_IO_BEST, &(struct store_file){ "a", 1 }, 1));
    heard("/proc: no files can be made in it: ");
}

/* 8 MiB and a bit, written and read by threads on such a disk. */
enum { LARGE = (8 << 20) + 100 };

static struct store *on_disk(struct disk d, char **memory)
{
    struct store_file f = { "a-0", LARGE };
    struct store *s = open_in(scratch_folder, BLOCK_IO_THREADS, &f, 1);

    assert_non_null(s);
    *memory = aligned_alloc(4096, LARGE / 4096 * 4096 + 4096);
    for (int64_t i = 0; i < LARGE; i++)
        (*memory)[i] = (char)byte(i);
    disk = d;
    return s;
}

static void off_disk(struct store *s, char *memory)
{
    memset(&disk, 0, sizeof disk);
    free(memory);
    store_close(s);
}

/* A call that moves some blocks only goes on with the rest, an interrupted one again. */
static void short_and_interrupted_calls_lose_nothing(void **state)
{
    (void)state;
    char *memory;
    struct store *s = on_disk((struct disk){ .most = 40960, .interrupts = 7 }, &memory);

    assert_int_equal(store_write(s, 0, memory, LARGE), 0);
    memset(memory, 0, LARGE);
    disk.interrupts = 7;
    assert_int_equal(store_read(s, 0, memory, LARGE), 0);
    for (int64_t i = 0; i < LARGE; i++)
        if (memory[i] != (char)byte(i))
            fail_msg("byte %lld is another", (long long)i);
    assert_true(disk.calls > 2 * (LARGE / 40960));
    off_disk(s, memory);
}

/* In the middle of a range, while other blocks are under way: one line, and the next call is no worse for it. */
static void an_error_is_one_line(void **state)
{
    (void)state;
    static const struct { int fails; const char *words; } how[] = { { ENOSPC, "No space left on device" },
                                                                    { EIO, "Input/output error" } };
    char *memory, line[160];

    for (int i = 0; i < 2; i++) {
        struct store *s = on_disk((struct disk){ .fails = how[i].fails }, &memory);
        capture();
        assert_int_equal(store_write(s, 0, memory, LARGE), -1);
        snprintf(line, sizeof line, "/a-0: %s", how[i].words);
        heard(line);
        assert_non_null(strstr(said, "writing 8388708 bytes of "));
        disk = (struct disk){ .fails = how[i].fails };
        capture();
        assert_int_equal(store_read(s, 0, memory, LARGE), -1);
        heard(line);
        disk = (struct disk){ 0 };
        assert_int_equal(store_write(s, 0, memory, LARGE), 0);
        off_disk(s, memory);
    }
}

/* Nothing comes, or goes. */
static void what_stays_short_is_an_error(void **state)
{
    (void)state;
    char *memory;
    struct store *s = on_disk((struct disk){ .ends = true }, &memory);

    capture();
    assert_int_equal(store_read(s, 0, memory, LARGE), -1);
    heard("/a-0: it ends before that");
    capture();
    assert_int_equal(store_write(s, 0, memory, LARGE), -1);
    heard("/a-0: nothing was written");
    off_disk(s, memory);
}

static void count_one(void *n) { ++*(int *)n; }

/* 8 blocks of 1 MiB and the rest, at 5 ms each: progress is reported nine times. */
static void a_slow_disk_says_that_it_goes_on(void **state)
{
    (void)state;
    int n = 0;
    char *memory;
    struct store *s = on_disk((struct disk){ .slow = 5000 }, &memory);

    store_on_progress(s, count_one, &n);
    assert_int_equal(store_write(s, 0, memory, LARGE), 0);
    assert_int_equal(n, 9);
    off_disk(s, memory);
}

/* By another process, before a read or a write: never zeros in place of numbers. */
static void a_file_that_was_truncated_is_an_error(void **state)
{
    (void)state;
    struct store *s = open_one(20000);
    static char memory[20000];
    char path[512], file[600];

    assert_non_null(s);
    assert_int_equal(store_write(s, 0, memory, 20000), 0);
    assert_int_equal(folders(path, sizeof path), 1);
    snprintf(file, sizeof file, "%s/a-0", path);
    assert_int_equal(truncate(file, 4096), 0);
    capture();
    assert_int_equal(store_read(s, 0, memory, 20000), -1);
    heard("/a-0: has 4096 bytes, and was made with 20480: something else changed it");
    capture();
    assert_int_equal(store_write(s, 8192, memory, 4096), -1);
    heard("something else changed it");
    store_close(s);
}

static void reading_beyond_the_end_is_an_error(void **state)
{
    (void)state;
    struct store *s = open_one(4096);
    char to[64];

    assert_non_null(s);
    assert_int_equal(store_read(s, 4032, to, 64), 0);
    capture();
    assert_int_equal(store_read(s, 4033, to, 64), -1);
    heard("reading 64 bytes of ");
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(blocks_are_counted),
        cmocka_unit_test(the_kernel_counts_the_same),
        cmocka_unit_test(buffers_are_as_large_as_files_need),
        cmocka_unit_test(a_folder_with_a_file_each_is_there_while_it_is_open),
        cmocka_unit_test(files_of_a_crashed_run_are_removed_and_no_others),
        cmocka_unit_test(what_others_keep_there_stays),
        cmocka_unit_test(a_folder_that_somebody_has_locked_is_one_line),
        cmocka_unit_test(a_disk_that_is_too_small_is_found_out_at_once),
        cmocka_unit_test(so_is_a_limit_of_file_sizes),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
        cmocka_unit_test(short_and_interrupted_calls_lose_nothing),
        cmocka_unit_test(an_error_is_one_line),
        cmocka_unit_test(what_stays_short_is_an_error),
        cmocka_unit_test(a_slow_disk_says_that_it_goes_on),
        cmocka_unit_test(a_file_that_was_truncated_is_an_error),
        cmocka_unit_test(reading_beyond_the_end_is_an_error),
    };
    return cmocka_run_group_tests_name("exec/store", tests, scratch_make, scratch_remove);
}
