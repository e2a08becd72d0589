"""Which kind of kernel an operator is, its product's sizes, its FLOPs."""
import torch
from torch.utils.flop_counter import flop_registry

CLASSES = {
    "gemm": "mm addmm bmm baddbmm mv addmv dot _scaled_mm _grouped_mm _scaled_grouped_mm addbmm vdot ger addr _weight_int8pack_mm",
    "conv": "convolution convolution_backward cudnn_convolution _slow_conv2d_forward convolution_overrideable convolution_backward_overrideable",
    "norm": "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward "
            "cudnn_batch_norm cudnn_batch_norm_backward batch_norm_backward _batch_norm_with_update _native_batch_norm_legit _fused_rms_norm "
            "_fused_rms_norm_backward _batch_norm_no_update",
    "softmax": "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data _masked_softmax _masked_softmax_backward logsumexp _safe_softmax",
    "embedding": "embedding embedding_dense_backward _embedding_bag _embedding_bag_dense_backward embedding_renorm_",
    "loss": "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward "
            "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits huber_loss huber_loss_backward _ctc_loss "
            "_ctc_loss_backward kl_div",
    "pool": "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward "
            "adaptive_max_pool2d max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool1d adaptive_avg_pool1d avg_pool3d avg_pool3d_backward "
            "upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward "
            "_upsample_nearest_exact2d _upsample_nearest_exact2d_backward upsample_linear1d upsample_bilinear2d upsample_bilinear2d_backward "
            "upsample_bicubic2d upsample_bicubic2d_backward _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa "
            "_upsample_bicubic2d_aa_backward grid_sampler_2d grid_sampler_2d_backward",
    "recurrence": "_cudnn_rnn _cudnn_rnn_backward _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell "
                  "_thnn_fused_gru_cell_backward _cudnn_rnn_flatten_weight",
    "fft": "_fft_r2c _fft_c2r _fft_c2c",
    "reduce": "_is_all_true _is_any_true sum mean var var_mean std std_mean amax amin max min any all argmax argmin prod norm linalg_vector_norm cumsum cumprod cummax logcumsumexp "
              "sort topk _foreach_norm count_nonzero unique _unique2 nonzero bincount histc median kthvalue searchsorted unique_dim unique_consecutive",
    "copy": "clone copy_ _to_copy cat stack fill_ zero_ fill zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full arange index "
            "index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put index_select index_add index_add_ gather scatter scatter_ scatter_add "
            "scatter_add_ scatter_reduce scatter_reduce_ slice_backward select_backward constant_pad_nd roll flip repeat tril triu tril_ triu_ "
            "select_scatter slice_scatter diagonal_scatter eye linspace scalar_tensor repeat_interleave lift_fresh rand randn rand_like randn_like randint "
            "randperm unfold_backward split_with_sizes_copy index_copy index_copy_ reflection_pad1d reflection_pad1d_backward reflection_pad2d "
            "reflection_pad2d_backward replication_pad2d im2col col2im pixel_shuffle pixel_unshuffle diag_embed one_hot tril_indices triu_indices normal_ "
            "uniform_ bernoulli bernoulli_ random_ exponential_ native_dropout native_dropout_backward masked_scatter masked_scatter_backward expand_copy "
            "contiguous _reshape_copy channel_shuffle multinomial masked_select take put put_ as_strided_scatter diagonal_backward "
            "value_selecting_reduction_backward _chunk_cat _foreach_copy_ _weight_norm_interface _weight_norm_interface_backward hann_window rot90",
    "elementwise": "floor_divide gelu_backward silu_backward threshold_backward sigmoid_backward tanh_backward hardtanh_backward hardswish_backward elu_backward "
                   "leaky_relu_backward softplus_backward glu glu_backward silu_ log_sigmoid_forward log_sigmoid_backward _prelu_kernel "
                   "_prelu_kernel_backward mish_backward hardsigmoid_backward logit_backward complex polar _conj view_as_complex cross rrelu_with_noise "
                   "dist equal is_nonzero celu softshrink_backward hardshrink_backward _fused_dropout _masked_scale frexp masked_fill_ isin bucketize "
                   "_amp_foreach_non_finite_check_and_unscale_",
}
NO_KERNEL = set("device detach lift_fresh alias is_same_size sym_size sym_stride sym_numel sym_storage_offset stride size numel item empty empty_like "
                "new_empty empty_strided new_empty_strided _assert_async _unsafe_view _assert_scalar _assert_tensor_metadata set_ is_contiguous "
                "storage_offset layout dim is_pinned resize_ _has_compatible_shallow_copy_type is_strides_like_format "
                "is_non_overlapping_and_dense".split())
OF = {name: cls for cls, names in CLASSES.items() for name in names.split()}
NOTHING_READ = set("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill_ zero_ arange rand randn randint".split())
GATHERS = set("embedding index index_select gather".split())
known = {}


def name_of(func):
    return func._schema.name.split("::")[-1]


def class_of(func):
    """The class; "view": no kernel; "?": none is known."""
    if func not in known:
        known[func] = find_class(func)
    return known[func]


