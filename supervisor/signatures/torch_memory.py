"""GPU out of memory as PyTorch prints it, 0.4 to today, on CUDA, ROCm and XPU. Data only."""

# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import SIZE, After, Refine, Text

_ALLOCATOR = "c10/cuda/CUDACachingAllocator.cpp"

_NEW = (
    rf"Triedtoallocate(?P<tried>{SIZE})",
    rf"GPU(?P<gpu>\d+)hasatotalcapac?i?ty?of(?P<total>{SIZE})",
    rf"ofwhich(?P<free>{SIZE})isfree",
    rf"thisprocesshas(?P<in_use>{SIZE})memoryinuse",
    rf"and(?P<reserved>{SIZE})isreservedbyPyTorchbutunallocated",
    rf"Process(?P<other_pid>\d+)has(?P<other_size>{SIZE})memoryinuse",
    rf"\([A-Z]{{2,5}}(?P<gpu>\d+);(?P<total>{SIZE})totalcapacity",
    rf";(?P<free>{SIZE})free;",
    rf"\(MPSallocated:(?P<in_use>{SIZE}),.*maxallowed:(?P<total>{SIZE})\)",
)

TEXTS = (
    Text(
        name="torch_oom",
        kind=Kind.GPU_OOM,
        pattern=r"(?:CUDA|HIP|XPU|NPU) out of memory\.? +Tried\b|MPS backend out of memory \([^\n]{0,120}Tried\b|Tried to allocate [\d.]+ ?(?:[KMGT]iB|bytes)[.( ]",
        example=(
            "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.74 GiB. GPU 5 has a total "
            "capacity of 94.97 GiB of which 4.57 GiB is free. Including non-PyTorch memory, this process has 90.38 "
            "GiB memory in use. Of the allocated memory 83.92 GiB is allocated by PyTorch, and 1.66 GiB is reserved "
            "by PyTorch but unallocated."
        ),
        other="|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |",
        source=_ALLOCATOR,
        details=_NEW,
        lines=8,
        until=r"butunallocated|reservedintotalbyPyTorch|cached\)|morethan1EB|(?:private|shared)pool",
        # An underflowed size is not a full card: the reason stands above it.
        refine=(Refine(r"morethan1EB", Kind.CUDA_ERROR, Weight.AFTERMATH),),
    ),
    Text(
        name="torch_oom_async",
        kind=Kind.GPU_OOM,
        pattern=r"Allocation on device(?: (?P<gpu>\d+))? would exceed allowed memory",
        example="torch.OutOfMemoryError: Allocation on device 2 would exceed allowed memory. (out of memory)",
        other="max_memory_allowed: 80 GiB on device 2",
        source="c10/cuda/CUDAMallocAsyncAllocator.cpp",
        details=(
            rf"Currentlyallocated:(?P<in_use>{SIZE})",
            rf"Requested:(?P<tried>{SIZE})",
            rf"Devicelimit:(?P<total>{SIZE})",
            rf"Free\(accordingtoCUDA\):(?P<free>{SIZE})",
        ),
        lines=8,
        until=rf"Free\(accordingtoCUDA\):{SIZE}",
    ),
    Text(
        name="cuda_call_oom",
        kind=Kind.GPU_OOM,
        pattern=r"(?:CUDA|HIP|XPU|[Cc]uda|hip) (?:(?:[Dd]river|[Rr]untime) )?(?:API )?[Ee]rror(?: \(2\)| 2)? ?: out of memory|(?:CUDA|HIP|[Cc]uda|hip) (?:failed with error 2:?|failure:|error\(2\),|error \([^)\n]+:\d+\):) out of memory|(?:GPU|gpu|CUDA|cuda)_?[Aa]ssert: out of memory",
        example="[rank6]: torch.AcceleratorError: CUDA error: out of memory",
        other="CUDA error: an illegal memory access was encountered",
        source="c10/cuda/CUDAException.cpp; THC/THCGeneral.cpp; TransformerEngine cuda_runtime.cpp; spconv tensorview",
        # cudaHostAlloc reports a lack of pinned host memory with the same words.
        after=(After("pin_memory", 20, Kind.HOST_OOM),),
    ),
    Text(
        name="mps_buffer",
        kind=Kind.GPU_OOM,
        pattern=r"RuntimeError: Invalid buffer size: (?P<tried>[\d.]+ ?[KMGT]?i?B)",
        example="RuntimeError: Invalid buffer size: 24.00 GB",
        other="ValueError: Invalid buffer size: 3 rows",
        source="aten/src/ATen/mps/MPSAllocator.mm",
    ),
    Text(
        name="thc_check_oom",
        kind=Kind.GPU_OOM,
        pattern=r"THCudaCheck FAIL [^\n]*error=2 : out of memory",
        example="THCudaCheck FAIL file=/pytorch/aten/src/THC/THCStorage.cu line=58 error=2 : out of memory",
        other="THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=663 error=11 : invalid argument",
        source="THC/THCGeneral.cpp",
    ),
    Text(
        name="cublas_alloc",
        kind=Kind.GPU_OOM,
        pattern=r"\b(?:CUBLAS|HIPBLAS|CUSOLVER|CUSPARSE|CURAND|CUFFT|HIPFFT)_(?:STATUS_)?ALLOC(?:ATION)?_FAILED|cuBLAS Error: (?:the )?resource allocation failed",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        other="RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
        source="ATen/cuda/CublasHandlePool.cpp; TransformerEngine common/util/logging.h",
    ),
    Text(
        name="cudnn_alloc",
        kind=Kind.GPU_OOM,
        pattern=r"CUDNN_STATUS_ALLOC_FAILED|MIOPEN_STATUS_ALLOC_FAILED|miopenStatusAllocFailed",
        example="RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        other="RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        source="ATen/cudnn/Exceptions.h; TensorFlow cuda_dnn.cc",
    ),
    Text(
        name="handle_not_initialized",
        kind=Kind.CUDA_ERROR,
        pattern=r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        other="RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx`",
        source="ATen/cuda/CublasHandlePool.cpp",
        # A handle that cannot be made on a card known to be full is a lack of memory, otherwise it is not known.
        after=(After("memory_low", 200, Kind.GPU_OOM),),
    ),
    Text(
        name="allocator_handles_assert",
        kind=Kind.GPU_OOM,
        pattern=r"!handles_\.at\(i\) INTERNAL ASSERT FAILED",
        example='!handles_.at(i) INTERNAL ASSERT FAILED at "/pytorch/c10/cuda/CUDACachingAllocator.cpp":387',
        other='false INTERNAL ASSERT FAILED at "/pytorch/c10/core/TensorImpl.cpp":12',
        source="c10/cuda/CUDACachingAllocator.cpp",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="pin_memory",
        kind=Kind.NONE,
        pattern=r"in pin memory thread|cudaHostAlloc|_utils/pin_memory\.py|in pin_memory\b|CachingHostAllocator",
        example="RuntimeError: Caught RuntimeError in pin memory thread for device 0.",
        other="pin_memory=True num_workers=8",
        source="torch/utils/data/_utils/pin_memory.py",
        note=True,
    ),
    Text(
        name="memory_low",
        kind=Kind.NONE,
        # Less than 0.2 GiB (or 200 MiB) free, in the run's own words: "free=0.02GiB", "free memory: 12 MiB"; or a
        # row of nvidia-smi, whose figures are compared where notes are taken.
        pattern=(
            r"\bfree(?:[ _]mem(?:ory)?)?(?:_gb|_gib)?[ =:]+(?P<free>0?\.[01]\d* ?Gi?B|1?\d?\d(?:\.\d+)? ?Mi?B)"
            r"|\b(?P<used>\d+MiB) / +(?P<total>\d+MiB) \|"
        ),
        example="[mem] rank=2 cuda:2 allocated=94.0GiB reserved=94.7GiB free=0.02GiB",
        other="gpu5 used=90.38GiB free=4.57GiB total=94.97GiB util=97%",
        source="torch.cuda.mem_get_info as people print it",
        note=True,
    ),
)

