"""What a recording found, as a document and as lines that a person can check."""
import collections
import math
import os
import resource


def program(precision, recompute, stage3, **more):
    return {"precision": precision, "recompute": recompute, "stage3": bool(stage3), **more}


def of(o, doc, variants, failed, seconds):
    """Of the file that was written for the options `o`; `failed`: programs that could not be recorded, with "why"."""
    x, v = variants[0].first, variants[0]
    count = lambda tensors: sum(math.prod(t[1]) for t in tensors)
    return {
        "file": o.output, "bytes": os.path.getsize(o.output), "seconds": seconds,
        "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "module": {"class": type(x.model).__name__, "parameters": count(doc["tensors"]), "trained": count(t for t in doc["tensors"] if len(t) == 2),
                   "tensors": len(doc["tensors"]), "shared": [name for name, _ in doc.get("shared", [])], "unused": doc.get("unused", []),
                   "largest": [{"name": t[0], "shape": t[1]} for t in sorted(doc["tensors"], key=lambda t: -math.prod(t[1]))[:3]]},
        "units": {"count": len(doc["units"]), "classes": dict(collections.Counter(u[1] for u in doc["units"])),
                  "programs": len(v.program["pieces"]) - 2, "first": doc["units"][0][0]},
        "input_bytes": [str(text) for text in v.writer.inputs],
        "operators": {"count": len(x.r.ops), "classes": dict(collections.Counter(op["cls"] for op in x.r.ops).most_common())},
        "recorded": [program(p["precision"], p["recompute"], "views" in p) for p in doc["programs"]],
        "not_recorded": failed,
        "batches": o.batch, "sizes": o.size,
        "numbers": {"count": len(v.fitted.of), "polynomials": len(v.fitted.polynomials), "degree": list(v.fitted.degree())},
        "checked": [{"batch": p[0], "size": p[1]} for p in v.checked],
        "takes": {"batch": doc.get("batch"), "size": doc["size"]},
        "not_known": [{"operator": name, "where": where, "times": n} for (name, where), n in
                      sorted({k: c for w in variants for k, c in w.first.r.unclassed.items()}.items())],
        "assumed": [{"said": said, "where": where, "times": n} for (said, where), n in x.r.assumed.items()],
        "values_read": [{"where": where, "times": n} for where, n in x.r.values_read.items()],
        "notes": sorted({n for w in variants for n in w.writer.chain.notes}),
    }


def bytes_text(n):
    return "%.2f GiB" % (n / 2**30) if n >= 2**30 else "%.1f MiB" % (n / 2**20) if n >= 2**20 else "%d bytes" % n


def program_text(p):
    return p["precision"] + {"none": "", "full": ", recomputed", "op": ", recomputed by operator"}[p["recompute"]] + (", stage 3" if p["stage3"] else "")


def sizes_text(size):
    if "only" in size:
        return "%d alone" % size["only"]
    return ("any" if size["step"] == 1 else "multiples of %d" % size["step"]) + (" up to %d" % size["most"] if "most" in size else "")


def lines(f):
    """Ten, and what it could not do."""
    m, u, n, listed = f["module"], f["units"], f["numbers"], lambda numbers: ",".join(map(str, numbers))
    yield "module      %s, %d parameters in %d tensors%s%s" % (
        m["class"], m["parameters"], m["tensors"], "" if m["trained"] == m["parameters"] else ", %d of them train" % m["trained"],
        ", %d shared (%s)" % (len(m["shared"]), m["shared"][0]) if m["shared"] else "")
    yield "units       %d: %s, of %d different programs; first %s" % (
        u["count"], ", ".join("%d %s" % (times, c) for c, times in u["classes"].items()), u["programs"], u["first"])
    yield "inputs      %s" % ", ".join("%s bytes" % text for text in f["input_bytes"])
    yield "largest     %s" % ", ".join("%s %s" % (t["name"], "x".join(map(str, t["shape"]))) for t in m["largest"])
    yield "operators   %d of a step: %s" % (f["operators"]["count"], ", ".join("%d %s" % (times, c) for c, times in f["operators"]["classes"].items()))
    yield "recorded    %s, at batch %s and size %s" % ("; ".join(map(program_text, f["recorded"])), listed(f["batches"]), listed(f["sizes"]))
    yield "numbers     %d, in %d polynomials of degree %d in the batch and %d in the size" % (n["count"], n["polynomials"], *n["degree"])
    yield "checked     %s" % (", ".join("batch %d and size %d" % (c["batch"], c["size"]) for c in f["checked"]) + ": no number differs"
                              if f["checked"] else "nothing: it was recorded at one batch and size")
    if f["takes"]["batch"]:
        yield "batch       %d alone" % f["takes"]["batch"]
    yield "sizes       %s" % sizes_text(f["takes"]["size"])
    yield "written     %s, %d bytes, in %.0f s with %s" % (f["file"], f["bytes"], f["seconds"], bytes_text(f["host_bytes"]))
    for k in f["not_known"]:
        yield "not known   %s in %s, %d times: it counts by its bytes" % (k["operator"], k["where"], k["times"])
    for k in f["assumed"]:
        yield "assumed     %s, %d times in %s: what a mask finds or a count is there depends on the data" % (k["said"], k["times"], k["where"])
    for k in f["values_read"]:
        yield "value read  %d times in %s: a number decides there what runs; it was taken as 1 (true)" % (k["times"], k["where"])
    if m["unused"]:
        yield "unused      %d parameters get no gradient: %s" % (len(m["unused"]), ", ".join(m["unused"][:3]))
    for note in f["notes"][:5]:
        yield "note        %s" % note
    for p in f["not_recorded"]:
        yield "not done    %s: %s" % (program_text(p), p["why"])
