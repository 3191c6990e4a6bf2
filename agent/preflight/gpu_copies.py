"""A program that copies memory between GPUs and compares it: python -m agent.preflight.gpu_copies NUMBER

It is a process of its own, because a CUDA call may hang and a failed one makes all later ones fail. The GPUs are those
of CUDA_VISIBLE_DEVICES, NUMBER of them. It prints one line before each step, and one for each failure:

    try 0 3              the copy from the first GPU to the fourth begins
    failed 0 3 REASON    it failed, or brought other bytes
    unable REASON        there is no CUDA here that could copy
    done

GPUs are copied to themselves first (try 0 0), so that one that fails alone is found before it is paired. Only the
driver's library is used (libcuda.so.1), from the loader's path: NVIDIA's container runtime puts it there for
containers with the capability `compute`.
"""

import ctypes
import sys
from typing import Any

LIBRARY = "libcuda.so.1"
BYTES = 8 << 20
PATTERN = 0x5A0F0000  # with the GPU's number in the low bits
NOT_READY = 802  # CUDA_ERROR_SYSTEM_NOT_READY: the NVLink fabric is not up


class CudaError(Exception):
    def __init__(self, code: int, call: str, name: str) -> None:
        super().__init__(f"{call}: {name or f'error {code}'}")
        self.code = code


class Cuda:
    """The calls that are needed. Raises OSError without the library, CudaError from every call."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self("cuInit", 0)

    def __call__(self, call: str, *arguments: Any) -> None:
        code = getattr(self._library, call)(*arguments)
        if code:
            raise CudaError(code, call, self._name(code))

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(text)) or not text.value:
            return ""
        return text.value.decode("ascii", "replace")

    def count(self) -> int:
        found = ctypes.c_int()
        self("cuDeviceGetCount", ctypes.byref(found))
        return found.value


class Buffer:
    """Memory on one GPU that is filled with the GPU's number, and memory to copy into."""

    def __init__(self, cuda: Cuda, number: int) -> None:
        self._cuda, self.number = cuda, number
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        cuda("cuDeviceGet", ctypes.byref(device), number)
        cuda("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        cuda("cuCtxSetCurrent", self.context)
        self.source, self.target = ctypes.c_uint64(), ctypes.c_uint64()
        for pointer in (self.source, self.target):
            cuda("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(BYTES))
        words = ctypes.c_size_t(BYTES // 4)
        cuda("cuMemsetD32_v2", self.source, ctypes.c_uint(PATTERN + number), words)
        cuda("cuCtxSynchronize")

    def receive(self, other: "Buffer") -> bool:
        """Copies from the other GPU; returns whether all bytes arrived."""
        size, host = ctypes.c_size_t(BYTES), ctypes.create_string_buffer(BYTES)
        self._cuda("cuCtxSetCurrent", self.context)
        self._cuda("cuMemsetD32_v2", self.target, ctypes.c_uint(0), ctypes.c_size_t(BYTES // 4))
        self._cuda("cuMemcpyPeer", self.target, self.context, other.source, other.context, size)
        self._cuda("cuCtxSynchronize")
        self._cuda("cuMemcpyDtoH_v2", host, self.target, size)
        expected = (PATTERN + other.number).to_bytes(4, sys.byteorder) * (BYTES // 4)
        return host.raw == expected


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(number: int) -> None:
    try:
        cuda = Cuda()
        seen = cuda.count()
    except (OSError, AttributeError, CudaError) as error:
        if isinstance(error, CudaError) and error.code == NOT_READY:
            for index in range(number):
                say("failed", index, index, error)
        else:
            say("unable", error)
        return
    for index in range(seen, number):  # the driver ends the list at a GPU that it does not know
        say("failed", index, index, "CUDA does not list the GPU")
    buffers: dict[int, Buffer] = {}
    for index in range(min(seen, number)):
        say("try", index, index)
        try:
            buffers[index] = Buffer(cuda, index)
        except CudaError as error:
            say("failed", index, index, error)
    order = [(index, index) for index in buffers]
    order += [(a, b) for a in buffers for b in buffers if a != b]
    for a, b in order:
        say("try", a, b)
        try:
            if not buffers[b].receive(buffers[a]):
                say("failed", a, b, "a copy brought other bytes")
        except CudaError as error:
            say("failed", a, b, error)
    say("done")


if __name__ == "__main__":
    main(int(sys.argv[1]))
