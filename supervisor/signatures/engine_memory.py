"""GPU out of memory as everything but PyTorch's allocator prints it: NCCL, vLLM, SGLang, XLA, TensorFlow, others.

Data only.
"""

# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import SIZE, Text

TEXTS = (
    Text(
        name="nccl_cuda_oom",
        kind=Kind.GPU_OOM,
        pattern=r"\[(?P<gpu>\d+)\] [^\n]*NCCL WARN Cuda failure (?:2 )?'out of memory'|Cuda failure (?:2 )?'out of memory'",
        example="gx-node-03:41237:42011 [3] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
        other="gx-node-03:12098:12141 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        source="nccl src/include/checks.h, cudawrap.h",
    ),
    Text(
        name="nccl_alloc",
        kind=Kind.GPU_OOM,
        pattern=r"(?:\[(?P<gpu>\d+)\] [^\n]*NCCL WARN )?Failed to CUDA (?:host alloc|malloc|calloc async|calloc) (?P<tried_b>\d+) bytes",
        example="gx-node-03:41237:42011 [3] include/alloc.h:520 NCCL WARN Failed to CUDA calloc async 2432 bytes",
        other="gx-node-03:41237:42011 [3] NCCL WARN Failed to open libibverbs.so",
        source="nccl src/include/alloc.h",
    ),
    Text(
        name="vllm_no_blocks",
        kind=Kind.GPU_OOM,
        pattern=r"ValueError: No available memory for the cache blocks",
        example="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        other='    raise ValueError("No available memory for the cache blocks. "',
        source="vllm v1/core/kv_cache_utils.py",
    ),
    Text(
        name="vllm_kv_needed",
        kind=Kind.GPU_OOM,
        pattern=r"\((?P<tried_gib>[\d.]+) ?GiB KV cache is needed, which is larger than the available KV cache memory \((?P<free_gib>-?[\d.]+) ?GiB",
        example=(
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (3.30 GiB)."
        ),
        other="Available KV cache memory: 3.30 GiB",
        source="vllm v1/core/kv_cache_utils.py",
    ),
    Text(
        name="vllm_seq_len",
        kind=Kind.GPU_OOM,
        pattern=r"max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in (?:the )?KV cache",
        example="ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (20384).",
        other="Maximum concurrency for 131,072 tokens per request: 1.77x",
        source="vllm worker/worker.py",
    ),
    Text(
        name="vllm_free_at_start",
        kind=Kind.GPU_OOM,
        pattern=(
            r"Free memory on device (?:cuda:(?P<gpu>\d+) )?\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup is less than"
            r"(?: desired GPU memory utilization \([\d.]+, (?P<tried_gib>[\d.]+) GiB\))?"
        ),
        example="ValueError: Free memory on device cuda:3 (24.11/94.97 GiB) on startup is less than desired GPU memory utilization (0.95, 90.22 GiB).",
        other="INFO gpu_worker.py:298] Free memory on device (90.10/94.97 GiB) on startup",
        source="vllm v1/worker/utils.py",
    ),
    Text(
        name="vllm_warmup",
        kind=Kind.GPU_OOM,
        pattern=r"out of memory occurred when warming up sampler",
        example="RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
        other="Warming up sampler with 1024 dummy requests",
        source="vllm v1/worker/gpu_model_runner.py",
    ),
    Text(
        name="vllm_profile_negative",
        kind=Kind.GPU_OOM,
        pattern=r"Error in memory profiling|Initial free memory [\d.]+ [^\n]*current free memory",
        example="AssertionError: Error in memory profiling. Initial free memory 23.1 GiB, current free memory 40.2 GiB.",
        other="Memory profiling takes 4.11 seconds",
        source="vllm v1/worker/gpu_worker.py",
        weight=Weight.GENERIC,
    ),
    Text(
        name="sglang_not_enough",
        kind=Kind.GPU_OOM,
        pattern=r"Not enough memory\. Please try (?:to )?increas(?:e|ing) --mem-fraction-static",
        example="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.6",
        other="max_total_tokens=131072 is larger than the profiled value 120000. Use the profiled value instead.",
        source="sglang srt/model_executor/model_runner.py",
    ),
    Text(
        name="sglang_retract",
        kind=Kind.GPU_OOM,
        pattern=r"(?:Decode|Prefill) out of memory\. Try to lower your batch size",
        example="RuntimeError: Decode out of memory. Try to lower your batch size.",
        other="KV cache pool is full. Retract requests. #retracted_reqs: 3",
        source="sglang srt/managers/schedule_batch.py",
    ),
    Text(
        name="xla_exhausted",
        kind=Kind.GPU_OOM,
        pattern=r"RESOURCE_EXHAUSTED: (?:[^\n]{0,80}: )?Out of memory (?:while trying to allocate|allocating) (?P<tried>[\d.,]+ ?(?:bytes|[KMGT]i?B))",
        example="jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4911267840 bytes.",
        other="Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.32GiB with freed_by_count=0. The caller indicates that this is not a failure",
        source="xla/service/gpu; jaxlib",
    ),
    Text(
        name="xla_request",
        kind=Kind.GPU_OOM,
        pattern=r"Failed to allocate request for (?P<tried_text>[\d.]+ ?[KMGT]?i?B) ?\((?P<tried_b>\d+)B\) on device ordinal (?P<gpu>\d+)",
        example="XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 24.31GiB (26102664396B) on device ordinal 3",
        other="Failed to allocate a socket on port 24",
        source="xla/pjrt; se_gpu_pjrt_client.cc",
    ),
    Text(
        name="xla_exhausted_bare",
        kind=Kind.GPU_OOM,
        pattern=r"RESOURCE_EXHAUSTED: (?:[^\n]{0,120}: )?(?:Out of memory|XLA:TPU compile permanent error\. Ran out of memory|Ran out of memory in memory space|Attempting to (?:reserve|allocate) )",
        example="jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        other="grpc RESOURCE_EXHAUSTED: received message larger than max (5 vs. 4)",
        source="xla; jaxlib",
        details=(rf"(?:toallocate|reserve|Used)(?P<tried>{SIZE})", rf"Thereare(?P<free>{SIZE})free"),
    ),
    Text(
        name="tf_oom",
        kind=Kind.GPU_OOM,
        pattern=r"OOM when allocating tensor with shape ?\[[^\]\n]*\][^\n]*device:GPU:(?P<gpu>\d+)",
        example="ResourceExhaustedError: OOM when allocating tensor with shape[256,256,112,112] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc",
        other="OOM when allocating tensor with shape[99] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        source="tensorflow core/framework/op_kernel.cc",
    ),
    Text(
        name="tf_oom_cpu",
        kind=Kind.HOST_OOM,
        pattern=r"OOM when allocating tensor with shape ?\[[^\]\n]*\][^\n]*device:CPU:\d+",
        example="OOM when allocating tensor with shape[99] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        other="OOM when allocating tensor with shape[2,2] and type float on /job:localhost/replica:0/task:0/device:GPU:1",
        source="tensorflow core/framework/op_kernel.cc",
    ),
    Text(
        name="tf_dst",
        kind=Kind.GPU_OOM,
        pattern=r"Dst tensor is not initialized",
        example="tensorflow.python.framework.errors_impl.InternalError: Dst tensor is not initialized.",
        other="Variable dst is not initialized",
        source="tensorflow copy to a full GPU",
    ),
    Text(
        name="hsa_resources",
        kind=Kind.GPU_OOM,
        pattern=r"HSA_STATUS_ERROR_OUT_OF_RESOURCES(?:[^\n]*Available Free mem : (?P<free_mib>\d+) MB)?",
        example=":0:rocdevice.cpp:2984: Callback: Queue aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. code: 0x1008 Available Free mem : 12 MB",
        other="HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.",
        source="ROCm rocclr",
    ),
    Text(
        name="xpu_out_of_device_memory",
        kind=Kind.GPU_OOM,
        pattern=r"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY|PI_ERROR_OUT_OF_(?:RESOURCES|DEVICE_MEMORY)|ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY|Native API returns: (?:39|-5) \((?:UR|PI)_",
        example="RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
        other="RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
        source="oneAPI unified runtime",
    ),
    Text(
        name="bitsandbytes",
        kind=Kind.GPU_OOM,
        pattern=r"Error out of memory at line \d+ in file ",
        example="Error out of memory at line 351 in file /src/csrc/pythonInterface.c",
        other="Error invalid configuration argument at line 218 in file /src/csrc/ops.cu",
        source="bitsandbytes csrc",
    ),
    Text(
        name="triton_oom",
        kind=Kind.GPU_OOM,
        pattern=r"Triton Error \[(?:CUDA|HIP)\]: out of memory",
        example="[rank7]: RuntimeError: Triton Error [CUDA]: out of memory",
        other="RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
        source="triton third_party/nvidia/backend/driver.c",
    ),
    Text(
        name="paddle",
        kind=Kind.GPU_OOM,
        pattern=r"Out of memory error on GPU (?P<gpu>\d+)\.",
        example="ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 1.500000GB memory on GPU 0, 78.100000GB memory has been allocated and available memory is only 912.500000MB.",
        other="Please decrease the batch size of your model if out of memory",
        source="paddle/fluid/memory/allocation",
        details=(rf"Cannotallocate(?P<tried>{SIZE})memory", rf"availablememoryisonly(?P<free>{SIZE}?B)"),
        lines=3,
        until=r"availablememoryisonly[\d.]+[KMG]?B",
    ),
    Text(
        name="cupy",
        kind=Kind.GPU_OOM,
        pattern=r"Out of memory allocating (?P<tried>[\d,]+ bytes) \(allocated so far: (?P<in_use>[\d,]+ bytes)(?:, limit set to: (?P<total>[\d,]+ bytes))?",
        example="cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 3,221,225,472 bytes (allocated so far: 91,268,055,040 bytes).",
        other="Memory pool: 0 bytes allocated so far",
        source="cupy/cuda/memory.pyx",
    ),
    Text(
        name="rmm",
        kind=Kind.GPU_OOM,
        pattern=r"std::bad_alloc: out_of_memory: (?:CUDA error \(failed to allocate (?P<tried_b>\d+) bytes\)|RMM failure)|Maximum pool size exceeded",
        example="MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 2684354560 bytes) at: /opt/rmm/mr/device/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory",
        other="terminate called after throwing an instance of 'std::bad_alloc'",
        source="rmm",
    ),
    Text(
        name="ort_cuda",
        kind=Kind.GPU_OOM,
        pattern=r"CUDA failure 2: out of memory ;(?: GPU=(?P<gpu>\d+))?",
        example="CUDA failure 2: out of memory ; GPU=1 ; hostname=gx ; file=cuda_allocator.cc ; line=90 ; expr=cudaMalloc((void**)&p, size);",
        other="CUDA failure 100: no CUDA-capable device is detected ; GPU=0",
        source="onnxruntime core/providers/cuda/cuda_call.cc",
    ),
    Text(
        name="ort_arena",
        kind=Kind.GPU_OOM,
        pattern=r"Failed to allocate memory for requested buffer of size (?P<tried_b>\d+)|Available memory of (?P<free_b>\d+) is smaller than requested bytes of (?P<tried_b2>\d+)",
        example="onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 1610612736",
        other="Extended allocation by 1048576 bytes",
        source="onnxruntime core/framework/bfc_arena.cc",
    ),
    Text(
        name="ggml",
        kind=Kind.GPU_OOM,
        pattern=r"allocating (?P<tried_mib>[\d.]+) MiB on device (?P<gpu>\d+): (?:cuda|hip)Malloc failed: out of memory|unable to allocate (?:CUDA|ROCm)\d+ buffer",
        example="ggml_backend_cuda_buffer_type_alloc_buffer: allocating 12737.33 MiB on device 0: cudaMalloc failed: out of memory",
        other="load_tensors: offloading 64 repeating layers to GPU",
        source="ggml-cuda.cu",
    ),
    Text(
        name="accelerate_batch_zero",
        kind=Kind.GPU_OOM,
        pattern=r"No executable batch size found, reached zero",
        example="RuntimeError: No executable batch size found, reached zero.",
        other="Decreasing batch size to: 16.",
        source="accelerate utils/memory.py",
    ),
)
