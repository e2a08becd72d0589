/* mpi_bits.c -- plans that must train the same bits: losses of six steps and last weights, file by file.
 *
 *     mpirun -n N mpi_bits LIST FOLDER [FROM]     those of the list for N ranks, from number FROM
 *
 * A line of the list: RANKS NUMBER LIKE INIT WORDS.  The plan is FOLDER/NUMBER.json, its first weights are INIT's; LIKE is -, or
 * =K or !K: the bits of plan K (of as many ranks or fewer, run before), or others.  Says what mpi_matrix says. */
#include "tests/mpi/matrix_ranks.h"

#include <limits.h>

struct line { int ranks, number, like; char relation, init[1024], words[1024]; };

static bool read_line(FILE *f, struct line *l)
{
    char text[4096], like[32];

    if (!fgets(text, sizeof text, f) || sscanf(text, "%d %d %31s %1023s %1023[^\n]", &l->ranks, &l->number, like, l->init, l->words) != 5)
        return false;
    l->relation = like[0];
    l->like = atoi(like + 1);
    return true;
}

static const char *name_of(const char *folder, int number, const char *what)
{
    static char path[4][PATH_MAX];
    static int next;
    char *to = path[next++ % 4];

    snprintf(to, sizeof path[0], "%s/%d.%s", folder, number, what);
    return to;
}

static bool same_file(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int x = EOF, y = EOF;

    while (f && g && (x = getc(f)) == (y = getc(g)) && x != EOF)
        ;
    if (f)
        fclose(f);
    if (g)
        fclose(g);
    return f && g && x == y;
}

/* Losses and weights into the folder. */
static bool train_all(struct train *t, const struct line *l, const char *folder)
{
    struct train_report r;
    FILE *f = rank == 0 ? fopen(name_of(folder, l->number, "loss"), "w") : NULL;
    bool good = true;

    for (int i = 0; i < steps && good; i++) {
        good = train_step(t, false, &r) == 0;
        if (good && f)
            fprintf(f, "%a\n", r.loss);
    }
    if (f)
        fclose(f);
    return good && train_save(t, name_of(folder, l->number, "weights")) == 0;
}

static void run(const struct line *l, const char *folder)
{
    struct plan p;

    if (plan_read(name_of(folder, l->number, "json"), &p) < 0) {
        complain("rank %d: the plan is none\n", rank);
        return;
    }
    struct train_args a = args_of(&p, false);
    a.init = l->init;
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    if (!t || !train_all(t, l, folder)) {
        complain("rank %d: it does not run\n", rank);
    } else if (rank == 0 && l->relation != '-') {
        bool losses = same_file(name_of(folder, l->number, "loss"), name_of(folder, l->like, "loss"));
        bool weights = same_file(name_of(folder, l->number, "weights"), name_of(folder, l->like, "weights"));
        if (l->relation == '=' ? !losses || !weights : weights)
            complain("losses %s, weights %s\n", losses ? "are the same" : "differ", weights ? "are the same" : "differ");
    }
    train_close(t);
    plan_free(&p);
}

int main(int argc, char **argv)
{
    struct line l;
    FILE *f;

    start_ranks(&argc, &argv);
    steps = 6;
    if (argc < 3 || !(f = fopen(argv[1], "r")))
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; read_line(f, &l); i++)
        if (l.ranks == world && i >= (argc > 3 ? atoi(argv[3]) : 0)) {
            plan_begins(i, l.words);
            run(&l, argv[2]);
            plan_ends();
        }
    fclose(f);
    MPI_Finalize();
    return 0;
}
