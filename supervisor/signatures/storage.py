"""Disks, checkpoints, networks and ports. Data only."""
# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import Refine, Text

TEXTS = (
    Text(
        name="disk_full",
        kind=Kind.DISK_FULL,
        pattern=(
            r"No space left on device|Disk quota exceeded|\[Errno 28\]|\[Errno 122\]|code: 28, kind: StorageFull|kind: QuotaExceeded|PytorchStreamWriter failed writing file"
            r"|unexpected pos \d+ vs \d+|[Nn]ot enough (?:free )?(?:disk )?space (?:on|to|left|available)|disk is full|No usable temporary directory found|low on resource: ephemeral-storage|Disk full\b"
        ),
        example="OSError: [Errno 28] No space left on device: '/ckpt/dflash/.tmp_step_3200'",
        other="disk: 412 GiB left on /ckpt",
        source="errno 28 and 122 as C, Python, Rust and torch print them",
        refine=(Refine(r"/dev/shm|</torch_|/psm_", Kind.SHM_FULL),),
    ),
    Text(
        name="checkpoint_unreadable",
        kind=Kind.CHECKPOINT_ERROR,
        pattern=(
            r"PytorchStreamReader failed|Unable to open table file [^\n]*Data loss|CheckpointingException|Error opening \\?\"(?:zarr|ocdbt)\w*\\?\" driver|No structure could be identified for the checkpoint|failed finding central directory|Error while deserializing header|SafetensorError: (?:[^\n]*(?:header|metadata|[Ii]ncomplete|invalid))"
            r"|invalid load key, |UnpicklingError|EOFError: Ran out of input|Weights only load failed|Unable to load weights from (?:pytorch )?checkpoint"
            r"|[Cc]heckpoint [^\n]{0,120}(?:is corrupt|is corrupted|is incomplete|appears to be (?:corrupt|incomplete)|does not exist|is not a valid)|[Cc]orrupt(?:ed)? checkpoint"
            r"|invalid header or archive is corrupted|BadZipFile|storage has wrong byte size|unexpected EOF, expected \d+ more bytes"
        ),
        example="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        other="checkpoint saved to /ckpt/step_100",
        source="torch serialization; safetensors; pickle; zipfile",
    ),
    Text(
        name="checkpoint_mismatch",
        kind=Kind.CHECKPOINT_ERROR,
        pattern=(
            r"[Ss](?:hape|ize) mismatch[^\n]{0,60}(?:saved|loaded|restored|checkpoint)|state.?dict[^\n]{0,60}do(?:es)? not match|[Cc]heckpoint being loaded used a \w+ world size|Key \S+ not found in checkpoint|size mismatch for \S+: copying a param with shape|Error\(s\) in loading state_dict|(?:Missing|Unexpected) key\(s\) in state_dict|Missing key in checkpoint state_dict"
            r"|loaded state dict (?:contains a parameter group|has a different number)|value from checkpoint \([^\n]*\) is not equal to the input argument"
            r"|Failed to (?:restore|load) (?:the )?checkpoint|The loaded state dict"
        ),
        example="size mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 5120]) from checkpoint, the shape in current model is torch.Size([151936, 5120]).",
        other="- lm_head.weight: found shape torch.Size([32000, 5120]) in the checkpoint and torch.Size([151936, 5120]) in the model instantiated",
        source="torch nn/modules/module.py; Megatron checkpointing.py",
    ),
    Text(
        name="checkpoint_missing",
        kind=Kind.CHECKPOINT_ERROR,
        pattern=(
            r"Unable to find latest file at |Can't find a valid checkpoint at|No valid checkpoint found|no checkpoint found in|Error no file named [^\n]{1,200} found in directory"
            r"|No such file or directory: '[^'\n]*(?:checkpoint|ckpt|step_\d+|\.safetensors|\.distcp|/\.metadata|\.pth?|trainer_state\.json|latest)[^'\n]*'|could not find (?:the )?checkpoint|[Cc]heckpoint (?:file |directory |path |at |in )?[^\n]{0,120}(?:not found|is missing)|Unsuccessful TensorSliceReader"
        ),
        example="[WARNING] [engine.py:3107:load_checkpoint] Unable to find latest file at /ckpt/ds/latest, if trying to load latest checkpoint please ensure this file exists",
        other="No such file or directory: '/etc/motd'",
        source="DeepSpeed engine.py; transformers",
    ),
    Text(
        name="checkpoint_ranks",
        kind=Kind.CHECKPOINT_ERROR,
        # Of the ranks' own errors, which follow: a full disk, a missing key.
        pattern=r"CheckpointException ranks:",
        example="torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0])",
        other="checkpoint ranks: 0-7",
        source="torch/distributed/checkpoint/api.py",
        weight=Weight.GENERIC,
    ),
    Text(
        name="checkpoint_wrote_short",
        kind=Kind.CHECKPOINT_ERROR,
        pattern=r"Error while serializing|(?:[Ff]ailed|[Ee]rror|[Ee]xception) (?:to save|while saving|saving|in saving) (?:the )?(?:model |async )?checkpoint",
        example="Failed to save checkpoint at step 3200",
        other="saving checkpoint step_47 (async)",
        source="training scripts",
        weight=Weight.GENERIC,
    ),
    Text(
        name="port_in_use",
        kind=Kind.PORT_IN_USE,
        pattern=r"EADDRINUSE|[Aa]ddress already in use|\[Errno 98\]|\berrno: 98\b|[Pp]ort[ =]\d+ is (?:not available|already in use|in use|occupied)|on port `?\d+`?, but another process is utilizing it|port number \d+ that is used by other|failed to bind (?:to )?port|Cannot bind to port",
        example="RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE",
        other="The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
        source="errno 98; torch socket.cpp",
    ),
    Text(
        name="hub_unreachable",
        kind=Kind.NETWORK_ERROR,
        pattern=r"LocalEntryNotFoundError|We couldn't connect to 'https://|couldn't connect to the Hub|OfflineModeIsEnabled|Cannot reach https?://|Couldn't reach (?:the Hugging Face Hub|'|https)",
        example="huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the requested files in the local cache.",
        other="Loaded from the local cache",
        source="huggingface_hub; transformers; datasets",
    ),
    Text(
        name="http_failed",
        kind=Kind.NETWORK_ERROR,
        pattern=(
            r"\bReadTimeout(?:Error)?\b|ConnectTimeout(?:Error)?\b|Max retries exceeded with url|NameResolutionError|Temporary failure in name resolution|Name or service not known|NewConnectionError"
            r"|EndpointConnectionError|IncompleteRead|RemoteDisconnected|ChunkedEncodingError|ProtocolError\(|\b(?:429|50\d) (?:Server|Client) Error|429 Too Many Requests|HTTP(?: Error)? (?:429|50\d)|\(HTTP (?:429|50\d)\)"
            r"|An error occurred \((?:SlowDown|ServiceUnavailable|RequestTimeout|InternalError|503|500|RequestTimeTooSkewed|ThrottlingException)\)|SSL: UNEXPECTED_EOF|SSLEOFError|ClientConnectorError|ServerDisconnectedError|ClientPayloadError"
            r"|(?:ServiceUnavailable|TooManyRequests|DeadlineExceeded|GatewayTimeout|InternalServerError): \d{3}|Error: (?:503|502|504) |status code (?:429|50\d)|could not resolve host|Could not resolve host|requests\.exceptions\.(?:ConnectionError|Timeout|SSLError)|HTTPSConnectionPool\([^\n]*\): (?:Read timed out|Max retries)"
            r"|httpx\.(?:ReadError|ConnectError|ReadTimeout|ConnectTimeout|RemoteProtocolError)|urllib\.error\.URLError|curl: \(\d+\)"
        ),
        example='botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: "https://acme-train.s3.us-west-2.amazonaws.com/shards/train-00417.tar"',
        other="GET /ui/accelerators HTTP/1.1 200 OK",
        source="urllib3, requests, botocore, aiohttp, httpx, google-api-core",
    ),
    Text(
        name="tracker_unreachable",
        kind=Kind.NETWORK_ERROR,
        pattern=r"Run initialization has timed out|wandb\.errors\.\w*\.?CommError|wandb: ERROR [^\n]*(?:timed out|[Nn]etwork|[Cc]onnection)|MlflowException: API request|Error communicating with wandb",
        example="wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec. ",
        other="wandb: Network error resolved after 0:00:21.118231, resuming normal operation.",
        source="wandb; mlflow",
    ),
    Text(
        name="tracker_retries",
        kind=Kind.NETWORK_ERROR,
        pattern=r"wandb: Network error \(",
        example="wandb: Network error (ConnectionError), entering retry loop.",
        other="wandb: Run data is saved locally in wandb/run-1",
        source="wandb",
        weight=Weight.NOISE,
    ),
    Text(
        name="remote_files",
        kind=Kind.NETWORK_ERROR,
        pattern=(
            r"[Ss]tale (?:NFS )?file handle|\[Errno (?:5|116|121|110|112|113|107|101|103)\]|Input/output error|Remote I/O error|Transport endpoint is not connected|nfs: server \S+ not responding|\bESTALE\b"
            r"|\(os error (?:5|116|110|107)\)|LustreError: |Connection timed out|Host is down|Network is unreachable"
        ),
        example="OSError: [Errno 116] Stale file handle: '/mnt/nfs/shards/00417.tar'",
        other="nfs: server filer-1 OK",
        source="errno of network file systems; kernel log",
        refine=(
            Refine(r"NCCL|ibv_|socket(?:StartConnect|PollConnect|Progress)", Kind.COLLECTIVE_ERROR, Weight.AFTERMATH),
        ),
    ),
    Text(
        name="connection_lost",
        kind=Kind.NETWORK_ERROR,
        pattern=r"ConnectionResetError|ConnectionAbortedError|ConnectionRefusedError|\[Errno 104\]|\[Errno 111\]|(?:requests|aiohttp|urllib3)\S*: [^\n]*[Cc]onnection (?:reset|aborted|refused)|RendezvousConnectionError",
        example="ConnectionResetError: [Errno 104] Connection reset by peer",
        other="connections reset=0 refused=0",
        source="Python sockets",
        weight=Weight.GENERIC,
    ),
    Text(
        name="access_denied",
        kind=Kind.ENV_ERROR,
        pattern=r"GatedRepoError|401 Client Error|403 Client Error|Invalid user token|Invalid (?:API|api) key|api_key not configured|No API key configured|\((?:AccessDenied|InvalidAccessKeyId|ExpiredToken|SignatureDoesNotMatch|403)\)|NoCredentialsError|Unable to locate credentials|Permission denied \(publickey",
        example="huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-5f7287e5)",
        other="token accepted",
        source="huggingface_hub; wandb; botocore",
    ),
)
