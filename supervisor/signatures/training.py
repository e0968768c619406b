"""What training itself runs into: its data and its numbers. Data only."""
# ruff: noqa: E501  # messages stand as they are printed

from __future__ import annotations

from supervisor.core.evidence import Weight
from supervisor.core.kinds import Kind
from supervisor.signatures.model import Refine, Text

TEXTS = (
    Text(
        name="bad_sample",
        kind=Kind.DATA_ERROR,
        pattern=(
            r"cannot identify image file|UnidentifiedImageError|image file is truncated|broken data stream when reading image|stack expects each tensor to be equal size|Error -\d+ while decompressing"
            r"|zlib\.error|BadGzipFile|Not a gzipped file|CRC check failed|Compressed file ended before|ZstdError|LZMAError|lz4[^\n]*[Dd]ecompress|JSONDecodeError|Expecting value: line \d+ column|simdjson[^\n]*[Ee]rror"
            r"|ArrowInvalid|ArrowTypeError|[Pp]arquet magic bytes not found|Couldn't deserialize thrift|Error tokenizing data|DatasetGenerationError|DatasetGenerationCastError|CastError|Couldn't cast"
            r"|UnicodeDecodeError|tarfile\.ReadError|ReadError: (?:unexpected end of data|bad checksum|file could not be opened)|DataLossError|corrupted record at|DATA_LOSS"
            r"|Invalid key: \d+ is out of bounds for size 0|DatasetNotFoundError|each element in list of batch should be of equal size|Trying to resize storage that is not resizable|num_samples should be a positive integer|The dataset is empty|Index file doesn't match expected format|Could not convert string to float|could not convert string to float"
            r"|(?:[Cc]orrupt(?:ed)?|[Tt]runcated|[Mm]alformed|[Ii]nvalid) (?:\S+ )?(?:shard|record|sample|jpeg|JPEG|image|row|tfrecord|parquet|jsonl?|example)\b[^\n]*|EncodingError|SchemaInferenceError"
            r"|LibsndfileError|DecordError|InvalidDataError|Invalid data found when processing input|!_src\.empty\(\)|lmdb\.\w*(?:Corrupted|PageNotFound|Invalid)\w*|Can't (?:synchronously )?read data \(|Unable to (?:synchronously )?open file \(|[Cc]hecksum (?:failure|mismatch|error)|Non[Mm]atching(?:Checksum|Splits)\w*|ExpectedMoreSplits"
            r"|[Uu]nable to create tensor, you should probably activate (?:truncation|padding)|not enough values to unpack \(expected \d+, got \d+\)[^\n]*dataset"
        ),
        example="PIL.UnidentifiedImageError: cannot identify image file '/data/img/0091/88120.jpg'",
        other="skipping 0 corrupt files",
        source="PIL, zlib, json, pyarrow, datasets, tarfile, TensorFlow, torch collate",
    ),
    Text(
        name="data_file_missing",
        kind=Kind.DATA_ERROR,
        pattern=r"(?:No such file or directory:|Unable to find) '[^'\n]*(?:/data/|dataset|shard|\.parquet|\.jsonl?|\.arrow|\.tar|\.idx|\.bin|\.tfrecord|\.npy|\.csv|\.jpe?g|\.png)[^'\n]*'|DataFilesNotFoundError|EmptyDatasetError",
        example="FileNotFoundError: [Errno 2] No such file or directory: '/data/shards/train-00417.parquet'",
        other="FileNotFoundError: [Errno 2] No such file or directory: 'conf/sft.yaml'",
        source="Python",
    ),
    Text(
        name="sample_key",
        kind=Kind.DATA_ERROR,
        pattern=r"KeyError: ['\"](?:input_ids|attention_mask|labels|text|tokens|messages|prompt|chosen|rejected|image|images|pixel_values|caption|content|conversations)['\"]|Column '?\w+'? (?:not|doesn't|does not) (?:in|exist)|\bColumns?\b[^\n]{0,60} not in the dataset|dataset[^\n]{0,40}does not (?:have|contain) (?:the )?column",
        example="KeyError: 'input_ids'",
        other="KeyError: 'acc_len'",
        source="Python",
    ),
    Text(
        name="loader_worker",
        kind=Kind.DATA_ERROR,
        pattern=r"Caught \w+ in DataLoader worker process \d+",
        example="RuntimeError: Caught RuntimeError in DataLoader worker process 2.",
        other="Using 8 DataLoader worker processes",
        source="torch/_utils.py",
        weight=Weight.GENERIC,
        # A worker runs the job's code: these tell of code whatever the data are.
        refine=(
            Refine(
                r"Caught(?:AttributeError|NameError|UnboundLocalError|NotImplementedError|ImportError|ModuleNotFoundError|SyntaxError)in",
                Kind.CODE_ERROR,
                Weight.GENERIC,
            ),
        ),
    ),
    Text(
        name="loader_exited",
        kind=Kind.DATA_ERROR,
        pattern=r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) exited unexpectedly|DataLoader timed out after \d+ seconds",
        example="RuntimeError: DataLoader worker (pid(s) 51233, 51240) exited unexpectedly",
        other="DataLoader workers exited",
        source="torch/utils/data/dataloader.py",
        weight=Weight.GENERIC,
    ),
    Text(
        name="loss_lost",
        kind=Kind.NUMERIC,
        pattern=(
            r"[Ll]oss is (?:nan|NaN|NAN|inf|-inf|infinite|not finite)|[Ll]oss became (?:infinite|NaN|nan)|[Mm]inimum loss scale reached|Current loss scale already at minimum|found (?:NaN|Inf) in local"
            r"|Unexpected result (?:nan|inf|spiky)|tensor contains either `?inf`?, `?nan`?|returned nan values in its|The total norm of order [^\n]* is non-finite"
            r"|non-finite (?:steps?|loss\w*|gradients?|values?)\b[^\n]*(?:abort|stopp?ing|exit|giving up|terminat)|(?:abort|stopp?ing|exit|terminat)\w*[^\n]{0,60}(?:NaN|nan|non-finite)\b|FloatingPointError"
            r"|(?:NaN|Nan|nan|Inf)s? (?:or Inf )?(?:loss|losses|gradients?|grads?) (?:was |were )?(?:detected|encountered|found)|(?:[Dd]etected|[Ee]ncountered|[Ff]ound) (?:a )?(?:NaN|Nan|nan|inf|Inf)s?(?: or [Ii]nf(?:inite)?)? (?:values? )?(?:in|loss|for)"
            r"|found invalid values:|loss (?:has )?(?:diverged|exploded)|Loss (?:has )?(?:diverged|exploded)|loss returned in `\w+` is (?:nan|inf)|Invalid loss, terminating training|(?:Error|Exception): [^\n]{0,80}\b(?:nan|NaN|non-finite|infinite) (?:loss|grad)|(?:Error|Exception): [^\n]{0,80}\b(?:[Ll]oss|LOSS|[Gg]rad\w*)\b[^\n]{0,60}\b(?:nan|NaN|NAN|inf|Inf|non-finite|infinite)\b|Input contains NaN|Model parameters? contains? NaN|gradient explosion detected"
        ),
        example="[rank5]: RuntimeError: Rank 5, node gx-node-03, device 5, iteration 31002: Unexpected result nan (message='found NaN in local forward loss calculation')",
        other="OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        source="Megatron-LM, DeepSpeed, fairseq, timm, Lightning, torch anomaly mode, jax",
        details=(r"Rank(?P<rank>\d+),node[^,]*,device(?P<gpu>\d+),",),
    ),
    Text(
        name="loss_scale_gone",
        kind=Kind.NUMERIC,
        pattern=r"Skipping step, loss scaler \d+ reducing loss scale to (?:0\.0\b|\d+(?:\.\d+)?e-(?:0[7-9]|[1-9]\d))",
        example="Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 2.9103830456733704e-11",
        other="Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
        source="NVIDIA Apex: the scale is halved for ever, below 1e-6 nothing of half precision is left",
        weight=Weight.GENERIC,
        repeats=3,
    ),
    Text(
        name="loss_nan_steps",
        kind=Kind.NUMERIC,
        pattern=r"\b(?:[a-z_]*loss|Loss|grad_norm)['\"]?[ =:]+(?:nan|NaN|inf|-inf)\b",
        example="2026-02-11 04:00:11,004 WARNING drafter step 880 | loss nan | gnorm nan | skipped non-finite step (1/5)",
        other="step 880 | loss 2.31 | nan_steps 0",
        source="training scripts",
        weight=Weight.GENERIC,
        repeats=3,
    ),
)
