"""The program and what it stands on: its environment, its own errors, uncaught exceptions. Data only."""
# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import After, Refine, Text

#: Packages that an environment provides; anything else that is missing is the job's own code.
_PACKAGES = (
    "accelerate|aiohttp|apex|bitsandbytes|boto3|causal_conv1d|cuda|cudf|cupy|cv2|datasets|deepspeed|diffusers|einops|evaluate|fairscale|flash_attn\\w*|flashinfer"
    "|flax|fsspec|grouped_gemm|h5py|huggingface_hub|hydra|jax|jaxlib|jinja2|lightning|liger_kernel|lmdb|mamba_ssm|matplotlib|megatron|mlflow|mpi4py|msgspec|multiprocess|ninja|numpy|nvidia|omegaconf|onnx"
    "|onnxruntime|optax|orbax|packaging|pandas|peft|PIL|polars|psutil|pyarrow|pydantic|pynvml|pytorch_lightning|ray|regex|requests|s3fs|sacrebleu|safetensors|scipy|sentencepiece|setuptools|sglang|sklearn|streaming"
    "|tensorboard\\w*|tensorflow|tiktoken|timm|tokenizers|torch\\w*|tqdm|transformer_engine|transformers|triton|trl|tyro|unsloth|vllm|wandb|webdataset|xformers|yaml|zstandard|_\\w+|\\w+_cuda\\w*|\\w+_ext|amp_C|apex_C"
)

