"""python -m dpx.scalars FOLDER [--project NAME] [--name RUN] -- what `dpxrun --tensorboard FOLDER` wrote, to Weights & Biases.

Needs the package wandb; where it is offline (WANDB_MODE=offline), `wandb sync` sends the run later.  steps() reads the files without it.
"""

import argparse
import struct
import sys
from pathlib import Path


def _fields(data):
    """(number, value) of each field of a protocol buffer's message: an int of a varint, else bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = varint() if kind == 2 else 8 if kind == 1 else 4
        yield key >> 3, data[at:at + size]
        at += size


def _records(data):
    """The data of each whole record (TFRecord: length, its CRC, data, their CRC); a run that still writes may end in the midst of one."""
    at = 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        if at + 16 + size > len(data):
            return
        yield data[at + 12:at + 12 + size]
        at += 16 + size


def steps(folder):
    """{step: {tag: value}} of all files of the folder, in order of steps; of a step that was made twice the later one's."""
    found = {}
    for path in sorted(Path(folder).glob("events.out.tfevents.*")):
        for record in _records(path.read_bytes()):
            event = dict(_fields(record))
            if 5 in event:
                value = dict(_fields(dict(_fields(event[5]))[1]))
                found.setdefault(event.get(2, 0), {})[value[1].decode()] = struct.unpack("<f", value[2])[0]
    return dict(sorted(found.items()))


def to_wandb(folder, **init):
    """One run of wandb with these steps; `init` is wandb.init()'s.  Its id."""
    import wandb

    scalars = steps(folder)
    if not scalars:
        raise ValueError(f"{folder}: no steps: write them with dpxrun --tensorboard {folder}")
    run = wandb.init(**init)
    for step, values in scalars.items():
        run.log(values, step=step)
    run.finish()
    return run.id


def main(arguments=None):
    words = argparse.ArgumentParser(prog="python -m dpx.scalars", description="What dpxrun --tensorboard wrote, to Weights & Biases.")
    words.add_argument("folder")
    words.add_argument("--project", default="dpx")
    words.add_argument("--name", help="of the run")
    given = words.parse_args(arguments)
    try:
        print(to_wandb(given.folder, project=given.project, name=given.name))
    except (ImportError, ValueError) as e:
        sys.exit(f"dpx: {e}")


if __name__ == "__main__":
    main()
