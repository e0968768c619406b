"""Collectives that time out or break: NCCL, gloo, c10d, XLA. Mostly what the others say once one has failed.

Data only.
"""
# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import Refine, Text

#: What an NCCL error really is stands after "Last error:" (squeezed).
_LAST = (
    Refine(r"(?i)Lasterror:.*(?:outofmemory|FailedtoCUDA(?:hostalloc|malloc|calloc))", Kind.GPU_OOM),
    Refine(r"(?i)(?:/dev/shm|sharedmemorysegment|</torch_)", Kind.SHM_FULL),
    Refine(r"(?i)uncorrectable(?:ECC|NVLink)|nvlinkorahardwareerror", Kind.GPU_FAULT),
    Refine(r"(?i)Lasterror:.*(?:illegalmemoryaccess|unspecifiedlaunchfailure|device-sideassert)", Kind.CUDA_ERROR),
    Refine(r"(?i)DuplicateGPU|ncclInvalidUsage|ncclInvalidArgument|invalidusage|invalidargument\(run", Kind.CODE_ERROR),
    Refine(r"(?i)driverversionisinsufficient|nokernelimage", Kind.ENV_ERROR),
    Refine(r"(?i)Lasterror:.*Nospaceleft", Kind.SHM_FULL),
)

TEXTS = (
    Text(
        name="watchdog_timeout",
        kind=Kind.COLLECTIVE_TIMEOUT,
        pattern=r"(?:\[Rank (?P<rank>\d+)\] )?(?:Watchdog c|C)aught collective operation timeout: Work",
        example="[rank0]:[E211 03:12:53.101883911 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48211, OpType=_ALLGATHER_BASE, Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
        other="NCCL_TIMEOUT=600000 set for collective operations",
        source="torch ProcessGroupNCCL.cpp",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="watchdog_detected",
        kind=Kind.COLLECTIVE_TIMEOUT,
        pattern=r"(?:Rank (?P<rank>\d+)\]\s+)?(?:failure detected by watchdog at work sequence id|Exception \(either an error or timeout\) detected by watchdog|Observed flight recorder dump signal from another rank|Received a dump signal due to (?:a )?collective timeout|Received a global timeout from another rank)",
        example="[PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: 3, last enqueued NCCL work: 4, last completed NCCL work: 2.",
        other="watchdog thread started for default_pg",
        source="torch ProcessGroupNCCL.cpp",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="heartbeat_monitor",
        kind=Kind.COLLECTIVE_TIMEOUT,
        pattern=r"(?:Rank (?P<rank>\d+)\] )?(?:Heartbeat monitor timed out|\[?[^\n]{0,60}watchdog got stuck for \d+ seconds)",
        example="[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
        other="Heartbeat monitor enabled, timeout 600 s",
        source="torch ProcessGroupNCCL.cpp",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="gloo_timeout",
        kind=Kind.COLLECTIVE_TIMEOUT,
        pattern=r"Timed out waiting \d+ms for (?:recv|send) operation to complete|failed to pass monitoredBarrier in \d+ ms|reached monitoredBarrier, but received errors|gloo[^\n]*(?:[Tt]imed out|Timeout)|Application timeout caused pair closure|were submitted to be reduced, gathered or broadcasted by subset of ranks",
        example="RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete",
        other="gloo backend initialised with a timeout of 1800 s",
        source="gloo transport/tcp; torch ProcessGroupGloo.cpp; horovod stall_inspector.cc",
        weight=Weight.AFTERMATH,
        own_rank=False,
    ),
    Text(
        name="device_timeout",
        kind=Kind.COLLECTIVE_TIMEOUT,
        pattern=r"DeepEP timeout check failed: rank = (?P<rank>\d+)|DeepEP [^\n]{0,60}timeout|Getting socket times out|Notify register times out",
        example="DeepEP timeout check failed: rank = 3, thread = 0, value = 1024)",
        other="DeepEP buffers of 2 GiB for 8 ranks",
        source="DeepEP csrc/kernels; CANN HCCL",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="store_timeout",
        kind=Kind.COLLECTIVE_TIMEOUT,
        pattern=(
            r"Timed out initializing process group in store based barrier on rank:? (?P<rank>\d+)|Timed out after \d+ seconds waiting for clients"
            r"|wait timeout after \d+ms|client socket has timed out after \w+ while trying to connect|RendezvousTimeoutError|RuntimeError: Socket Timeout"
            r"|Socket Timeout|Timeout waiting for key: |The rendezvous (?:timed out|has timed out)"
        ),
        example="torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.",
        other="waiting for clients: 8/8 joined after 4 seconds",
        source="torch TCPStore.cpp; elastic rendezvous",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="xla_timeout",
        kind=Kind.COLLECTIVE_TIMEOUT,
        pattern=r"DEADLINE_EXCEEDED: |Barrier timed out|\b[Tt]ask\b[^\n]{0,80} heartbeat timeout|missing heartbeats?\b|stopped sending heartbeats|rendezvous[^\n]*stuck|Termination timeout for [^\n]*exceeded",
        example="jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect",
        other="deadline for the barrier is 600 s",
        source="xla distributed runtime",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="nccl_error",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=r"NCCL error in: |[NR]CCL communicator was aborted on rank (?P<rank>\d+)|NCCL [Ee]rror(?: \d+: |: |\(\d+\), )|RCCL error|\|CCL_ERROR\||[NR]CCL operation [^\n]{0,60}failed: |UNAVAILABLE: failed to connect|UnavailableError: |Collective ops is aborted|JAX distributed service detected fatal errors",
        example="RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        other="gx-node-03:41234:41901 [0] NCCL INFO NCCL version 2.27.5+cuda13.0",
        source="torch NCCLUtils.hpp; jax; paddle; oneCCL",
        weight=Weight.AFTERMATH,
        lines=6,
        until=r"Lasterror:.{12}",
        refine=_LAST,
    ),
    Text(
        name="hccl_error",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=r"HCCL (?:function )?error(?: in)? ?: ?|OPS function error: Hccl\w+|operator name is Hccl\w+|ERR02200 DIST call hccl api failed",
        example="RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64",
        other="HCCL_CONNECT_TIMEOUT=1200 HCCL_BUFFSIZE=512",
        source="torch_npu distributed/ProcessGroupHCCL.cpp, HCCLUtils.hpp",
        weight=Weight.AFTERMATH,
        lines=6,
        until=r"E[IJL]\d{4}",
        refine=(
            Refine(r"EI0020|EJ0003|FailedtobindtheIPport", Kind.PORT_IN_USE),
            Refine(r"EI0005|EI0001", Kind.CODE_ERROR),
            Refine(r"EL0004", Kind.GPU_OOM),
            Refine(r"EI0002|EI0006", Kind.COLLECTIVE_TIMEOUT, Weight.AFTERMATH),
        ),
    ),
    Text(
        name="horovod",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=r"HorovodInternalError|Horovod has been shut down",
        example="horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception on one of the ranks",
        other="Horovod v0.28.1 is used with 8 ranks",
        source="horovod common/common.h",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="nvshmem",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=r"nvshmem initialization failed, exiting|nvshmem[^\s:]*:(?:\w+:)?\d+: (?:non-zero status|NULL value)",
        example="main_nvshmem/src/host/transport/transport.cpp:420: non-zero status: 7 connect EPS failed",
        other="nvshmem initialization took 4 s",
        source="nvshmem host/init/init.cu, host/transport/transport.cpp",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="nccl_last_error",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=r"nccl(?:UnhandledCudaError|SystemError|InternalError|RemoteError|InvalidUsage|InvalidArgument): ",
        example="ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        other="ncclSystemError is documented in the NCCL user guide",
        source="torch NCCLUtils.cpp",
        weight=Weight.AFTERMATH,
        lines=4,
        until=r"Lasterror:.{12}",
        refine=_LAST,
    ),
    Text(
        name="nccl_warn",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=(
            r"NCCL WARN (?:Cuda failure|NET/|\[?[^\n]*(?:[Cc]onnection (?:closed|refused|reset|timed out)|[Cc]onnect to|Call to |No route to host|timed out|completion from peer|Net : |Async fatal))"
            r"|NET/IB ?: (?:\S+ )?Got completion from peer|socketProgress(?:Opt)?: |socketStartConnect: |socketPollConnect[^\n]*(?:refused|failed|error)"
        ),
        example="gx:9921:10011 [2] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 10.0.4.19<4791> with error 12",
        other="gx-node-03:41234:41911 [0] NCCL INFO [Service thread] Connection closed by localRank 3",
        source="nccl src/misc/socket.cc, transport/net_ib.cc",
        weight=Weight.AFTERMATH,
        refine=(
            Refine(r"uncorrectable(?:ECC|NVLink)", Kind.GPU_FAULT),
            Refine(r"illegalmemoryaccess", Kind.CUDA_ERROR),
        ),
    ),
    Text(
        name="gloo_closed",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=r"Connection closed by peer \[|connectFullMesh failed|gloo[^\n]*(?:Connection reset by peer|Read error|Write error|Connection refused)",
        example="RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.4.9]:57000",
        other="gloo pair connected to [10.0.4.9]:57000",
        source="gloo transport/tcp/pair.cc",
        weight=Weight.AFTERMATH,
    ),
    Text(
        name="peer_gone",
        kind=Kind.COLLECTIVE_ERROR,
        pattern=r"DistNetworkError: |DistBackendError: |failed to recv, got 0 bytes|Connection was likely closed\. Did the remote server shutdown or crash|UCX +ERROR|Transport retry count exceeded on |RuntimeError: Connection reset by peer|RuntimeError: Broken pipe|The client socket has failed to connect",
        example="torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        other="connection to the metrics server was closed",
        source="torch TCPStore.cpp; UCX",
        weight=Weight.AFTERMATH,
        lines=6,
        until=r"Lasterror:.{12}|code:-\d+",
        refine=(*_LAST, Refine(r"EADDRINUSE|errno:98", Kind.PORT_IN_USE)),
    ),
    Text(
        name="store_noise",
        kind=Kind.COLLECTIVE_ERROR,
        # Printed at every end, good or bad, by those who look for a store that went first.
        pattern=r"recvValue failed on SocketImpl|sendBytes failed on SocketImpl|recvVector failed on SocketImpl|\"should dump\" flag on TCPStore|To avoid data inconsistency, we are taking the entire process down|Some NCCL operations have failed or timed out",
        example='Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe',
        other="TCPStore listening on 29500",
        source="torch TCPStore.cpp, ProcessGroupNCCL.cpp",
        weight=Weight.NOISE,
    ),
    Text(
        name="collective_mismatch",
        kind=Kind.CODE_ERROR,
        pattern=r"Detected mismatch between collectives on ranks|Collective \S+ (?:sequence number|shapes?) mismatch|Expected to have finished reduction in the prior iteration",
        example="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE, but Rank 1 is running BARRIER",
        other="collectives verified on ranks 0-7",
        source="torch ProcessGroupWrapper.cpp, reducer.cpp",
    ),
)
