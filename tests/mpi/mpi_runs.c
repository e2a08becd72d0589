/* mpi_runs.c -- dpxrun, run after run by the ranks of one launch: its own options, refusals, training and JSON, without a launch for each.
 *
 *     mpirun -n N mpi_runs LIST FOLDER [FROM]     those of the list for N ranks, from number FROM
 *
 * A line of the list: RANKS NUMBER WORDS.  FOLDER/NUMBER.args has dpxrun's arguments, one a line; what rank 0 prints goes to NUMBER.json, what
 * any rank reports to NUMBER.said.  A run that does not end with 0 is a complaint.  Says what mpi_matrix says. */
#define main dpxrun_main
#include "exec/process/dpxrun.c"
#undef main

#include <limits.h>
#include <stdarg.h>

static int rank, world;

enum { MOST_ARGS = 64, ARG_LENGTH = 4096 };
struct arguments { int n; char *v[MOST_ARGS + 1], text[MOST_ARGS][ARG_LENGTH]; };

static bool read_arguments(const char *path, struct arguments *a)
{
    FILE *f = fopen(path, "r");

    *a = (struct arguments){ .n = 1, .v = { "dpxrun" } };
    if (!f)
        return false;
    while (a->n < MOST_ARGS && fgets(a->text[a->n], ARG_LENGTH, f)) {
        a->text[a->n][strcspn(a->text[a->n], "\n")] = '\0';
        a->v[a->n] = a->text[a->n];
        a->n++;
    }
    fclose(f);
    return true;
}

/* What goes to descriptor `fd` goes to the file; returns a copy of the descriptor, for put_back(). */
static int divert(int fd, const char *path)
{
    int kept = dup(fd), file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);

    if (kept < 0 || file < 0 || dup2(file, fd) < 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    close(file);
    return kept;
}

static void put_back(int fd, int kept)
{
    fflush(NULL);
    dup2(kept, fd);
    close(kept);
}

/* As main() and as_rank() have it, between MPI_Init and MPI_Finalize. */
static int run_once(int argc, char **argv)
{
    struct dpxrun r = unasked();
    int status = EXIT_MISUSE;

    r.rank = rank;
    answers_begin(argc, argv, modelled_add);
    if (parse(argc, argv, &r.o) != OPTS_OK || check_engine(&r.o) < 0)
        return status;
    if (!r.o.offload_dir)
        r.o.offload_dir = cluster_host_folder();
    if (parse_betas(&r.o) == 0 && plan_for_here(&r) == 0 && dpxrun_check_same(&r) == 0)
        status = find_machines(&r) < 0 ? EXIT_FAILED : all(&r);
    release(&r);
    return status;
}

/* For matrix.sh, by rank 0. */
__attribute__((format(printf, 1, 2)))
static void tell(const char *format, ...)
{
    va_list ap;

    if (rank != 0)
        return;
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    fflush(stdout);
}

static void repeat(const char *path, int status)
{
    char line[512];
    FILE *f = fopen(path, "r");

    tell("exit status %d\n", status);
    for (int i = 0; f && i < 5 && fgets(line, sizeof line, f); i++)
        tell("%s", line);
    if (f)
        fclose(f);
}

static void run_number(const char *folder, int number)
{
    static struct arguments a;
    char args[PATH_MAX], json[PATH_MAX], said[PATH_MAX];
    int out = -1, err;

    snprintf(args, sizeof args, "%s/%d.args", folder, number);
    snprintf(json, sizeof json, "%s/%d.json", folder, number);
    snprintf(said, sizeof said, "%s/%d.said", folder, number);
    if (!read_arguments(args, &a))
        MPI_Abort(MPI_COMM_WORLD, 2);
    err = divert(STDERR_FILENO, said);
    if (rank == 0)
        out = divert(STDOUT_FILENO, json);
    int status = run_once(a.n, a.v);
    if (rank == 0)
        put_back(STDOUT_FILENO, out);
    put_back(STDERR_FILENO, err);
    if (rank == 0 && status != EXIT_DONE)
        repeat(said, status);
    if (status == EXIT_FAILED) {        /* the others may wait for this rank */
        sleep(rank ? 3 : 1);
        MPI_Abort(MPI_COMM_WORLD, status);
    }
}

int main(int argc, char **argv)
{
    char line[1024], words[1024];
    int ranks, number, provided;
    FILE *f;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 3 || !(f = fopen(argv[1], "r")))
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; fgets(line, sizeof line, f); i++) {
        if (sscanf(line, "%d %d %1023[^\n]", &ranks, &number, words) != 3)
            MPI_Abort(MPI_COMM_WORLD, 2);
        if (ranks != world || i < (argc > 3 ? atoi(argv[3]) : 0))
            continue;
        tell("plan %d %s\n", i, words);
        run_number(argv[2], number);
        MPI_Barrier(MPI_COMM_WORLD);
        tell("done\n");
    }
    fclose(f);
    MPI_Finalize();
    return 0;
}