def find_class(func):
    name = name_of(func)
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if func.namespace == "prim" or name in NO_KERNEL or func.is_view or torch.Tag.inplace_view in func.tags:
        return "view"
    if "attention" in name or "flash_attn" in name:
        return "attention"
    if name in OF or base in OF:
        return OF.get(name) or OF[base]
    if torch.Tag.pointwise in func.tags or name.startswith(("_foreach_", "_fused_adam")):
        return "elementwise"
    if hasattr(torch.Tag, "reduction") and torch.Tag.reduction in func.tags:
        return "reduce"
    return "custom" if func.namespace not in ("aten", "prims") else "?"


ONE_DTYPE = set("mm addmm bmm baddbmm addbmm mv addmv dot vdot ger addr _grouped_mm convolution native_layer_norm native_group_norm".split())


def clash_of(name, args):
    """Two dtypes that no kernel takes together, which fake tensors let pass; None: there are none.  A batch norm's input may be narrower than its weight."""
    real = lambda ts: [t.dtype for t in ts if isinstance(t, torch.Tensor) and t.is_floating_point()]
    if name in ONE_DTYPE:
        other = list(dict.fromkeys(real(args)))
        return tuple(other[:2]) if len(other) > 1 else None
    if name in ("native_batch_norm", "cudnn_batch_norm", "_batch_norm_with_update"):
        x, *weight = real(args[:2])
        return (x, weight[0]) if weight and x != weight[0] and weight[0] is not torch.float32 else None
    return None


def shared_out(name, args):
    """Which of m, n, k the groups of a product share: so many in all, as many as the module's routing gives them.  None: none."""
    if name not in ("_grouped_mm", "_scaled_grouped_mm"):
        return None
    dims = [x.dim() for x in args if isinstance(x, torch.Tensor)][:2]
    return {(2, 3): "m", (3, 2): "m", (2, 2): "k"}.get(tuple(dims))


def product_of(name, args, out=None):
    """batch, m, n, k of a product of matrices; None: it is none that is known."""
    t = [x for x in args if isinstance(x, torch.Tensor)]
    if name in ("mm", "_scaled_mm"):
        return 1, t[0].shape[0], t[1].shape[1], t[0].shape[1]
    if name == "addmm":
        return 1, t[1].shape[0], t[2].shape[1], t[1].shape[1]
    if name == "bmm":
        return t[0].shape[0], t[0].shape[1], t[1].shape[2], t[0].shape[2]
    if name == "baddbmm":
        return t[1].shape[0], t[1].shape[1], t[2].shape[2], t[1].shape[2]
    if name in ("_grouped_mm", "_scaled_grouped_mm"):
        a, b = t[0].shape, t[1].shape
        if len(a) == 2 and len(b) == 3:         # rows of all groups, each group's matrix
            return b[0], a[0], b[2], b[1]
        if len(a) == 3 and len(b) == 2:
            return a[0], b[1], a[1], a[2]
        if len(a) == 2 and len(b) == 2:         # back to each group's matrix: what is summed up is shared out
            return out.shape[0], a[0], b[1], a[1]
        return a[0], a[1], b[2], a[2]
    if name in ("mv", "dot", "vdot"):
        return 1, t[0].shape[0] if name == "mv" else 1, 1, t[0].shape[-1]
    if name == "addmv":
        return 1, t[1].shape[0], 1, t[1].shape[1]
    return None


def convolution_of(name, args, out):
    """A convolution as implicit products: a list of batch, m, n, k; backward: of the input's gradient, of the weight's."""
    if name == "convolution":
        x, w, y, transposed, groups = args[0], args[1], out, args[6], args[8]
    elif name == "convolution_backward":
        y, x, w, transposed, groups = args[0], args[1], args[2], args[7], args[9]
    else:
        return None
    if transposed:
        x, y = y, x
    rows, inner = y.shape[0], w.shape[1]
    for d in y.shape[2:]:
        rows *= d
    for d in w.shape[2:]:
        inner *= d
    out_channels = w.shape[0] // groups
    if name == "convolution":
        return [(groups, rows, out_channels, inner)]
    return [g for wanted, g in zip(args[10], ((groups, rows, inner, out_channels), (groups, out_channels, inner, rows))) if wanted]


def flops_of(func, args, kwargs, out):
    """By PyTorch's registry.  Of attention's backward, which it counts as five products to forward's two, four: a kernel that computes the
    scores again does one more, and prices count that."""
    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return None
    try:
        flops = int(formula(*args, **kwargs, out_val=out))
    except Exception:
        return None
    if "attention" not in name_of(func) or "backward" not in name_of(func):
        return flops
    q, k = args[1].shape, args[2].shape
    return flops - 2 * q[0] * q[1] * q[2] * k[2] * q[3] if len(q) == 4 == len(k) else flops * 4 // 5


def bytes_of(func, cls, read, index, written):
    """What a kernel reads and writes, from its operands' bytes `read`, of the last one `index`, and its results' `written`."""
    name = name_of(func)
    if cls == "view":
        return 0
    if name in NOTHING_READ:
        return written
    if name in GATHERS:         # what it finds, however often
        return 2 * written + index
    return read + written
