"""What record_deepspeed.py records."""
import deepspeed

from deepspeed_models import MODELS


def case(model, stage, precision, accumulation=1, world=2, clip=None, kernels="torch-eager",
         recompute="none", dropout=0.0, traces=True, node=None, sp=1, tp=1, optimizer=None, **ds):
    return dict(model=model, stage=stage, precision=precision, accumulation=accumulation,
                world=world, clip=clip, kernels="torch-sdpa" if sp * tp > 1 else kernels, recompute=recompute,
                dropout=dropout, traces=traces, node=node, sp=sp, tp=tp, optimizer=optimizer, ds=ds)


# `ds` holds zero_optimization's own options, and three that ds_config.json has elsewhere:
# grad_accum_dtype (data_types), communication_data_type (top level), check_grad_overflow (bf16).
SMALL = dict(reduce_bucket_size=20000)      # several buckets; the wide models' weights exceed it
TINY = dict(reduce_bucket_size=6000)        # gpt2's weights exceed it
CASES = {
    "s0_gpt2_bf16":                case("gpt2", 0, "bf16"),
    "s0_gpt2_fp32":                case("gpt2", 0, "fp32", clip=1.0),
    "s0_gpt2_fp16":                case("gpt2", 0, "fp16"),
    "s0_llama_bf16_gas3_clip":     case("llama", 0, "bf16", 3, clip=1.0, **SMALL),
    "s0_gpt2_fp32_w3_gas3":        case("gpt2", 0, "fp32", 3, world=3),
    "s1_gpt2_bf16":                case("gpt2", 1, "bf16"),
    "s1_gpt2_fp32_gas3":           case("gpt2", 1, "fp32", 3, clip=1.0, **SMALL),
    "s1_gpt2_fp16":                case("gpt2", 1, "fp16", **SMALL),
    "s1_gpt2_fp16_accum_fp32":     case("gpt2", 1, "fp16", 3, grad_accum_dtype="fp32", **SMALL),
    "s1_gpt2_bf16_roundrobin_multirank_off": case("gpt2", 1, "bf16", round_robin_gradients=True,
                                        use_multi_rank_bucket_allreduce=False, **SMALL),
    "s1_gpt2_bf16_tiny":           case("gpt2", 1, "bf16", **TINY),
    "s1_gpt2_bf16_tiny_overlap":   case("gpt2", 1, "bf16", 3, overlap_comm=True, **TINY),
    "s1_llama_bf16_w3":            case("llama", 1, "bf16", world=3, **SMALL),
    "s1_llama_bf16_nooverflow":    case("llama", 1, "bf16", check_grad_overflow=False, **SMALL),
    "s1_gpt2_bf16_accum_fp32":     case("gpt2", 1, "bf16", grad_accum_dtype="fp32"),
    "s1_llama_bf16_accum_fp32_gas3": case("llama", 1, "bf16", 3, clip=1.0,
                                        grad_accum_dtype="fp32", **TINY),
    "s1_llama_bf16_multirank_off": case("llama", 1, "bf16",
                                        use_multi_rank_bucket_allreduce=False, **SMALL),
    "s1_gpt2odd_bf16":             case("gpt2odd", 1, "bf16", reduce_bucket_size=1500),
    "s1_gpt2odd_bf16_accum_fp32":  case("gpt2odd", 1, "bf16", world=3, grad_accum_dtype="fp32"),
    "s1_gpt2_bf16_noscatter":      case("gpt2", 1, "bf16", reduce_scatter=False, **SMALL),
    "s2_gpt2_bf16":                case("gpt2", 2, "bf16"),
    "s2_gpt2_bf16_clip":           case("gpt2", 2, "bf16", clip=1.0, **SMALL),
    "s2_gpt2_bf16_tiny_gas3":      case("gpt2", 2, "bf16", 3, **TINY),
    "s2_gpt2_bf16_tiny_overlap":   case("gpt2", 2, "bf16", overlap_comm=True, **TINY),
    "s2_gpt2_fp32_w3":             case("gpt2", 2, "fp32", world=3, **SMALL),
    "s2_gpt2_fp16":                case("gpt2", 2, "fp16", **SMALL),
    "s2_llama_bf16_gas3":          case("llama", 2, "bf16", 3, clip=1.0, **SMALL),
    "s2_llama_bf16_tiny_w3":       case("llama", 2, "bf16", world=3, **TINY),
    "s2_llama_bf16_comm_fp32":     case("llama", 2, "bf16", communication_data_type="fp32", **SMALL),
    "s2_llama_bf16_accum_fp32":    case("llama", 2, "bf16", 3, grad_accum_dtype="fp32", **SMALL),
    "s2_gpt2_bf16_multirank_off":  case("gpt2", 2, "bf16",
                                        use_multi_rank_bucket_allreduce=False, **SMALL),
    "s2_gpt2_bf16_multirank_off_w3": case("gpt2", 2, "bf16", 3, world=3,
                                        use_multi_rank_bucket_allreduce=False, **SMALL),
    "s2_llama_bf16_noscatter":     case("llama", 2, "bf16", reduce_scatter=False, **SMALL),
    "s2_gpt2_bf16_noscatter_tiny": case("gpt2", 2, "bf16", reduce_scatter=False, **TINY),
    "s2_gpt2_bf16_tiny_w3":        case("gpt2", 2, "bf16", world=3, reduce_bucket_size=3000),
    "s2_gpt2odd_bf16":             case("gpt2odd", 2, "bf16", world=3, clip=1.0),
    "s2_gpt2odd_fp32":             case("gpt2odd", 2, "fp32", world=2, reduce_bucket_size=700),
    "s2_gpt2odd_bf16_multirank_off": case("gpt2odd", 2, "bf16", world=3, reduce_bucket_size=1000,
                                        use_multi_rank_bucket_allreduce=False),
    "s2_gpt2_bf16_noncontiguous":  case("gpt2", 2, "bf16", contiguous_gradients=False, **SMALL),
    "s2_gpt2_bf16_roundrobin":     case("gpt2", 2, "bf16", round_robin_gradients=True, **SMALL),
    "s3_gpt2_bf16":                case("gpt2", 3, "bf16"),
    "s3_gpt2w_bf16":               case("gpt2w", 3, "bf16"),
    "s3_gpt2w_bf16_tiny":          case("gpt2w", 3, "bf16", stage3_prefetch_bucket_size=30000,
                                        stage3_max_reuse_distance=0, **SMALL),
    "s3_gpt2_bf16_all_partitioned": case("gpt2", 3, "bf16", 3, clip=1.0,
                                        stage3_param_persistence_threshold=0,
                                        stage3_prefetch_bucket_size=10000,
                                        stage3_max_reuse_distance=0, **TINY),
    "s3_gpt2_bf16_noprefetch":     case("gpt2", 3, "bf16", stage3_param_persistence_threshold=1000,
                                        stage3_prefetch_bucket_size=0,
                                        stage3_max_reuse_distance=0, **SMALL),
    "s3_gpt2_bf16_live":           case("gpt2", 3, "bf16", stage3_param_persistence_threshold=100,
                                        stage3_max_live_parameters=20000,
                                        stage3_max_reuse_distance=30000, **SMALL),
    "s3_gpt2_fp32_w3":             case("gpt2", 3, "fp32", 3, world=3,
                                        stage3_param_persistence_threshold=200,
                                        stage3_prefetch_bucket_size=15000,
                                        stage3_max_reuse_distance=20000, **SMALL),
    "s3_gpt2w_bf16_subgroups_w3":  case("gpt2w", 3, "bf16", 3, world=3, sub_group_size=100000,
                                        stage3_param_persistence_threshold=200,
                                        stage3_prefetch_bucket_size=200000,
                                        stage3_max_live_parameters=600000,
                                        stage3_max_reuse_distance=300000, reduce_bucket_size=100000),
    "s3_gpt2_fp16":                case("gpt2", 3, "fp16", **SMALL),
    "s3_gpt2_bf16_reuse_default":  case("gpt2", 3, "bf16", 3, stage3_param_persistence_threshold=0,
                                        stage3_prefetch_bucket_size=8000, **SMALL),
    "s3_gpt2_bf16_noscatter":      case("gpt2", 3, "bf16", reduce_scatter=False, **SMALL),
    "s3_gpt2_bf16_noscatter_tiny": case("gpt2", 3, "bf16", reduce_scatter=False, **TINY),
    "s3_gpt2odd_bf16_noncontiguous": case("gpt2odd", 3, "bf16", contiguous_gradients=False,
                                        reduce_scatter=False, reduce_bucket_size=3000),
    "s3_gpt2_bf16_overlap_off":    case("gpt2", 3, "bf16", overlap_comm=False,
                                        stage3_param_persistence_threshold=1000, **TINY),
    "s3_gpt2_bf16_subgroups":      case("gpt2", 3, "bf16", clip=1.0, sub_group_size=20000, **SMALL),
    "s3_gpt2_bf16_sequential":     case("gpt2", 3, "bf16", stage3_allgather_sequential=True,
                                        stage3_param_persistence_threshold=0,
                                        stage3_max_reuse_distance=0),
    "s3_gpt2_bf16_allreduce_fetch": case("gpt2", 3, "bf16",
                                        stage3_use_all_reduce_for_fetch_params=True,
                                        stage3_param_persistence_threshold=0,
                                        stage3_prefetch_bucket_size=8000),
    "s3_gpt2_bf16_model_persistence": case("gpt2", 3, "bf16", stage3_model_persistence_threshold=9000,
                                        stage3_max_reuse_distance=0,
                                        stage3_prefetch_bucket_size=5000, **SMALL),
    "s3_gpt2odd_bf16":             case("gpt2odd", 3, "bf16", 3, stage3_param_persistence_threshold=30,
                                        stage3_prefetch_bucket_size=1000,
                                        stage3_max_reuse_distance=2000, reduce_bucket_size=1000),
    "s3_gpt2odd_bf16_w3":          case("gpt2odd", 3, "bf16", world=3,
                                        stage3_param_persistence_threshold=80,
                                        stage3_prefetch_bucket_size=500,
                                        stage3_max_live_parameters=3000,
                                        stage3_max_reuse_distance=4000, reduce_bucket_size=800),
    "s3_gpt2odd_fp32_w3_noscatter": case("gpt2odd", 3, "fp32", world=3, reduce_scatter=False,
                                        reduce_bucket_size=800),
    "s3_gpt2odd_bf16_w3_sequential": case("gpt2odd", 3, "bf16", world=3, stage3_allgather_sequential=True,
                                        stage3_param_persistence_threshold=30),
    "s3_gpt2odd_bf16_w3_allreduce": case("gpt2odd", 3, "bf16", world=3,
                                        stage3_use_all_reduce_for_fetch_params=True,
                                        stage3_param_persistence_threshold=30,
                                        stage3_prefetch_bucket_size=900),
    "s3_gpt2w_bf16_gas3":          case("gpt2w", 3, "bf16", 3, stage3_max_live_parameters=500000,
                                        stage3_prefetch_bucket_size=100000,
                                        stage3_max_reuse_distance=600000, reduce_bucket_size=250000),
    "s3_gpt2_bf16_tight":          case("gpt2", 3, "bf16", 3, stage3_param_persistence_threshold=200,
                                        stage3_max_live_parameters=12000,
                                        stage3_prefetch_bucket_size=3000,
                                        stage3_max_reuse_distance=5000, **SMALL),
    "s3_llama_bf16_tight":         case("llama", 3, "bf16", 3, stage3_param_persistence_threshold=1200,
                                        stage3_max_live_parameters=9000,
                                        stage3_prefetch_bucket_size=3000,
                                        stage3_max_reuse_distance=8000, **SMALL),
    "s3_gpt2_bf16_sdpa":           case("gpt2", 3, "bf16", 3, kernels="torch-sdpa",
                                        stage3_param_persistence_threshold=100,
                                        stage3_prefetch_bucket_size=7000,
                                        stage3_max_reuse_distance=15000, **SMALL),
    "s2_gpt2_bf16_recompute":      case("gpt2", 2, "bf16", recompute="full", **SMALL),
    "s3_gpt2_bf16_recompute":      case("gpt2", 3, "bf16", 3, recompute="full",
                                        stage3_param_persistence_threshold=100,
                                        stage3_prefetch_bucket_size=7000,
                                        stage3_max_reuse_distance=15000, **SMALL),
    # With dropout the first tensor that recomputation needs back is a mask, one module earlier.
    "s3_gpt2_bf16_recompute_dropout": case("gpt2", 3, "bf16", recompute="full", dropout=0.1,
                                        stage3_param_persistence_threshold=100,
                                        stage3_prefetch_bucket_size=0,
                                        stage3_max_reuse_distance=0, **SMALL),
    "s3_gpt2_bf16_recompute_default": case("gpt2", 3, "bf16", recompute="full"),
    "s3_llama_bf16_recompute":     case("llama", 3, "bf16", 3, recompute="full",
                                        stage3_param_persistence_threshold=0,
                                        stage3_prefetch_bucket_size=0,
                                        stage3_max_reuse_distance=0, **SMALL),
    "s3_llamaw_bf16_recompute":    case("llamaw", 3, "bf16", recompute="full",
                                        stage3_max_live_parameters=700000,
                                        stage3_prefetch_bucket_size=120000,
                                        stage3_max_reuse_distance=400000, reduce_bucket_size=300000),
    "s3_llama_bf16":               case("llama", 3, "bf16"),
    "s3_llamaw_bf16":              case("llamaw", 3, "bf16", clip=1.0),
    "s3_llamaw_bf16_w3":           case("llamaw", 3, "bf16", world=3, stage3_prefetch_bucket_size=150000,
                                        stage3_max_reuse_distance=300000, reduce_bucket_size=300000),
    "s3_gpt2_bf16_model_persistence_noprefetch": case("gpt2", 3, "bf16", 3,
                                        stage3_model_persistence_threshold=9000,
                                        stage3_max_reuse_distance=0,
                                        stage3_prefetch_bucket_size=0, **SMALL),
    "s3_llama_bf16_model_persistence": case("llama", 3, "bf16", 3, world=3,
                                        stage3_model_persistence_threshold=10000,
                                        stage3_max_reuse_distance=0,
                                        stage3_prefetch_bucket_size=1, **SMALL),
    "s3_llama_bf16_partitioned":   case("llama", 3, "bf16", 3, stage3_param_persistence_threshold=0,
                                        stage3_prefetch_bucket_size=5000,
                                        stage3_max_reuse_distance=0, **SMALL),
    "s3_llama_bf16_live":          case("llama", 3, "bf16", stage3_param_persistence_threshold=48,
                                        stage3_max_live_parameters=25000,
                                        stage3_max_reuse_distance=25000, **SMALL),
    "s3_llama_bf16_w3":            case("llama", 3, "bf16", world=3,
                                        stage3_param_persistence_threshold=3000,
                                        stage3_prefetch_bucket_size=9000,
                                        stage3_max_reuse_distance=0, **TINY),
    "s3_gpt2_bf16_hpz2_w4":        case("gpt2", 3, "bf16", 3, world=4, zero_hpz_partition_size=2,
                                        stage3_param_persistence_threshold=100, stage3_max_reuse_distance=0,
                                        stage3_prefetch_bucket_size=5000, **SMALL),
    "s3_gpt2odd_fp32_hpz2_w4_sequential": case("gpt2odd", 3, "fp32", 2, world=4, zero_hpz_partition_size=2,
                                        stage3_allgather_sequential=True, stage3_param_persistence_threshold=0,
                                        stage3_max_reuse_distance=0, **SMALL),
    "s3_llama_bf16_hpz3_w3_allreduce": case("llama", 3, "bf16", 2, world=3, zero_hpz_partition_size=8,
                                        stage3_use_all_reduce_for_fetch_params=True, stage3_max_reuse_distance=0,
                                        stage3_param_persistence_threshold=48, **SMALL),
    "s3_llama_bf16_hpz2_w4_reuse": case("llama", 3, "bf16", 2, world=4, zero_hpz_partition_size=2, clip=1.0,
                                        stage3_param_persistence_threshold=1200, stage3_max_reuse_distance=8000,
                                        stage3_prefetch_bucket_size=3000, **SMALL),
    "s3_gpt2_bf16_hpz2_w4_recompute": case("gpt2", 3, "bf16", world=4, recompute="full", zero_hpz_partition_size=2,
                                        stage3_param_persistence_threshold=0, stage3_max_reuse_distance=0, **TINY),
    "s3_gpt2q_fp16_qwz_w4":        case("gpt2q", 3, "fp16", 2, world=4, zero_quantized_weights=True,
                                        stage3_param_persistence_threshold=100, stage3_max_reuse_distance=0,
                                        stage3_prefetch_bucket_size=9000, **SMALL),
    "s3_llamaq_bf16_qwz_allreduce": case("llamaq", 3, "bf16", zero_quantized_weights=True, clip=1.0,
                                        stage3_use_all_reduce_for_fetch_params=True, stage3_param_persistence_threshold=0,
                                        stage3_max_reuse_distance=8000, **SMALL),
    "s3_gpt2q_fp32_qwz":           case("gpt2q", 3, "fp32", zero_quantized_weights=True, **SMALL),
    "s3_gpt2q_fp16_qwz_hpz2_w4":   case("gpt2q", 3, "fp16", 2, world=4, zero_quantized_weights=True, zero_hpz_partition_size=2,
                                        stage3_param_persistence_threshold=100, stage3_max_reuse_distance=0,
                                        stage3_prefetch_bucket_size=5000, **SMALL),
    "s3_gpt2q_fp16_qgz_2x2":       case("gpt2q", 3, "fp16", world=4, node=2, zero_quantized_gradients=True, clip=1.0, **SMALL),
    "s3_llamaq_bf16_qgz_2x2":      case("llamaq", 3, "bf16", 2, world=4, node=2, zero_quantized_gradients=True,
                                        stage3_param_persistence_threshold=0, reduce_bucket_size=5000),
    "s3_gpt2q_bf16_qgz_one_node":  case("gpt2q", 3, "bf16", world=2, node=2, zero_quantized_gradients=True, **SMALL),
    "s3_llamaq_fp16_three_2x2":    case("llamaq", 3, "fp16", 2, world=4, node=2, zero_quantized_gradients=True,
                                        zero_quantized_weights=True, zero_hpz_partition_size=2, stage3_max_reuse_distance=0,
                                        stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=5000, **SMALL),
    "s3_llama_bf16_comm_fp32":     case("llama", 3, "bf16", communication_data_type="fp32", **SMALL),
    "s3_llama_bf16_accum_fp32":    case("llama", 3, "bf16", 3, grad_accum_dtype="fp32", **SMALL),
    "s3_llama_fp32":               case("llama", 3, "fp32", stage3_param_persistence_threshold=2000,
                                        stage3_prefetch_bucket_size=20000),
    # Ulysses: sp ranks share each sample's positions.  With 4 ranks the 2 heads of keys are repeated.
    "s1_llama_bf16_sp2":           case("llama", 1, "bf16", sp=2, **SMALL),
    "s1_llama_fp32_sp2_w4_gas2":   case("llama", 1, "fp32", 2, world=4, sp=2, clip=1.0, **SMALL),
    "s0_llama_fp32_sp2":           case("llama", 0, "fp32", sp=2),
    "s0_llama_fp32_sp2_w4_gas2":   case("llama", 0, "fp32", 2, world=4, sp=2),
    "s0_llama_fp32_sp2_clip":      case("llama", 0, "fp32", sp=2, clip=1.0),
    "s0_llama_bf16_sp2":           case("llama", 0, "bf16", sp=2),
    "s0_llama_fp16_sp2":           case("llama", 0, "fp16", sp=2),
    "s0_llama_bf16_sp2_w4_gas2":   case("llama", 0, "bf16", 2, world=4, sp=2, clip=1.0),
    # AutoTP: tp ranks share each block's tensors.
    "s0_llamaeven_bf16_tp2":           case("llamaeven", 0, "bf16", tp=2),
    "s0_llamaeven_bf16_tp2_w4_recompute": case("llamaeven", 0, "bf16", world=4, tp=2, recompute="full"),
    "s0_llamaeven_fp16_tp2_w4_clip":   case("llamaeven", 0, "fp16", world=4, tp=2, clip=1.0),
    "s0_llamaeven_fp32_tp2_w4_gas2":   case("llamaeven", 0, "fp32", 2, world=4, tp=2),
    "s0_llamaeven_fp32_tp2_w4_clip":   case("llamaeven", 0, "fp32", world=4, tp=2, clip=1.0),
    "s1_llamaeven_bf16_tp2":           case("llamaeven", 1, "bf16", tp=2, **SMALL),
    "s1_llamaeven_fp32_tp2_w4_gas2":   case("llamaeven", 1, "fp32", 2, world=4, tp=2, clip=1.0, **SMALL),
    "s2_llamaeven_bf16_tp2_w4_gas2":   case("llamaeven", 2, "bf16", 2, world=4, tp=2, **SMALL),
    "s2_llamaeven_bf16_tp2_w4_recompute": case("llamaeven", 2, "bf16", world=4, tp=2, recompute="full", **SMALL),
    "s3_llamaeven_bf16_tp2_w4":        case("llamaeven", 3, "bf16", world=4, tp=2, stage3_param_persistence_threshold=0,
                                        stage3_prefetch_bucket_size=5000, stage3_max_reuse_distance=0, **SMALL),
    "s2_llama_bf16_sp2_w4_gas2":   case("llama", 2, "bf16", 2, world=4, sp=2, **SMALL),
    "s2_llama_bf16_sp4_w4":        case("llama", 2, "bf16", world=4, sp=4, **SMALL),
    "s2_llama_bf16_sp2_multirank_off": case("llama", 2, "bf16", sp=2, use_multi_rank_bucket_allreduce=False, **SMALL),
    "s2_llama_bf16_sp2_noscatter": case("llama", 2, "bf16", sp=2, reduce_scatter=False, **TINY),
    "s2_llama_fp16_sp2":           case("llama", 2, "fp16", sp=2, overlap_comm=True, **SMALL),
    "s2_qwen3_bf16_sp2_recompute": case("qwen3", 2, "bf16", sp=2, recompute="full", **SMALL),
    "s3_llama_bf16_sp2":           case("llama", 3, "bf16", sp=2),
    "s3_llama_bf16_sp2_w4_gas2":   case("llama", 3, "bf16", 2, world=4, sp=2, stage3_param_persistence_threshold=0,
                                        stage3_prefetch_bucket_size=5000, stage3_max_reuse_distance=0, **SMALL),
    "s3_llama_fp32_sp4_w4":        case("llama", 3, "fp32", world=4, sp=4, stage3_param_persistence_threshold=1200,
                                        stage3_prefetch_bucket_size=3000, stage3_max_reuse_distance=8000, **TINY),
    "s3_llama_bf16_sp2_recompute": case("llama", 3, "bf16", 2, sp=2, recompute="full", stage3_max_reuse_distance=0,
                                        stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=0, **SMALL),
    "s3_llama_bf16_hpz2_sp2_w4":   case("llama", 3, "bf16", 2, world=4, sp=2, zero_hpz_partition_size=2,
                                        stage3_param_persistence_threshold=100, stage3_max_reuse_distance=0, **SMALL),
}


