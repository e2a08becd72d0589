/* Rotary positions in a config: "rope_parameters" (transformers 5), or
 * "rope_scaling" and "rope_theta" beside it, as configs had them before and still
 * mostly have.  Written in the older form, which both read. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "model/arch/hf_rope.h"
#include "model/family/family.h"

static int rope_object(const struct hf *c, struct hf *rope)
{
    if (hf_section(c, "rope_scaling", rope) < 0)
        return -1;
    return json_object_size(rope->root) ? 0 : hf_section(c, "rope_parameters", rope);
}

/* Families with two kinds of layers have two objects in "rope_parameters"; older configs
 * state the base of the layers with a window beside it. */
static int read_local_theta(const struct hf *c, const struct family *f, struct hf *rope, struct model *m)
{
    struct hf local = { NULL, c->where, "rope_parameters.sliding_attention" };
    struct hf all = *rope;

    if (f->local_theta_key && hf_real(c, f->local_theta_key, f->local_theta, 0, 0, &m->rope_local_theta) < 0)
        return -1;
    if (!hf_has(&all, "full_attention") && !hf_has(&all, "sliding_attention"))
        return 0;
    if (hf_section(&all, "full_attention", rope) < 0 || hf_section(&all, "sliding_attention", &local) < 0)
        return -1;
    rope->section = "rope_parameters.full_attention";
    local.section = "rope_parameters.sliding_attention";
    if (f->local_theta_key)
        return hf_real(&local, "rope_theta", m->rope_local_theta, 0, 0, &m->rope_local_theta);
    if (hf_has(&local, "rope_theta") && hf_has(rope, "rope_theta")
        && !json_equal(json_object_get(local.root, "rope_theta"), json_object_get(rope->root, "rope_theta")))
        return hf_refuse(&local, "rope_theta", "as in \"full_attention\" in this family");
    return 0;
}

static int read_scaling(const struct hf *rope, struct model *m)
{
    const char *type;

    if (hf_string(rope, hf_has(rope, "rope_type") ? "rope_type" : "type", "default", &type) < 0)
        return -1;
    if (strcmp(type, "default") != 0) {
        json_decref(m->rope_scaling);
        m->rope_scaling = json_deep_copy(rope->root);
        if (!m->rope_scaling)
            return fail("out of memory for %s", rope->where);
    }
    return 0;
}

/* A table of all positions (gptj): its base is 10,000 whatever the config says. */
static int read_table(const struct hf *c, struct model *m)
{
    m->rope_theta = 10000;
    if (m->rotary_dim % 2 != 0 || m->rotary_dim > m->head_dim)
        return hf_refuse(c, "rotary_dim", "an even number, at most n_embd / n_head");
    return 0;
}

int hf_rope_read(const struct hf *c, const struct family *f, struct model *m)
{
    struct hf rope;
    double partial = 1;

    if (f->position_table)
        return read_table(c, m);
    if (rope_object(c, &rope) < 0 || read_local_theta(c, f, &rope, m) < 0
        || hf_real(c, f->theta_key, f->theta > 0 ? f->theta : 10000, 0, 0, &m->rope_theta) < 0
        || hf_real(&rope, "rope_theta", m->rope_theta, 0, 0, &m->rope_theta) < 0)
        return -1;
    if (m->rope_theta <= 0)
        return hf_refuse(hf_has(&rope, "rope_theta") ? &rope : c,
                         hf_has(&rope, "rope_theta") ? "rope_theta" : f->theta_key,
                         "a number above 0");
    if (f->partial_key
        && (hf_real(c, f->partial_key, f->partial, 0, 0, &partial) < 0
            || hf_real(&rope, "partial_rotary_factor", partial, 0, 0, &partial) < 0))
        return -1;
    if (partial > 1)
        return fail("%s: \"%s\" is %g: must be a number above 0, up to 1", c->where,
                    f->partial_key, partial);
    m->rotary_dim = (int64_t)((double)m->head_dim * partial);
    if (m->rotary_dim < 2 || m->rotary_dim % 2 != 0)
        return fail("%s: %" PRId64 " of the %" PRId64 " elements of a head would be rotated "
                    "(\"%s\", \"num_attention_heads\", \"head_dim\"): must be an even number "
                    "from 2", c->where, m->rotary_dim, m->head_dim,
                    f->partial_key ? f->partial_key : "hidden_size");
    return read_scaling(&rope, m);
}

/* The share of a head that reads back as rotary_dim elements: the reader cuts
 * the product to whole ones, and a quotient may fall just short. */
static double rotated_share(const struct model *m)
{
    double share = (double)m->rotary_dim / (double)m->head_dim;

    if ((int64_t)((double)m->head_dim * share) == m->rotary_dim)
        return share;
    return ((double)m->rotary_dim + 0.5) / (double)m->head_dim;
}

int hf_rope_write(const struct model *m, const struct family *f, json_t *config)
{
    if (f->position_table)
        return 0;
    int rc = json_object_set_new(config, f->theta_key, json_real(m->rope_theta));

    if (f->local_theta_key)
        rc |= json_object_set_new(config, f->local_theta_key, json_real(m->rope_local_theta));

    if (f->partial_key)
        rc |= json_object_set_new(config, f->partial_key, json_real(rotated_share(m)));
    if (m->rope_scaling)
        rc |= json_object_set_new(config, "rope_scaling", json_deep_copy(m->rope_scaling));
    return rc;
}
