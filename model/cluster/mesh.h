/* mesh.h -- how ranks are laid out over axes, and which ranks form each process group.
 *
 *     struct mesh m = { .order = { ... }, .size = { ... } };
 *     struct mesh_group g = mesh_group(&m, MESH_AXIS(AXIS_SHARD) | MESH_AXIS(AXIS_CONTEXT));
 *     for (int64_t i = 0; i < mesh_ranks(&g); i++)
 *         mesh_member(&g, rank, i) ...             the ranks of `rank`'s instance, in group order
 *
 * A rank is a number in mixed radix: one digit an axis, in the order in which the dialect lays out
 * ranks (torchtitan from slow to fast: pipe, replica, shard, context, tensor).  A group is a
 * partition of the world into instances of equal size: the ranks that agree in every digit but the
 * group's own.  That is what PyTorch's init_device_mesh() and Megatron's RankGenerator build
 * (torch/distributed/device_mesh.py; megatron/core/parallel_state.py).
 *
 * Nodes hold runs of `per_node` ranks: rank r is on node r / per_node. */
#ifndef DPX_MESH_H
#define DPX_MESH_H

#include <stdbool.h>
#include <stdint.h>

enum mesh_axis { AXIS_PIPE, AXIS_REPLICA, AXIS_SHARD, AXIS_CONTEXT, AXIS_EXPERT, AXIS_TENSOR, NAXIS };
#define MESH_AXIS(a) (1u << (a))

struct mesh {
    enum mesh_axis order[NAXIS];        /* slowest first */
    int64_t        size[NAXIS];         /* by enum mesh_axis, at least 1 */
};

/* Digits that vary within an instance: `size` values, neighbours `stride` ranks apart. */
struct mesh_digit { int64_t size, stride; };

enum { MESH_PLACES = 8 };

struct mesh_group {
    int ndigits;                        /* 0: every rank is alone */
    struct mesh_digit digit[NAXIS];     /* slowest first; sizes from 2, never two that are one run */
    int nplaces;                        /* of those ranks only some are in it (mesh_some); 0: all */
    int64_t place[MESH_PLACES];         /* their places among all, rising */
};

/* Ranks of the world: the product of all sizes. */
int64_t mesh_world(const struct mesh *m);

/* The digit of `rank` on an axis: its stage, its tensor-parallel rank ... */
int64_t mesh_digit(const struct mesh *m, int64_t rank, enum mesh_axis a);

/* The partition that varies along `axes` (MESH_AXIS bits). */
struct mesh_group mesh_group(const struct mesh *m, unsigned axes);

/* The partition of each instance of g into runs of k in group order: FSDP2's reshard to k, ZeRO++'s
 * secondary partition.  k divides mesh_ranks(g), and cuts at most one digit (asserted). */
struct mesh_group mesh_inner(const struct mesh_group *g, int64_t k);

/* The complement: of each instance of g the ranks at equal places of those runs, which are one a run. */
struct mesh_group mesh_outer(const struct mesh_group *g, int64_t k);

/* A list: of each instance of g the ranks at these n places, rising, and no others.  Example: the first and the
 * last of P pipeline stages share a tied embedding, places 0 and P-1 along the pipe. */
struct mesh_group mesh_some(const struct mesh_group *g, int n, const int64_t *places);

/* Ranks of an instance. */
int64_t mesh_ranks(const struct mesh_group *g);

/* The i-th rank of the instance that has `rank`; of a list, of the instance in which the list takes its places, and i is one of
 * them (asserted). */
int64_t mesh_member(const struct mesh_group *g, int64_t rank, int64_t i);

/* The place of `rank` in its instance; -1: a list does not include it. */
int64_t mesh_place(const struct mesh_group *g, int64_t rank);

/* How an instance lies on nodes. */
struct mesh_lie {
    int64_t ranks, nodes;
    int64_t most, least;                /* ranks of it on the fullest and on the emptiest of its nodes */
};
struct mesh_lie mesh_lie(const struct mesh_group *g, int64_t rank, int64_t per_node);

/* The instance that a synchronous step waits for: of all, the one on most nodes; of those, the one
 * whose emptiest node has fewest.  O(1) where instances and nodes are aligned, else up to O(world). */
struct mesh_lie mesh_slowest(const struct mesh_group *g, int64_t world, int64_t per_node);

/* Instances, itself among them, that have ranks on the node of `rank` and on another one: they share
 * its network adapters.  0: none leaves the node. */
int64_t mesh_sisters(const struct mesh_group *g, int64_t world, int64_t rank, int64_t per_node);

#endif