# What fails, recorded by name alone to see the error: README.md.  Stage 1 with grad_accum_dtype fp32 is BF16_Optimizer, which takes ranks that
# share positions for tensor-parallel ones.
FAILS = {
    "s1_llama_bf16_sp2_accum_fp32": case("llama", 1, "bf16", sp=2, grad_accum_dtype="fp32"),
    "s1_llama_bf16_sp2_w4_accum_fp32": case("llama", 1, "bf16", 2, world=4, sp=2, clip=1.0, grad_accum_dtype="fp32"),
}
# compute_grad_norm came with 0.19.8.
if deepspeed.__version__ == "0.19.8":
    CASES["s1_gpt2_bf16_nonorm"] = case("gpt2", 1, "bf16", compute_grad_norm=False, **SMALL)
    CASES["s2_gpt2_fp16_nonorm"] = case("gpt2", 2, "fp16", 2, compute_grad_norm=False, **SMALL)
    # Gradients accumulate in the fp32 partition: which slices are apart depends on the rank, what is sent must not.
    FP32 = dict(grad_accum_dtype="fp32")
    CASES["s2_gpt2_bf16_accum_fp32"] = case("gpt2", 2, "bf16", 3, clip=1.0, **FP32, **SMALL)
    CASES["s2_gpt2odd_bf16_accum_fp32_w3"] = case("gpt2odd", 2, "bf16", 2, world=3, round_robin_gradients=True,
                                                  reduce_bucket_size=700, **FP32)
    CASES["s2_gpt2odd_bf16_accum_fp32_owners_w3"] = case("gpt2odd", 2, "bf16", world=3, reduce_bucket_size=1000,
                                                         use_multi_rank_bucket_allreduce=False, **FP32)
    CASES["s2_gpt2_bf16_accum_fp32_noncontiguous"] = case("gpt2", 2, "bf16", 2, contiguous_gradients=False,
                                                          overlap_comm=True, **FP32, **SMALL)
    CASES["s2_llama_bf16_accum_fp32_wire"] = case("llama", 2, "bf16", 2, communication_data_type="fp32",
                                                  overlap_comm=True, **FP32, **SMALL)
    CASES["s2_llama_fp16_accum_fp32_noscatter"] = case("llama", 2, "fp16", 2, reduce_scatter=False, **FP32, **TINY)
    # Two parameter groups: matrices, which ranks orthogonalise whole, and the rest, of which gpt2's embeddings are none.
    MUON = {
        "s1_gpt2_bf16_muon":            case("gpt2", 1, "bf16", optimizer="muon"),
        "s1_llama_bf16_muon_w3_gas3":   case("llama", 1, "bf16", 3, world=3, clip=1.0, optimizer="muon", **SMALL),
        "s1_llama_fp32_muon_overlap":   case("llama", 1, "fp32", optimizer="muon", overlap_comm=True, **TINY),
        "s1_gpt2odd_fp16_muon_w3":      case("gpt2odd", 1, "fp16", 2, world=3, optimizer="muon", reduce_bucket_size=1500),
        "s2_gpt2_bf16_muon":            case("gpt2", 2, "bf16", optimizer="muon", **SMALL),
        "s2_gpt2_bf16_muon_tiny_w3":    case("gpt2", 2, "bf16", world=3, optimizer="muon", **TINY),
        "s2_llama_bf16_muon_gas3":      case("llama", 2, "bf16", 3, clip=1.0, optimizer="muon", **SMALL),
        "s2_llama_fp32_muon_w3":        case("llama", 2, "fp32", world=3, optimizer="muon", overlap_comm=True, **TINY),
        "s2_gpt2odd_bf16_muon_roundrobin_w3": case("gpt2odd", 2, "bf16", 2, world=3, optimizer="muon", round_robin_gradients=True,
                                                   reduce_bucket_size=700),
        "s2_llama_fp16_muon_noscatter": case("llama", 2, "fp16", 2, optimizer="muon", reduce_scatter=False, **TINY),
        "s2_gpt2_bf16_muon_noncontiguous": case("gpt2", 2, "bf16", optimizer="muon", contiguous_gradients=False, **SMALL),
    }
    CASES.update(MUON)
    # "Muon and reduce scatter cannot be used together"
    FAILS["s3_llama_bf16_muon"] = case("llama", 3, "bf16", optimizer="muon")
    CASES["s1_llama_fp16_accum_fp32_gas2"] = case("llama", 1, "fp16", 2, **FP32, **SMALL)
