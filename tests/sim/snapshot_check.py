"""snapshot_check.py SNAPSHOT EVAL.json -- is it a memory snapshot that could be PyTorch's?  Prints what is wrong.

Identities: blocks fill their segments; what the step allocates lies in a segment and beside no other block; what it frees was there; what
is held behind the last event is what the segments say; the most that is held, in multiples of 512 bytes, is the allocator's peak of the
evaluation, less what blocks have beyond their requests: at most 1 MiB each, as a larger rest would be cut off.  Opcodes are those that pytorch.org/memory_viz reads.  Where torch is there, its own torch.cuda._memory_viz draws it."""
import json
import pickle
import pickletools
import sys

READ = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BINUNICODE", "LONG_BINPUT", "LONG_BINGET", "BININT", "LONG1",
        "NEWFALSE", "STOP"}


def rounded(size):
    return -(-size // 512) * 512


def opcodes(data):
    used = {op.name for op, _, _ in pickletools.genops(data)}
    return [f"opcode {name}" for name in used - READ]


def segments(d):
    held, wrong = {}, []
    for s in d["segments"]:
        at = s["address"]
        for b in s["blocks"]:
            if b["address"] != at or b["requested_size"] > b["size"]:
                wrong.append(f"block {b}")
            if b["state"] != "inactive":
                held[at] = b["requested_size"]
            at += b["size"]
        if at != s["address"] + s["total_size"]:
            wrong.append(f"segment at {s['address']}: its blocks do not fill it")
    return held, wrong


def lies_alone(held, spans, addr, size):
    for a, n in held.items():
        if a < addr + size and addr < a + n:
            return False
    return any(a <= addr and addr + size <= a + n for a, n in spans.items())


def replay(d, final, wrong):
    """Backwards from the end to what is there at the beginning, then forwards."""
    events = d["device_traces"][0]
    spans = {s["address"]: s["total_size"] for s in d["segments"]}
    held = dict(final)
    for e in reversed(events):
        if e["action"] == "alloc":
            if held.pop(e["addr"], None) != e["size"]:
                wrong.append(f"not held behind its allocation: {e}")
        elif e["action"] == "free_completed":
            held[e["addr"]] = e["size"]
        elif e["action"] == "segment_alloc":
            spans.pop(e["addr"])
        elif e["action"] == "segment_free":
            spans[e["addr"]] = e["size"]
    live = sum(rounded(n) for n in held.values())
    most = (live, len(held))
    for i, e in enumerate(events):
        if e["action"] == "alloc":
            if i % 17 == 0 and not lies_alone(held, spans, e["addr"], e["size"]):
                wrong.append(f"lies in no segment, or in another block: {e}")
            held[e["addr"]] = e["size"]
            live += rounded(e["size"])
            most = max(most, (live, len(held)))
        elif e["action"] == "free_completed":
            if held.pop(e["addr"], None) is None:
                wrong.append(f"was not there: {e}")
            live -= rounded(e["size"])
        elif e["action"] == "segment_alloc":
            spans[e["addr"]] = e["size"]
        elif e["action"] == "segment_free":
            spans.pop(e["addr"])
    if held != final:
        wrong.append("what is held at the end is not what the segments hold")
    return most


def frames(d):
    said = [e["frames"] for e in d["device_traces"][0]] + [b["frames"] for s in d["segments"] for b in s["blocks"] if b["state"] != "inactive"]
    return [] if all(f and f[0]["name"] for f in said) else ["an event or a block without a frame"]


def by_torch(d):
    try:
        from torch.cuda import _memory_viz as viz
    except ImportError:
        return "skip"
    viz.trace(d)
    viz.segsum(d)
    viz.segments(d, format_flamegraph=lambda text: text)
    return "drawn" if "<script" in viz.trace_plot(d) and "<script" in viz.segment_plot(d) else "not drawn"


def main(path, evaluated):
    data = open(path, "rb").read()
    d = pickle.loads(data)
    final, wrong = segments(d)
    wrong += opcodes(data) + frames(d)
    most, blocks = replay(d, final, wrong)
    memory = json.load(open(evaluated))["memory"]
    ends = d["device_traces"][0][-1]["action"] == "oom"
    if not ends and not 0 <= memory["active_peak_bytes"] - most <= blocks << 20:
        wrong.append(f"holds {most} bytes at most, eval says {memory['active_peak_bytes']}")
    drawn = by_torch(d)
    if drawn == "not drawn":
        wrong.append("torch.cuda._memory_viz draws nothing")
    print("\n".join(wrong[:8] or [drawn + (" oom" if ends else "")]))


main(*sys.argv[1:])