#: Texts that other messages contain: looked at after all others.
LAST = (
    Text(
        name="torch_oom_bare",
        kind=Kind.GPU_OOM,
        pattern=(
            r"(?:OutOfMemoryError|RuntimeError|AcceleratorError)\W{1,3}(?:CUDA|HIP|XPU|NPU|MUSA|MLU|MPS backend) out of memory"
            r"|(?:CUDA|HIP|XPU|NPU|MUSA|MLU) out of memory\.?\\?['\")]*\s*$"
        ),
        example="RuntimeError: CUDA out of memory.",
        other="tests/test_failures.py::test_cuda_out_of_memory PASSED",
        source=_ALLOCATOR,
    ),
    Text(
        name="torch_oom_class",
        kind=Kind.GPU_OOM,
        pattern=r"torch\.(?:cuda\.)?OutOfMemoryError(?:: ?|\(['\"]?)",
        example="torch.cuda.OutOfMemoryError: Out of memory on device 3",
        other="ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        source="torch/cuda/__init__.py",
        details=_NEW,
        lines=8,
        until=r"butunallocated|reservedintotalbyPyTorch|cached\)|wouldexceed",
    ),
    Text(
        name="cuda_oom_code",
        kind=Kind.GPU_OOM,
        pattern=r"CUDA_ERROR_OUT_OF_MEMORY|: cudaErrorMemoryAllocation|hipErrorOutOfMemory|\bcudaMalloc(?:Async|Managed|Pitch)?\b[^\n]{0,120}out of memory|Error Code 2: OutOfMemory|\b(?:VK_ERROR_OUT_OF_DEVICE_MEMORY|ErrorOutOfDeviceMemory)\b|kIOGPUCommandBufferCallbackErrorOutOfMemory",
        example="numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        other="[rank6]: Search for `cudaErrorMemoryAllocation' in https://docs.nvidia.com for more information.",
        source="CUDA driver and runtime, Vulkan and Metal error names",
        details=(
            rf"failedtoallocate{SIZE}\((?P<tried>\d+bytes)\)",
            r"failedtoallocate(?P<tried_b>\d+)bytes",
            rf"allocating(?P<tried>{SIZE})ondevice(?P<gpu>\d+):",
            r"Requestedsizewas(?P<tried>\d+bytes)",
        ),
    ),
)