# Two parameter groups, as transformers' Trainer makes them: weights, and what does not decay.
DECAY = {
    "s1_gpt2_bf16_decay":           case("gpt2", 1, "bf16", decay_groups=True, **SMALL),
    "s1_llama_bf16_decay_w3_gas3":  case("llama", 1, "bf16", 3, world=3, clip=1.0, decay_groups=True, **SMALL),
    "s1_gpt2_fp32_decay_overlap":   case("gpt2", 1, "fp32", decay_groups=True, overlap_comm=True, **TINY),
    "s2_gpt2_bf16_decay_w3":        case("gpt2", 2, "bf16", 2, world=3, decay_groups=True, **TINY),
    "s2_llama_bf16_decay":          case("llama", 2, "bf16", clip=1.0, decay_groups=True, **SMALL),
    "s2_gpt2odd_fp16_decay_roundrobin_w3": case("gpt2odd", 2, "fp16", 2, world=3, decay_groups=True, round_robin_gradients=True,
                                                reduce_bucket_size=700),
    "s2_gpt2_bf16_decay_owners":    case("gpt2", 2, "bf16", decay_groups=True, use_multi_rank_bucket_allreduce=False, **SMALL),
    "s3_gpt2_bf16_decay":           case("gpt2", 3, "bf16", 2, clip=1.0, decay_groups=True, **SMALL),
    "s3_llama_bf16_decay_w3":       case("llama", 3, "bf16", world=3, decay_groups=True, sub_group_size=20000,
                                         stage3_param_persistence_threshold=0, **SMALL),
}
CASES.update(DECAY)
NEW_VERSION = "s0_gpt2_bf16 s0_llama_bf16_gas3_clip s1_gpt2_bf16_accum_fp32 s1_gpt2_fp32_gas3 s1_llama_bf16_w3 " \
              "s1_gpt2_bf16_nonorm s2_gpt2_bf16_tiny_gas3 s2_gpt2_bf16_noncontiguous s2_gpt2_fp16 s2_gpt2odd_bf16 " \
              "s2_gpt2_fp16_nonorm s2_llama_bf16_noscatter s2_gpt2_bf16_recompute s3_gpt2_bf16 s3_gpt2_bf16_live " \
              "s3_gpt2_fp32_w3 s3_gpt2w_bf16_subgroups_w3 s3_gpt2odd_bf16_w3_sequential s3_gpt2_bf16_recompute " \
              "s3_gpt2_fp16 s3_gpt2odd_bf16_noncontiguous s2_gpt2_bf16_accum_fp32 s2_gpt2odd_bf16_accum_fp32_w3 " \
              "s2_gpt2odd_bf16_accum_fp32_owners_w3 s2_gpt2_bf16_accum_fp32_noncontiguous " \
              "s2_llama_bf16_accum_fp32_wire s2_llama_fp16_accum_fp32_noscatter s1_llama_fp16_accum_fp32_gas2 " \
              "s3_llamaq_fp16_three_2x2 s3_gpt2q_fp16_qwz_w4 s0_llama_bf16_sp2 s0_llama_bf16_sp2_w4_gas2 s1_llama_bf16_sp2"
