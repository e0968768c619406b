"""Other accelerators and their libraries, and what stands around such texts: the kinds and figures of short logs."""
# ruff: noqa: E501  # logs stand as they are printed

from __future__ import annotations

import pytest

from supervisor.cli.scan import scan_file, to_document
from supervisor.signatures import Matcher
from supervisor.signatures.marks import MARKS

STEPS = "".join(f"step {n} | loss 2.{n} | lr 3.0e-04\n" for n in range(10, 14))
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 88, in <module>\n    main()\n'
GIB = 1024.0

OOMS = (
    (
        "npu_card",
        {"gpu": 3, "tried_mib": 30.0, "free_mib": 14.24, "total_mib": 62423.04},
        "(NPUWorker pid=45464) ERROR 06-09 06:57:48 worker_base.py:581] RuntimeError: NPU out of memory. Tried to allocate 30.00 MiB (NPU 3; 60.96 GiB total capacity; 60.34 GiB already allocated; 60.34 GiB current active; 14.24 MiB free; 60.60 GiB reserved in total by PyTorch)\n",
    ),
    (
        "mps_limit",
        {"tried_mib": 896.0, "in_use_mib": 7403.52, "total_mib": 9287.68},
        TRACE
        + "RuntimeError: MPS backend out of memory (MPS allocated: 7.23 GB, other allocations: 1.54 GB, max allowed: 9.07 GB). Tried to allocate 896.00 MB on private pool.\n",
    ),
    ("mps_buffer", {"tried_mib": 24 * GIB}, TRACE + "RuntimeError: Invalid buffer size: 24.00 GB\n"),
    ("musa", {}, TRACE + "RuntimeError: MUSA out of memory.\n"),
    (
        "tensorview",
        {},
        TRACE
        + "RuntimeError: TensorStorage /io/include/tensorview/tensor.h 168\ncuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1 to get correct traceback.\n",
    ),
    ("gpuassert", {}, "GPUassert: out of memory kernels.cu 88\n"),
    ("vulkan", {}, "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"),
    (
        "metal",
        {},
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n",
    ),
    (
        "vllm_new_words",
        {"tried_mib": 11714.56, "free_mib": 10455.04},
        "(EngineCore_DP0 pid=90) ValueError: To serve at least one request with the models's max seq len (250000), 11.44 GiB KV cache is needed, which is larger than the available KV cache memory (10.21 GiB).\n(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n",
    ),
    (
        "sglang_unbalanced",
        {},
        TRACE
        + "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=42.11, local_gpu_memory=78.62\n",
    ),
    (
        "tpu_hbm",
        {"tried_mib": 22425.6, "total_mib": 7659.52},
        TRACE
        + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 21.90G of 7.48G hbm. Exceeded hbm capacity by 14.42G.\n",
    ),
    (
        "torch_xla",
        {"tried_mib": 4044.8, "free_mib": 1966.08},
        TRACE
        + "RuntimeError: Resource exhausted: From /job:tpu_worker/replica:0/task:0:\nAttempting to reserve 3.95G at the bottom of memory. That was not possible. There are 1.92G free, 0B reserved, and 1.92G reservable.; \n",
    ),
    (
        "tf_failed",
        {"gpu": 0},
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__AddV2_device_/job:localhost/replica:0/task:0/device:GPU:0}} failed to allocate memory [Op:AddV2]\n",
    ),
    (
        "xgboost",
        {"rank": 3, "tried_mib": 837.81, "free_mib": 213.69},
        "XGBoostError: src/common/device_helpers.cuh:428: Memory allocation error on worker 3: Caching allocator\n- Free memory: 224067584\n- Requested memory: 878511352\n",
    ),
    (
        "habana",
        {"rank": 0, "tried_mib": 1024.0},
        TRACE
        + "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB\n",
    ),
    (
        "mindspore",
        {"gpu": 2, "tried_mib": 768.0},
        TRACE
        + "RuntimeError: Device(id:2) memory isn't enough and alloc failed, kernel name: Default/Conv2D-op12, alloc size: 805306368B.\n",
    ),
    ("tgi", {}, "Error: Warmup(Generation(\"Not enough memory to handle 8242 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\"))\n"),
    ("trtllm", {}, "[TensorRT-LLM][ERROR] Assertion failed: Can't allocate new blocks. No free blocks left. (kvCacheManager.cpp:256)\n"),
    ("xpu_resources", {}, TRACE + "RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)\n"),
    ("dispatched", {}, TRACE + "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.\n"),
    (
        "wrapped_behind_a_label",
        {"rank": 1, "gpu": 1, "tried_mib": 7680.0, "free_mib": 3194.88, "in_use_mib": 77946.88, "reserved_mib": 3481.6},
        "trainer-1  | [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\ntrainer-1  | 7.50 GiB. GPU 1 has a total capacity of 79.25 GiB of which 3.12 GiB is\ntrainer-1  | free. Including non-PyTorch memory, this process has 76.12 GiB memory in\ntrainer-1  | use. Of the allocated memory 71.20 GiB is allocated by PyTorch, and 3.40\ntrainer-1  | GiB is reserved by PyTorch but unallocated.\n",
    ),
)  # fmt: skip

