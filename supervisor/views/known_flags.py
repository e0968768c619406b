"""Flags of training scripts by what they mean, as many trainers name them: `-` as `_`, without a prefix."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOCKED = _words(
    """
    lr learning_rate max_lr min_lr seed weight_decay wd warmup warmup_steps warmup_ratio lr_scheduler_type
    scheduler max_steps num_steps total_steps train_steps max_iters num_train_epochs epochs max_epochs
    num_epochs block_size seq_len seq_length max_seq_len max_seq_length max_length context_length anchors
    global_batch_size adam_beta1 adam_beta2 beta1 beta2 dropout optimizer optim precision dtype grad_clip
    max_grad_norm temperature
    """
)
"""What shapes the training signal."""
MICRO = _words(
    """
    micro_batch micro_batch_size mbs per_device_train_batch_size per_device_batch_size device_batch_size
    batch_size train_micro_batch_size_per_gpu
    """
)
"""Samples in one pass."""
ACCUMULATION = _words(
    """
    grad_accum grad_accum_steps gradient_accumulation gradient_accumulation_steps accumulate_grad_batches
    accumulation_steps grad_acc accum accum_steps accum_iter
    """
)
"""Passes in one step."""
OTHER_SIZES = _words(
    """
    token_budget max_tokens max_tokens_per_batch max_batch_size max_num_tokens
    """
)
"""What else decides how much memory a pass takes."""
RESUME = _words(
    """
    resume resume_from resume_from_checkpoint ckpt_path restore load_checkpoint init_from resume_path
    """
)
"""The checkpoint to start from."""
OUTPUT = _words(
    """
    output_dir out_dir output
    """
)
"""Where the job writes."""
STEPS = _words(
    """
    max_steps num_steps total_steps train_steps max_iters
    """
)
"""How many steps there are."""