if deepspeed.__version__ == "0.19.8":
    NEW_VERSION += " " + " ".join(MUON) + " " + " ".join(DECAY)


def family_cases(f):
    """What every family is recorded with: all go to one file."""
    if "num_experts_per_tok" in MODELS[f]:          # planned in bf16 (model/plan/experts_check.c)
        return {
            "s0_bf16": case(f, 0, "bf16", traces=False),
            "s1_bf16": case(f, 1, "bf16", traces=False, **SMALL),
            "s2_bf16": case(f, 2, "bf16", traces=False, **SMALL),
            "s2_bf16_gas2_recompute": case(f, 2, "bf16", 2, recompute="full", traces=False, **TINY),
            "s3_bf16_gas2": case(f, 3, "bf16", 2, stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=5000,
                                 stage3_max_reuse_distance=0, **SMALL),
            "s3_bf16_tight": case(f, 3, "bf16", clip=1.0, traces=False, stage3_param_persistence_threshold=100,
                                  stage3_max_live_parameters=9000, stage3_prefetch_bucket_size=3000,
                                  stage3_max_reuse_distance=8000, **TINY),
            "s3_bf16_w3_recompute": case(f, 3, "bf16", world=3, recompute="full", traces=False,
                                         stage3_param_persistence_threshold=200, stage3_prefetch_bucket_size=0,
                                         stage3_max_reuse_distance=20000, **SMALL),
        }
    cases = {
        "s2_bf16": case(f, 2, "bf16", traces=False, **SMALL),
        "s2_fp32_w3_clip": case(f, 2, "fp32", world=3, clip=1.0, traces=False, reduce_bucket_size=3000),
        "s2_bf16_gas2_recompute": case(f, 2, "bf16", 2, recompute="full", traces=False, **TINY),
        "s3_bf16_gas2": case(f, 3, "bf16", 2, stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=5000,
                             stage3_max_reuse_distance=0, **SMALL),
        "s3_bf16_tight": case(f, 3, "bf16", clip=1.0, traces=False, stage3_param_persistence_threshold=100,
                              stage3_max_live_parameters=9000, stage3_prefetch_bucket_size=3000,
                              stage3_max_reuse_distance=8000, **TINY),
        "s3_fp32_w3_recompute": case(f, 3, "fp32", world=3, recompute="full", traces=False,
                                     stage3_param_persistence_threshold=200, stage3_prefetch_bucket_size=0,
                                     stage3_max_reuse_distance=20000, **SMALL),
    }
    if any("drop" in key for key in MODELS[f]):     # a mask behind the block's last module, of a module or a function
        cases["s3_fp32_w3_recompute_dropout"] = dict(cases["s3_fp32_w3_recompute"], dropout=0.1)
    return cases