HCCL = (
    TRACE
    + "RuntimeError: create_config:x.ts:130 HCCL function error: HcclReduceScatter(in, out), error code is 5\n[ERROR] 2026-04-28-16:56:53 (PID:3, Device:0, RankID:0) ERR02200 DIST call hccl api failed.\n"
)
NPU = (
    TRACE
    + "RuntimeError: synchronize:x.ts:361 NPU function error: AclrtSynchronizeStreamWithTimeout(stream()), error code is {}\n[ERROR] 2026-03-24-10:11:12 (PID:4, Device:0, RankID:0) ERR00100 PTA call acl api failed\n"
)

OTHERS = (
    ("hccl", "collective_error", HCCL),
    ("hccl_time", "collective_timeout", HCCL + "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time.\n"),
    ("hccl_notify", "collective_timeout", "EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record\n"),
    ("hccl_args", "code_error", HCCL + "EI0005: The arguments for collective communication are inconsistent between ranks\n"),
    ("hccl_port", "port_in_use", HCCL + "Communication_Error_Bind_IP_Port(EI0020): Failed to bind the IP port. Reason: The IP address and port have already been bound.\n"),
    ("npu", "cuda_error", NPU.format(507035) + "[Error]: The vector core execution is abnormal.\n"),
    ("npu_ecc", "gpu_fault", NPU.format(507054) + "[Error]: HBM MULTI BIT ECC ERROR.\n"),
    ("npu_memory", "gpu_oom", NPU.format(207001) + "EL0004: Failed to allocate memory.\n"),
    ("peer_memory", "gpu_fault", TRACE + "torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error\n"),
    ("launch_failure", "cuda_error", TRACE + "RuntimeError: CUDA error: unspecified launch failure\n"),
    (
        "launch_failure_of_a_kernel_that_waited",
        "collective_timeout",
        "DeepEP timeout check failed: rank = 3, thread = 0, value = 1024)\n" + TRACE + "RuntimeError: CUDA error: unspecified launch failure\n",
    ),
    (
        "illegal_access_explains_that_others_waited",
        "cuda_error",
        "DeepEP timeout check failed: rank = 3, thread = 0, value = 1024)\n" + TRACE + "RuntimeError: CUDA error: an illegal memory access was encountered\n",
    ),
    ("nvshmem", "collective_error", "main_nvshmem/src/host/transport/transport.cpp:420: non-zero status: 7 connect EPS failed\nnvshmem initialization failed, exiting \n"),
    ("horovod", "collective_error", TRACE + "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks\n"),
    ("horovod_stall", "collective_timeout", "stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"),
    ("aborted", "collective_error", TRACE + "RuntimeError: NCCL communicator was aborted on rank 3. \n"),
    ("dump", "collective_timeout", "[PG ID 0 PG GUID 0(default_pg) Rank 2] Received a dump signal due to a collective timeout from  rank 5 and we will try our best to dump the debug info.\n"),
    ("cutorch", "cuda_error", "luajit: cuda runtime error (30) : unknown error at cutorch/lib/THC/THCStorage.c:113\n"),
    ("flash_attention", "cuda_error", "CUDA error (hopper/flash_fwd_launch_template.h:188): invalid argument\n"),
    ("flash_attention_oom", "gpu_oom", "CUDA error (hopper/flash_fwd_launch_template.h:188): out of memory\n"),
    ("transformer_engine", "cuda_error", TRACE + "RuntimeError: common/gemm/cublaslt_gemm.cu:398 in function cublas_gemm: cuBLAS Error: the requested functionality is not supported\n"),
    ("paddle_nccl", "collective_error", TRACE + "OSError: (External) NCCL error(2), unhandled system error. \n  [Hint: 'ncclSystemError'. A call to the system failed.]\n"),
    ("paddle_cuda", "gpu_oom", TRACE + "OSError: (External) CUDA error(2), out of memory. \n"),
    ("jax_unhealthy", "collective_timeout", "F1101 10:01:40.0 139 client.h:80] Terminating process because the JAX distributed service detected fatal errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n"),
    (
        "what_nccl_tells_on_the_way_explains_nothing",
        "collective_timeout",
        "gx:11:12 [3] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory : when loading libnccl-net.so\n"
        "gx:11:12 [3] NCCL INFO Call to connect to 10.0.0.2<45555> returned Connection timed out, retrying\n"
        "[rank3]:[E1119 13:21:12.5 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800000 milliseconds before timing out.\n",
    ),
    ("nccl_told_and_went_on", "none", "gx:11:12 [3] NCCL INFO Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory\n"),
    (
        "a_rank_that_looked_for_the_store",
        "collective_timeout",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [gx-1]:29500 (errno: 110 - Connection timed out).\n"
        "torch.distributed.DistNetworkError: The client socket has timed out after 600s while trying to connect to (gx-1, 29500).\n",
    ),
    ("hip_build", "env_error", TRACE + "RuntimeError: HIP error: invalid device function\n"),
    ("oneccl", "collective_error", "2024:05:01-10:00:00:(123) |CCL_ERROR| atl_ofi_comm.cpp:301 init_transport: failed to initialize ATL\nterminate called after throwing an instance of 'ccl::v1::exception'\n"),
    ("mesh", "collective_error", TRACE + "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error\n"),
    (
        "autotuning_is_no_failure",
        "none",
        "[rank0]:E0301 10:00:00.0 1 torch/_inductor/select_algorithm.py:2134] Exception out of resource: shared memory, Required: 294912, Hardware limit: 232448. Reducing block sizes or `num_stages` may help. for benchmark choice TritonTemplateCaller(triton_mm_23)\n" + STEPS,
    ),
    ("npu_warning", "none", "[W NPUStream.cpp:365] Warning: NPU warning, error code is 107020[Error]: .\n" + STEPS),
)  # fmt: skip


@pytest.fixture(scope="module", params=[False, True], ids=["re2", "hyperscan"])
def matcher(request):
    return Matcher(watch=MARKS, bulk=request.param)


def verdict(log, matcher, tmp_path):
    path = tmp_path / "run.log"
    path.write_text(STEPS + log)
    return to_document([scan_file(str(path), matcher)])["files"][0]["verdict"]


@pytest.mark.parametrize(("name", "fields", "log"), OOMS, ids=[name for name, _, _ in OOMS])
def test_a_device_without_memory(name, fields, log, matcher, tmp_path):
    found = verdict(log, matcher, tmp_path)
    assert found["kind"] == "gpu_oom"
    assert {field: found[field] for field in fields} == fields


@pytest.mark.parametrize(("name", "kind", "log"), OTHERS, ids=[name for name, _, _ in OTHERS])
def test_devices_and_collectives(name, kind, log, matcher, tmp_path):
    assert verdict(log, matcher, tmp_path)["kind"] == kind
