"""A GPU that is broken, and kernels that went wrong on one that is not. Data only."""
# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import After, Refine, Text

_XID = r"NVRM: Xid \(PCI:[0-9a-fA-F:.]+(?: GPU-I:\d+)?\): "

TEXTS = (
    Text(
        name="xid_hardware",
        kind=Kind.GPU_FAULT,
        # NVIDIA's catalogue of Xid errors: ECC, row remapping, NVLink, bus, GSP, chip to chip link.
        pattern=_XID + r"(?:48|62|63|64|74|79|92|94|95|119|120|14\d|150)\b",
        example="[Wed Feb 11 02:00:13 2026] NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
        other="[Wed Feb 11 02:00:13 2026] NVRM: Xid (PCI:0000:41:00): 31, pid=1234, name=python3, MMU Fault",
        source="NVIDIA Xid errors; kernel log",
        details=(r"fromGPU(?P<gpu>\d+)GSP",),
    ),
    Text(
        name="xid_application",
        kind=Kind.CUDA_ERROR,
        pattern=_XID + r"(?:8|13|31|32|43|68|69|109)\b",
        example="NVRM: Xid (PCI:0000:41:00): 31, pid=1234, name=python3, Ch 00000008, intr 00000000. MMU Fault",
        other="NVRM: Xid (PCI:0000:41:00): 45, pid=7124, name=python3, Ch 00000008, intr 00000000.",
        source="NVIDIA Xid errors; kernel log",
    ),
    Text(
        name="xid_consequence",
        kind=Kind.CUDA_ERROR,
        pattern=_XID + r"\d+",
        example="NVRM: Xid (PCI:0000:41:00): 45, pid=7124, name=python3, Ch 00000008, intr 00000000.",
        other="NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.126.09",
        source="NVIDIA Xid errors; kernel log",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="uncorrectable",
        kind=Kind.GPU_FAULT,
        pattern=r"uncorrectable ECC error|uncorrectable NVLink error|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable|CUDA_ERROR_NVLINK_UNCORRECTABLE|hipErrorECCNotCorrectable|Invalid access of peer GPU memory over nvlink or a hardware error|cudaErrorContained\b|CUDA_ERROR_CONTAINED\b|\b(?:UCE|HBM MULTI BIT ECC|SUSPECT MEM|HCCS LINK) ERROR\b",
        example="[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
        other="| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        source="CUDA runtime error strings; torch_npu NPUQueue.cpp",
    ),
    Text(
        name="gpu_lost",
        kind=Kind.GPU_FAULT,
        pattern=r"GPU is lost|[Uu]nable to determine the device handle for (?:GPU|gpu)|fallen off the bus|NVML_?Error_GpuIsLost|GPU (?:reset required|requires? (?:a )?reset)|CUDA_ERROR_DEVICE_LOST|_ERROR_DEVICE_LOST\b|RmInitAdapter failed|NVML_ERROR_GPU_IS_LOST|Detected Critical Xid",
        example="Unable to determine the device handle for GPU0000:61:00.0: Unknown Error",
        other="lost connection to GPU metrics exporter",
        source="nvidia-smi; NVRM; NVML",
    ),
    Text(
        name="rocm_hardware",
        kind=Kind.GPU_FAULT,
        pattern=r"HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception|HW Exception by GPU node-\d+|amdgpu[^\n]*GPU reset begin|amdgpu[^\n]*(?:uncorrectable|ring \S+ timeout)",
        example=":0:rocdevice.cpp:2918: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
        other="HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.",
        source="ROCm runtime; amdgpu kernel log",
    ),
    Text(
        name="fabric_manager",
        kind=Kind.GPU_FAULT,
        pattern=r"nvidia-fabricmanager[^\n]*(?:fatal|non-recoverable)|NVSwitch[^\n]*(?:fatal error|non-?fatal SXid)|SXid \(PCI:[0-9a-f:.]+\): \d+, Fatal",
        example="nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        other="nvidia-fabricmanager: Successfully configured all the available GPUs and NVSwitches",
        source="NVSwitch kernel log",
    ),
    Text(
        name="device_wait",
        kind=Kind.NONE,
        pattern=r"DeepEP [^\n]{0,60}timeout",
        example="DeepEP timeout check failed: rank = 3, thread = 0, value = 1024)",
        other="DeepEP buffers of 2 GiB for 8 ranks",
        source="DeepEP csrc/kernels: printed before the kernel traps",
        note=True,
    ),
    Text(
        name="launch_failure",
        kind=Kind.CUDA_ERROR,
        pattern=r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure|hipErrorLaunchFailure",
        example="[rank2]: RuntimeError: CUDA error: unspecified launch failure",
        other="[rank2]: RuntimeError: CUDA error: the launch timed out and was terminated",
        source="CUDA runtime and driver error strings",
        # A kernel that waited for another rank in vain ends itself like this.
        after=(After("device_wait", 400, Kind.COLLECTIVE_TIMEOUT, Weight.AFTERMATH),),
    ),
    Text(
        name="kernel_fault",
        kind=Kind.CUDA_ERROR,
        pattern=(
            r"an illegal memory access was encountered|PU->[CG]PU Memcpy failed|device-side assert triggered|(?:CUDA|HIP|hip|cuda|Cuda)[^\n]{0,40}: misaligned address"
            r"|the launch timed out and was terminated|an illegal instruction was encountered"
            r"|invalid program counter|CUDA error: hardware stack error|operation not supported on global/shared address space"
            r"|(?:CUDA|HIP) error: unknown error|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_TIMEOUT|ASSERT|MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION|INVALID_PC|UNKNOWN)"
            r"|cudaErrorIllegalAddress|cudaErrorAssert\b|hipErrorIllegalAddress"
        ),
        example="[rank2]: RuntimeError: CUDA error: an illegal memory access was encountered",
        other="CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        source="CUDA runtime and driver error strings",
    ),
    Text(
        name="kernel_assert",
        kind=Kind.CUDA_ERROR,
        pattern=r"\.(?:cu|cuh|hip|h|py):\d+: [^\n]*block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion",
        example="/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [134,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        other="launching with block: [128,1,1], thread: [32,1,1]",
        source="CUDA device assert",
    ),
    Text(
        name="npu_fault",
        kind=Kind.CUDA_ERROR,
        pattern=r"NPU (?:function )?error: [^\n]*, error code is \d+|exception of ai(?:core|vec) error|ai(?:core|vec) error exception|The (?:aicore|vector core|aicpu) execution is abnormal",
        example="RuntimeError: operator():compiler_depend.ts:25 NPU function error: AclrtSynchronizeStreamWithTimeout(copy_stream), error code is 507035",
        other="[W NPUStream.cpp:365] Warning: NPU warning, error code is 107020[Error]: .",
        source="torch_npu core/npu/NPUException.h; CANN runtime",
        lines=6,
        until=r"EZ\d{4}|EL\d{4}|(?:UCE|ECC|MEM|LINK)ERROR|abnormal",
        refine=(
            Refine(r"errorcodeis50705[34]|(?:UCE|HBMMULTIBITECC|SUSPECTMEM|HCCSLINK)ERROR", Kind.GPU_FAULT),
            Refine(r"errorcodeis207001|EL0004|NPUoutofmemory", Kind.GPU_OOM),
        ),
    ),
    Text(
        name="rocm_page_fault",
        kind=Kind.CUDA_ERROR,
        pattern=r"Memory access fault by GPU node-\d+|HSA_STATUS_ERROR_(?:MEMORY_APERTURE_VIOLATION|ILLEGAL_INSTRUCTION|MEMORY_FAULT)",
        example="Memory access fault by GPU node-3 (Agent handle: 0x55d1) on address 0x7f1200000000. Reason: Unknown.",
        other="Memory access pattern tuned for GPU node-3",
        source="ROCm runtime",
    ),
    Text(
        name="library_failed",
        kind=Kind.CUDA_ERROR,
        pattern=r"DNN library initialization failed|CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|MAPPING_ERROR|NOT_SUPPORTED|ARCH_MISMATCH)|unable to find an engine to execute this computation|cuDNN [Ff]rontend error: |CUDNN_STATUS_(?:NOT_SUPPORTED\w*|ARCH_MISMATCH\w*|EXECUTION_FAILED\w*|INTERNAL_ERROR\w*|MAPPING_ERROR|BAD_PARAM\w*)|CUSOLVER_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|CUFFT_(?:EXEC_FAILED|INTERNAL_ERROR)|miopenStatus(?:InternalError|UnknownError)|HIPBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|\bcu(?:BLAS|DNN) Error: ",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        other="CUBLAS_STATUS_SUCCESS",
        source="cuBLAS, cuDNN, cuSOLVER, cuFFT, MIOpen status names",
    ),
    Text(
        name="triton_error",
        kind=Kind.CUDA_ERROR,
        pattern=r"Triton Error \[(?:CUDA|HIP)\]: [a-z]",
        example="RuntimeError: Triton Error [CUDA]: invalid argument",
        other="Triton kernels compiled in 4.2 s",
        source="triton launcher",
    ),
    Text(
        name="hip_build",
        kind=Kind.ENV_ERROR,
        pattern=r"HIP error: (?:invalid device function|invalid kernel file|shared object initialization failed)|hipErrorNoBinaryForGpu",
        example="RuntimeError: HIP error: invalid device function",
        other="RuntimeError: HIP error: invalid argument",
        source="HIP runtime: a build for another GPU",
    ),
    Text(
        name="cuda_error_other",
        kind=Kind.CUDA_ERROR,
        pattern=r"(?:RuntimeError|AcceleratorError|CUDARuntimeError): (?:CUDA|HIP|XPU) (?:driver )?error: |\bcuda runtime error \(\d+\) ?: |CUDA error \([^)\n]+:\d+\): |\(External\) CU\w+ error\(\d+\)",
        example="torch.AcceleratorError: CUDA error: invalid resource handle",
        other="CUDA error codes are documented at https://docs.nvidia.com",
        source="c10/cuda/CUDAException.cpp; THC/THCGeneral.cpp; flash-attention; paddle",
        weight=Weight.GENERIC,
    ),
)
