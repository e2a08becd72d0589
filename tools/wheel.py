#!/usr/bin/env python3
"""tools/wheel.py BUILD VERSION -- BUILD/wheel/dpxplan-VERSION-py3-none-PLATFORM.whl, by `make wheel`.

The wheel has dpx.py as a typed package, the recorder, and a folder dpx_native with libdpx.so.0, dpxplan and the libraries that both need, but for the C
library: they find each other by $ORIGIN (patchelf).  The platform is manylinux with the newest version of glibc that any of them asks
for (PEP 600).  The standard library alone, patchelf, strip and objdump.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

NAME = "dpxplan"
#: Part of every manylinux system (PEP 600 and 513).
OF_THE_SYSTEM = re.compile(r"^(libc|libm|libdl|librt|libpthread|ld-linux.*)\.so")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(path):
    """The libraries that it loads and the system does not have: {name: path}."""
    found = dict(re.findall(r"^\s*(\S+) => (\S+)", output("ldd", str(path)), re.M))
    return {name: Path(where) for name, where in found.items() if not OF_THE_SYSTEM.match(name)}


def gather(build, folder):
    """dpxplan, libdpx and what they load, stripped, in one folder."""
    folder.mkdir(parents=True)
    files = {name: build / name for name in ("dpxplan", "libdpx.so.0")}
    for path in list(files.values()):
        files.update(needed(path))
    for name, path in files.items():
        shutil.copy(path.resolve(), folder / name)
        os.chmod(folder / name, 0o755)
        subprocess.run(["strip", "--strip-unneeded", str(folder / name)], check=True)
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", str(folder / name)], check=True)
    return sorted(files)


def glibc(paths):
    """(2, 34): the newest symbol's version that any of them asks of the C library."""
    asked = re.findall(r"GLIBC_(\d+)\.(\d+)", "".join(output("objdump", "-T", str(path)) for path in paths))
    return max((int(major), int(minor)) for major, minor in asked)


def metadata(version, readme):
    return f"""Metadata-Version: 2.1
Name: {NAME}
Version: {version}
Summary: Memory, collectives and time of a training on many GPUs, before one is booked
License: MIT
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""


def contents(root, folder, native, version, tag):
    """{name in the wheel: bytes}, but for RECORD."""
    info = f"{NAME}-{version}.dist-info"
    files = {"dpx/__init__.py": (root / "lib/dpx.py").read_bytes()}
    for path in sorted((root / "lib/dpx_record").glob("*.py")):
        files["dpx/answers.py" if path.name == "answers.py" else f"dpx_record/{path.name}"] = path.read_bytes()
    files["dpx/py.typed"] = b""                                     # PEP 561: its annotations are for checkers
    for path in sorted((root / "lib/dpx_native").glob("**/*.py")):
        files[str(path.relative_to(root / "lib"))] = path.read_bytes()
    for name in native:
        files[f"dpx_native/{name}"] = (folder / name).read_bytes()
    files[f"{info}/METADATA"] = metadata(version, (root / "README.md").read_text()).encode()
    files[f"{info}/LICENSE"] = (root / "LICENSE").read_bytes()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: dpx\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\ndpxplan = dpx_native:dpxplan\ndpx = dpx_native:dpx\n"
    return info, files


def write(path, info, files):
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            runs = name == "dpx_native/dpxplan" or ".so" in name
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            wheel.writestr(entry, data)
        entry = zipfile.ZipInfo(f"{info}/RECORD", (2020, 1, 1, 0, 0, 0))
        wheel.writestr(entry, "\n".join(record + [f"{info}/RECORD,,", ""]))


def main():
    build, version = Path(sys.argv[1]), sys.argv[2]
    root = Path(__file__).resolve().parent.parent
    if not shutil.which("patchelf"):
        sys.exit("wheel.py: patchelf is not there")
    out = build / "wheel"
    shutil.rmtree(out, ignore_errors=True)
    folder = out / "native"
    native = gather(build, folder)
    major, minor = glibc(folder / name for name in native)
    tag = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"
    path = out / f"{NAME}-{version}-{tag}.whl"
    write(path, *contents(root, folder, native, version, tag))
    shutil.rmtree(folder)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


main()
