"""CUDA tensors without a GPU.

Autograd's engine asks CUDA for streams of the fake tensors' device, and scaled_dot_product_attention asks for the device's
properties to choose its kernel.  A library with functions of these names is compiled and preloaded, and the script starts anew.
`gpu_major()` is 0 but while attention chooses: then it is the compute capability that the recording is for."""
import atexit
import contextlib
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from dpx_record.outcome import Refused

CODE = r"""
#include <driver_types.h>
int dpx_major, dpx_minor;
static struct cudaDeviceProp properties;
struct cudaDeviceProp *_ZN2at4cuda26getCurrentDevicePropertiesEv(void)
{ properties.major = dpx_major; properties.minor = dpx_minor; return &properties; }
signed char _ZN3c104cuda12device_countEv(void) { return dpx_major ? 1 : 0; }
unsigned short _ZN2at11accelerator14getAcceleratorEb(_Bool checked) { (void)checked; return 0x0100; }
_Bool _ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE(signed char t) { (void)t; return 0; }
_Bool _ZN4c10d7Reducer28should_collect_runtime_statsEv(void *self) { (void)self; return 0; }
void _ZN4c10d7Reducer19sync_bucket_indicesERSt6vectorIS1_ImSaImEESaIS3_EE(void *self, void *v) { (void)self; (void)v; }
"""


def headers():
    """Where the CUDA runtime's are that PyTorch brings: in this environment, or one that it is layered on."""
    spec = importlib.util.find_spec("nvidia")
    places = [*(spec.submodule_search_locations if spec else ()), os.path.join(sysconfig.get_paths()["purelib"], "nvidia")]
    folders = [os.path.join(place, part, "include") for place in places for part in ("cu13", "cuda_runtime")]
    return next((f for f in folders if os.path.exists(os.path.join(f, "driver_types.h"))), folders[-2])


HEADERS = headers()


def preload():
    """Goes on behind this in a process that has the functions above."""
    if os.environ.get("DPX_SHIM"):
        if os.environ.get("DPX_SHIM_OWNER") == str(os.getpid()):   # exec keeps the number; a child of this process has another
            atexit.register(shutil.rmtree, os.path.dirname(os.environ["DPX_SHIM"]), True)
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Refused("it needs a C compiler (cc), to stand in for the CUDA driver: install gcc", 1)
    if not os.path.exists(os.path.join(HEADERS, "driver_types.h")):
        raise Refused("%s has no driver_types.h: it needs PyTorch's CUDA build, as `pip install torch` has it on Linux" % HEADERS, 1)
    folder = tempfile.mkdtemp(prefix="dpx-record-")
    source, library = os.path.join(folder, "shim.c"), os.path.join(folder, "shim.so")
    with open(source, "w") as f:
        f.write(CODE)
    made = subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-I" + HEADERS], stderr=subprocess.PIPE, text=True)
    if made.returncode:
        raise Refused("%s cannot build what stands in for the CUDA driver: %s" % (compiler, " ".join(made.stderr.split())[:300]), 1)
    env = dict(os.environ, DPX_SHIM=library, DPX_SHIM_OWNER=str(os.getpid()), LD_PRELOAD=library, CUDA_VISIBLE_DEVICES="",
               TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")
    for key in ("OMP_NUM_THREADS", "HF_HUB_OFFLINE"):
        env.setdefault(key, "1")
    os.execvpe(sys.executable, [sys.executable] + sys.orig_argv[1:], env)


def compiled():
    """The two variables of the library that are the GPU's capability."""
    library = ctypes.CDLL(os.environ["DPX_SHIM"])
    return ctypes.c_int.in_dll(library, "dpx_major"), ctypes.c_int.in_dll(library, "dpx_minor")


@contextlib.contextmanager
def attention_of(capability):
    """PyTorch's own choice among the kernels of attention, for a GPU of this compute capability ("9.0")."""
    import torch
    functional, major_minor = torch.nn.functional, [int(x) for x in capability.split(".")]
    real, (major, minor) = functional.scaled_dot_product_attention, compiled()
    minor.value = major_minor[1]

    def chosen(*args, **kwargs):
        major.value = major_minor[0]
        try:
            return real(*args, **kwargs)
        finally:
            major.value = 0
    functional.scaled_dot_product_attention = chosen
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = real


def to_where_it_is_not(real):
    """Module.to() that leaves alone what is there already: parameters that are fake it would exchange, for it cannot set their data."""
    import torch

    def to(module, *args, **kwargs):
        device, dtype, _, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        there = lambda t: (device is None or t.device.type == device.type) and (dtype is None or t.dtype == dtype or not t.is_floating_point())
        held = list(module.parameters()) + list(module.buffers())
        return module if memory_format is None and held and all(map(there, held)) else real(module, *args, **kwargs)
    return to


def of_numbers(real):
    """torch.tensor() of a list of tensors reads their numbers itself, and asks the GPU for it: they are read one by one."""
    import torch

    def tensor(data, *args, **kwargs):
        if isinstance(data, (list, tuple)) and any(isinstance(t, torch.Tensor) and t.dim() == 0 for t in data):
            data = [t.item() if isinstance(t, torch.Tensor) and t.dim() == 0 else t for t in data]
        return real(data, *args, **kwargs)
    return tensor


def without_gpu():
    """What asks for a GPU before it does what needs none, or reads values to choose a way."""
    import torch
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *a, **k: True
    torch.cuda._lazy_init = lambda: None        # torch.tensor(5, device="cuda") within a backward
    torch.tensor = of_numbers(torch.tensor)
    torch.nn.Module.to = to_where_it_is_not(torch.nn.Module.to)
    fake = torch._subclasses.fake_tensor.FakeTensor
    fake.__format__ = lambda t, spec: format(t.item() if t.dim() == 0 else repr(t), spec)      # as a Tensor's own, which sees to Tensors alone
    try:
        import transformers.masking_utils as masks
        masks.find_packed_sequence_indices = lambda *a, **k: None       # whether sequences are packed: ours are not
    except ImportError:
        pass
    try:
        import transformers.integrations.moe as moe
        moe._can_use_grouped_mm = lambda *a: True
    except ImportError:
        pass