TEXTS = (
    Text(
        name="driver_or_build",
        kind=Kind.ENV_ERROR,
        pattern=(
            r"no kernel image is available|NVIDIA driver on your system is too old|CUDA driver version is insufficient|[Dd]river/library version mismatch|\bError 80\d: |forward compatibility was attempted"
            r"|provided PTX was compiled with an unsupported toolchain|is not compatible with the current PyTorch installation|No CUDA GPUs are available|no CUDA-capable device is detected|Found no NVIDIA driver"
            r"|Torch not compiled with CUDA enabled|No HIP GPUs are available|device kernel image is invalid|CUDA error: invalid device function|system not yet initialized|CUDA unknown error - this may be due to an incorrectly set up"
            r"|detected CUDA version \([^\n]*mismatches|CUDNN_STATUS_(?:VERSION_MISMATCH|SUBLIBRARY\w*|NOT_INITIALIZED_LOADER)|cuDNN version incompatibility|[Ff]ailed to initialize NVML|couldn't communicate with the NVIDIA driver|CUDA_HOME (?:environment variable is not set|does not exist)|MissingCUDAException"
            r"|libcuda\.so[^\n]*(?:not found|cannot)|devices?(?:\(s\))? (?:is|are|is/are) busy or unavailable|nvcc (?:was )?not found|Failed to find (?:C compiler|CUDA)|ptxas[^\n]*(?:not found|fatal)|compiled with different CUDA|operator torchvision::nms does not exist|FlashAttention only supports Ampere|only supported on GPUs with compute capability|Error building extension '|CUDA Setup failed|Failed to compile the C\+\+|fatal error: [\w/.]+\.h(?:pp)?: No such file|all CUDA-capable devices are busy|CUDA error: initialization error|unsupported (?:display driver|gpu architecture)|Unsupported gpu architecture"
        ),
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        other="NVIDIA-SMI 580.126.09             Driver Version: 580.126.09     CUDA Version: 13.0",
        source="CUDA runtime, torch, NVML, Triton",
    ),
    Text(
        name="shared_object",
        kind=Kind.ENV_ERROR,
        pattern=r"undefined symbol: |cannot open shared object file|GLIBC(?:XX)?_[\d.]+' not found|Could not load library lib|numpy\.dtype size changed, may indicate binary incompatibility|compiled using NumPy 1\.x cannot be run|dlopen[^\n]*(?:failed|error)|wrong ELF class|DLL load failed|incompatible function arguments\. The following argument types are supported[^\n]*numpy",
        example="ImportError: flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb",
        other="loaded shared object libnccl.so.2",
        source="dynamic loader; numpy",
    ),
    Text(
        name="package_missing",
        kind=Kind.ENV_ERROR,
        pattern=rf"No module named '(?:{_PACKAGES})(?:\.[\w.]+)?'|PackageNotFoundError|is required for a normal functioning of this module|DistributionNotFound|VersionConflict|requires the \S+ (?:package|library)|you need to `?pip install|package \S+ seems to be not installed|Ninja is required to load C\+\+ extensions|(?:ImportError|RuntimeError): [^\n]*(?:[Pp]lease (?:run )?[`'\"]?(?:pip |conda )?install|pip install |(?:is|are) not installed)|FlashAttention2 has been toggled on, but it cannot be used",
        example="ModuleNotFoundError: No module named 'flash_attn'",
        other="ModuleNotFoundError: No module named 'drafter_utils'",
        source="Python; transformers",
    ),
    Text(
        name="machine_setup",
        kind=Kind.ENV_ERROR,
        pattern=r"\[Errno 24\]|Too many open files|\[Errno 13\] Permission denied|Permission denied: '|\[Errno 30\] Read-only file system|: command not found|[Ee]xec format error|\[Errno 8\] Exec|can't open file '[^'\n]*/bin/|received 0 items of ancdata|RLIMIT_MEMLOCK|Resource temporarily unavailable[^\n]*(?:fork|thread)|can't start new thread|^FATAL: +(?:could not open image|container creation failed|while )|Error response from daemon: |nvidia-container-cli: [^\n]*(?:error|failed)|OCI runtime create failed|ErrImagePull|ImagePullBackOff|pthread_create failed|bad interpreter: ",
        example="OSError: [Errno 24] Too many open files: '/data/shards/00417.bin'",
        other="ulimit -n is 1048576",
        source="errno of limits and rights",
    ),
    Text(
        name="kernel_too_big",
        kind=Kind.CODE_ERROR,
        pattern=r"OutOfResources: out of resource|out of resource: (?:shared memory|threads|registers)|Buffer overflow when allocating memory for \S+ with size|too many resources requested for launch",
        example="triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
        other="HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate",
        source="triton runtime/errors.py; flashinfer allocator.h",
    ),
    Text(
        name="wrong_use",
        kind=Kind.CODE_ERROR,
        pattern=(
            r"error: unrecognized arguments: |error: the following arguments are required: |error: argument \S+: (?:invalid|expected)|invalid choice: |Error: (?:No such option|Missing (?:option|argument)|Got unexpected extra argument)"
            r"|Cannot re-initialize CUDA in forked subprocess|cannot be shared between processes|CUDA error: invalid device ordinal|Duplicate GPU detected|mat1 and mat2 shapes cannot be multiplied|mat1 and mat2 must have the same dtype"
            r"|The size of tensor a \(\d+\) must match|shape '\[[^\n]*\]' is invalid for input of size|Expected all tensors to be on the same device|[Ee]xpected scalar type \w+ but found|modified by an inplace operation|does not require grad and does not have a grad_fn"
            r"|backward through the graph a second time|Could not override '|Key '\w+' is not in struct|ConfigAttributeError|MissingMandatoryValue|ConfigKeyError|yaml\.(?:scanner|parser)\.\w+Error|validation errors? for |IndentationError|SyntaxError: |TabError"
            r"|can't open file '[^'\n]*\.py'|cannot import name '|Sizes of tensors must match|Given groups=\d+, weight of size|Expected (?:input|tensor) (?:batch_size|to have)|out of range integral type conversion|hydra\.errors\.\w+|world[_ ]size \(\d+\) (?:is not|must be) divisible|is not divisible by"
        ),
        example="train_drafter.py: error: unrecognized arguments: --max_batch=48",
        other="usage: train_drafter.py [-h] [--config CONFIG] [--token-budget TOKEN_BUDGET]",
        source="argparse, click, hydra, torch",
    ),
    Text(
        name="own_module_missing",
        kind=Kind.CODE_ERROR,
        pattern=r"No module named '",
        example="ModuleNotFoundError: No module named 'drafter_utils'",
        other="no module named in the config",
        source="Python",
    ),
    Text(
        name="traceback",
        kind=Kind.NONE,
        pattern=r"Traceback \(most recent call last\)|RayTaskError\([\w.]+\): ray::",
        example="[rank5]: Traceback (most recent call last):",
        other="tracebacks are written to /var/log/train",
        source="Python",
        note=True,
    ),
    Text(
        name="ignored",
        kind=Kind.NONE,
        pattern=r"Exception ignored in|--- Logging error ---",
        example="Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f11c0>",
        other="exceptions ignored: 0",
        source="Python",
        note=True,
    ),
    Text(
        name="loading_checkpoint",
        kind=Kind.NONE,
        pattern=r", in (?:_?load_(?:\w*_)?(?:checkpoint|ckpt|state_dict)\w*|_?load_from_checkpoint|_?(?:restore|resume)_\w*(?:checkpoint|state)\w*)$",
        example='  File "/app/ckpt.py", line 12, in load_checkpoint',
        other='  File "/app/ckpt.py", line 12, in save_checkpoint',
        source="frames of a Python traceback",
        note=True,
    ),
    Text(
        name="state_exception",
        kind=Kind.CODE_ERROR,
        pattern=r"(?:^|[\s)|:>\]])(?:Key|Value|Runtime|Index|Assertion)Error(?:: |:?\s*$)",
        example="Traceback (most recent call last):\n  File \"ckpt.py\", line 12, in load_checkpoint\nKeyError: 'iteration'",
        other="AttributeError: 'NoneType' object has no attribute 'shape'",
        source="Python",
        weight=Weight.GENERIC,
        # What a checkpoint lacks shows where it is taken apart.
        after=(After("ignored", 30, None), After("loading_checkpoint", 12, Kind.CHECKPOINT_ERROR, Weight.GENERIC)),
        raised=True,
    ),
    Text(
        name="exception",
        kind=Kind.CODE_ERROR,
        pattern=r"(?:^|[\s)|:>\]])(?:[A-Za-z_]\w*\.)*[A-Z_]\w*(?:Error:|Exception:|Failed:|Failure:|Exists:|NotFound:|Mismatch:|Timeout:|Errors:)(?: |\s*$)|^(?:\S+ )?(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\s*$|^(?:\S+ )?(?:[a-z_]\w*\.)+[A-Z]\w*(?:: |:?\s*$)|^(?:\S+ )?StopIteration\b",
        example="Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nAttributeError: 'DrafterOutput' object has no attribute 'acc_len'",
        other="INFO NumErrors 0",
        source="Python",
        weight=Weight.GENERIC,
        refine=(
            Refine(
                r"ChildFailedError|CalledProcessError|ProcessRaisedException|EngineDeadError|RayTaskError|WorkerFailed|Internalwandberror",
                Kind.EXIT,
                Weight.WRAPPER,
            ),
            Refine(
                r"BrokenPipeError|EOFError|ProcessExitedException|RayActorError|ActorDiedError",
                Kind.EXIT,
                Weight.SUMMARY,
            ),
            Refine(r"PermissionError", Kind.ENV_ERROR, Weight.GENERIC),
            Refine(r"TimeoutError", Kind.NETWORK_ERROR, Weight.GENERIC),
        ),
        after=(After("ignored", 30, None),),
        raised=True,
    ),
)
