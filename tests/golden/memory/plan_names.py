"""What a recorded plan's line is called, and the parts of its cluster's name."""


def gpu_of(plan):
    return plan["cluster"].split("x")[-1]


def world_of(plan):
    *nodes, gpus, _ = plan["cluster"].split("x")
    return int(gpus) * int(nodes[0] if nodes else 1)


def name_of(p):
    parts = [p["model"], p["strategy"], "w%d" % world_of(p), p.get("kernels", "torch-default")[6:], p["precision"],
             "b%d" % p["micro_batch"], "s%d" % p["seq"]]
    if p.get("shard_group"):
        parts.append("hsdp%d" % p["shard_group"])
    if p["accumulation"] > 1:
        parts.append("acc%d" % p["accumulation"])
    if "unit" in p:
        parts.append(p["unit"].replace(" ", ""))
    if p["recompute"] != "none":
        parts.append({"full": "ckpt", "modules": "modules", "op": "sac", "selective": "core", "reentrant": "reentrant"}[p["recompute"]])
    reshard = p.get("fsdp", {}).get("reshard_after_forward", True)
    if reshard is not True:
        parts.append("reshard%d" % reshard if reshard else "keep")
    parts += ["last kept"] if p.get("fsdp", {}).get("keeps_last_unit") else []
    if not p.get("sync_every_micro_step", True):
        parts.append("nosync")
    if p.get("clip"):
        parts.append("clip")
    if p.get("ddp", {}).get("gradient_as_bucket_view"):
        parts.append("view")
    parts += [p["ddp"]["comm_hook"]] if p.get("ddp", {}).get("comm_hook") else []
    parts += ["%s=%s" % x for x in p.get("ddp", {}).get("PowerSGDState", {}).items() if x[0] != "start_powerSGD_iter"]
    parts += [p[key] for key in ("loss", "optimizer_form") if key in p] + [part for part, on in sorted(p.get("liger", {}).items()) if on]
    if dict(p.get("fsdp", {}), **p.get("ddp", {})).get("model_dtype"):
        parts.append("pure")
    parts += [] if p.get("ddp", {}).get("wrapped", True) else ["in backward" if p["ddp"].get("optimizer_in_backward") else "alone"]
    if gpu_of(p) != "h100":
        parts.append(gpu_of(p))
    return " ".join(parts)
