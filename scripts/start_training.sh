#!/usr/bin/env bash
# Starts the trainer named by TRAIN_SCRIPT with the flags given here, in this very process: no shell stays behind
# that could outlive it or hide its exit code. TRAIN_SCRIPT is an executable, or a Python file, which runs under
# TRAIN_PYTHON (python3 where that is not set).
set -euo pipefail

if [[ -z "${TRAIN_SCRIPT:-}" ]]; then
    echo "start_training.sh: TRAIN_SCRIPT is not set: set it to the trainer, for instance under 'env:' in the run spec" >&2
    exit 78 # EX_CONFIG
fi
if [[ ! -f "$TRAIN_SCRIPT" ]]; then
    echo "start_training.sh: no trainer at TRAIN_SCRIPT=$TRAIN_SCRIPT (looked from $PWD)" >&2
    exit 78
fi
if [[ "$TRAIN_SCRIPT" == *.py ]]; then
    exec "${TRAIN_PYTHON:-python3}" "$TRAIN_SCRIPT" "$@"
fi
if [[ ! -x "$TRAIN_SCRIPT" ]]; then
    echo "start_training.sh: TRAIN_SCRIPT=$TRAIN_SCRIPT is neither a .py file nor executable: chmod +x it" >&2
    exit 78
fi
[[ "$TRAIN_SCRIPT" == */* ]] || TRAIN_SCRIPT="./$TRAIN_SCRIPT"
exec "$TRAIN_SCRIPT" "$@"
