/* dnnl.h -- what host_info.c asks oneDNN, where it is not built in (`make DNNL=0`): a version of 0.0.0
 * is none. */
#ifndef DPX_NODNNL_DNNL_H
#define DPX_NODNNL_DNNL_H

typedef struct { int major, minor, patch; } dnnl_version_t;

static inline const dnnl_version_t *dnnl_version(void)
{
    static const dnnl_version_t none = { 0, 0, 0 };

    return &none;
}

#endif
