/* kineto_class.h -- what a kernel does, by its name. */
#ifndef DPX_KINETO_CLASS_H
#define DPX_KINETO_CLASS_H

enum kineto_class {
    KINETO_STREAMING,           /* lives off memory, or is unknown */
    KINETO_PRODUCT,             /* cuBLAS, CUTLASS, hipBLASLt, a Triton template of a product; a convolution */
    KINETO_PRODUCT_SUM,         /* adds the parts of the product before it, whose k was split */
    KINETO_ATTENTION,           /* fused, forward */
    KINETO_ATTENTION_BACK,
    KINETO_CLASSES
};

/* Of a GPU kernel's name as Kineto writes it; sources at the tables. */
enum kineto_class kineto_class(const char *name);

#endif
