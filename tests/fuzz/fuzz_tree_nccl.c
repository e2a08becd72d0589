/* What nccl-tests prints, as text and as JSON, changed line by line or member by member: what the
 * readers take becomes a calibration with its fits. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tree.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "calib/import/import.h"
#include "calib/import/nccl_log.h"

const char *const fuzz_words[] = {
    "float", "half", "bfloat16", "uint8", "uint32", "sum", "none", "avg", "-1", "0", "N/A", "nan", "1e9", "0.00", "inf",
    "all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "NVIDIA", "H100", "A100-SXM4-80GB", "Group", "Rank", "node1",
    "#wrong", "time", "busbw", "#", "(us)", "1[1,0]<stdout>:", "# Rank 1 Group 0 Pid 1 on node0 device 1 [0000:05:00] NVIDIA H100",
    "\"type\": \"float\"", "\"type\": \"half\"", "\"size\": 4096", "\"nwrong\": 0", "\"time\": 12.5",
    "\"in_place\": {\"time\": 11}", "\"out_of_place\": null", "\"hostname\": \"node1\"", "\"group\": 1",
    "\"device_info\": \"NVIDIA H100 80GB HBM3\"", "\"redop\": \"sum\"", "\"root\": \"-1\"", "\"root\": \"0\"",
    "\"in_place_per_iter\": {\"times_us\": [10, 11, 12]}", "\"cpu_time\": 3", "\"alg_bw\": 100", "\"bus_bw\": 187.5", NULL
};

static void check(const struct nccl_log *log)
{
    for (int i = 0; i < log->nsweeps; i++) {
        const struct nccl_sweep *s = &log->sweep[i];
        int64_t ranks = 0;

        if (s->npoints == 0)
            continue;
        must_hold(s->op >= 0 && s->op < NCOLL && s->ranks > 0 && s->nodes > 0);
        for (int64_t k = 0; k < s->nodes; k++)
            ranks += s->host[k].ranks;
        must_hold(ranks == s->ranks);
        for (int k = 0; k < s->npoints; k++) {
            must_hold(s->point[k].bytes > 0 && s->point[k].nseconds > 0);
            for (int n = 0; n < s->point[k].nseconds; n++)
                must_hold(isfinite(s->point[k].seconds[n]) && s->point[k].seconds[n] > 0);
        }
    }
}

/* What the database calls to reach the disk: waiting for it takes longer than all else. */
int fdatasync(int fd) { (void)fd; return 0; }
int fsync(int fd) { (void)fd; return 0; }

static char folder[] = "/tmp/dpx-fuzz-XXXXXX";
static struct db *db;

static void close_database(void)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    char path[64];

    db_close(db);
    db = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s/db%s", folder, ends[i]);
        remove(path);
    }
}

static void leave(void)
{
    close_database();
    rmdir(folder);
}

/* Every so often a new one, in a folder of the program's own. */
static struct db *database(void)
{
    enum { IMPORTS = 64 };
    static int imports;
    char path[64];

    if (imports == 0)
        must_hold(mkdtemp(folder) && atexit(leave) == 0);
    if (imports++ % IMPORTS == 0) {
        close_database();
        snprintf(path, sizeof path, "%s/db", folder);
        db = db_open(path);
    }
    must_hold(db);
    return db;
}

/* The whole way: what was read must be storable. */
static void import(const char *path)
{
    static int64_t n;
    char machine[32];
    struct import_nccl how = { .gpu = "h100", .cluster = machine, .op = COLL_ALL_REDUCE };
    bool refused;

    snprintf(machine, sizeof machine, "fuzz%lld", (long long)n++);
    fuzz_said[0] = '\0';
    int rc = import_nccl(database(), &how, &(char *){ (char *)path }, 1, &refused);
    must_hold(rc == 0 || fuzz_said[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool quiet;
    const char *path = fuzz_file(data, size);
    struct nccl_log log;
    bool taken;

    fuzz_quiet();
    if (!quiet && !freopen("/dev/null", "w", stdout))   /* the import prints what it took */
        abort();
    quiet = true;
    fuzz_said[0] = '\0';
    taken = nccl_log_read(path, COLL_ALL_REDUCE, &log) == 0;
    if (taken) {
        check(&log);
        nccl_log_free(&log);
        import(path);
    } else
        must_hold(fuzz_said[0] && !strchr(fuzz_said, '\n'));
    return fuzz_count(data, size, taken);
}
