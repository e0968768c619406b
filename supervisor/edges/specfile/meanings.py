"""What each key of a spec means, in words: for the reference and for editors. Whether a value is right is not said here.

One line for each key: `path | default | meaning`. A path is that of a mistake, with NAME for a key of the user's own and
`[]` for an item of a list. A key that other lines begin with is a section; a line without a default is required.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_WRITING = {
    "flag": ("its name", "The flag as the job wants it, with its dashes, such as `--max-anchors`."),
    "form": ("space", "`--k v`, `--k=v`, or `--k` alone."),
    "env": ("none", "The variable that carries it instead of a flag."),
    "aliases": ("none", "Other names of the flag; guarded too."),
}
"""How a param is written, wherever one stands."""

_LINES = r"""
version | | `1`.
name | | The identity of the run: 1 to 40 of a-z, 0-9 and -.
command | | The job as a list of words, no shell. Several commands: write a script and name it here.
workdir | the spec's folder | Where the job runs; every other relative path of the spec starts in it.
venv | none | The job's environment: its bin comes first in PATH, `command[0]` is looked up there. Never the one that supervise is installed in.
env | none | Variables for the job, over those of the `up` that launched it.
env_file | none | A file of `NAME=value` lines; every value in it is a secret.
secrets | none | Names of variables whose values are never shown or written down.
topology | none: no GPUs | The GPUs by role: a count, a list of indices or UUIDs, or a mapping. Counts are laid out in order; a GPU is in at most one role.
topology.NAME.gpus | | The role's GPUs: a count or a list.
topology.NAME.silent | relaunch | What happens when a GPU of the role falls silent while the others train.
topology.NAME.util_below | 5 | A GPU below this utilisation, in percent, is silent.
topology.NAME.for | 2m | For so long.
topology.NAME.may_finish | false | The role may end before the others, and is then not silent.
visible | index | How CUDA_VISIBLE_DEVICES names the run's GPUs; `none` leaves it alone.
launch.terminal | tmux | `none` runs the job without a terminal to attach to.
launch.pty | false | The job itself gets a terminal: for progress bars that want one.
params.style | argparse | How params reach the job: flags at the end, hydra's `k=v`, variables in UPPER_CASE, or (`template`) only where `${{ params.K }}` stands.
params.protected | none | What shapes the training signal: hashed at the first launch, checked on every attempt, never changed. `file:key` names a value in a config file.
params.protected.NAME.value | | The locked value.
params.knobs | none | The only things that recovery may change, each down its ladder.
params.knobs.NAME.value | | Where the knob starts.
params.knobs.NAME.ladder | none | Where it may go, in order.
params.knobs.NAME.rungs | none | Instead of value and ladder: sets of params that move together, the start first.
params.knobs.NAME.keep | none | An expression that every rung leaves equal, such as `micro_batch * grad_accum`.
params.knobs.NAME.direction | down | `up`: the rungs rise instead of falling.
params.knobs.NAME.venv | false; true for a knob called venv | The rungs are environments of the job, the first is `venv`. Only a rule that names the knob moves it.
params.knobs.NAME.how | none | How each param of the set is written.
files | none | Copies of config files with values set, one for each attempt.
files.NAME.from | | The file (YAML, JSON or TOML). It is reached as `${{ files.NAME }}`.
files.NAME.set | none | Dotted keys and their values.
code.protect | scripts and config files of the command | What is hashed at the first launch and compared before each.
code.on_change | warn | What a change of it means: `halt` launches nothing more.
code.snapshot | false | Every attempt until the next `up` is launched from a copy of the tracked and dirty files (without git: of scripts and configs), started in `workdir` as ever. What it holds is in docs/code.md.
data | none | Paths whose file count, size, newest file and names are compared with the last attempt that made progress.
data.paths | | Those paths.
data.on_change | warn | What a change of them means: `fail` refuses the launch.
resume.from | | A glob of the checkpoints.
resume.start | none | The checkpoint of the run's first launch: a name beside the matches, or a path.
resume.arg | none | The flag before the checkpoint's path; glued where it ends in `=`.
resume.args | none | Or the words themselves, with `${{ checkpoint.path }}`.
resume.complete | none | Globs inside a checkpoint that must match files which are not empty.
resume.step | by its name | A pattern with one group that finds the step in a checkpoint's name; `none` where it has none.
resume.if_none | fresh until the run has had one, then fail | What a launch without a checkpoint is.
resume.mode | explicit | `auto`: the trainer chooses; it is launched only if that is what supervise would choose.
resume.keep | all | So many of the run's own complete checkpoints are kept; older ones are renamed, journalled and removed, never the start or one in use.
output.dir | none | The output directory.
output.stale | keep | What is done with one that is there before a launch.
output.units | none | A glob of output shards: what matches is never stale; one that a dead attempt left cut off is renamed before the relaunch.
ports | none | Ports by name: a number, or `auto` for a free one; `${{ ports.NAME }}`.
pins | none | Versions that the job's environment must have. `on_drift: warn` only tells; `freeze: true` pins what the last good attempt had.
preflight.gpus_empty | true | Every GPU must be read as empty before the first launch.
preflight.disk_free | none | So much must be free where the job writes.
preflight.checks | none | Commands that must succeed before a launch.
rehearsal | none | A small run before the full one: watched like any other, ended when it has passed. What it writes where the run writes lies in its attempt's folder, and its checkpoints are never taken.
rehearsal.params | none | Params that differ in it; a knob's, or others that the command takes. Never a protected one.
rehearsal.args | none | Words added to the command in it.
rehearsal.pass.steps | 20 | It has passed after so many steps,
rehearsal.pass.within | 15m | within this time.
hooks.before_launch | none | A command before each launch, run as a member of the run; where it fails nothing is launched. It must bear to be run twice.
hooks.after_stop | none | A command after each attempt, once its GPUs are verified; where it fails that is told.
hooks.timeout | 5m | How long each may take.
logs | none | Further log files: globs that are read from their size at the launch.
logs.[].ranks | | The folder of torchrun's `--log-dir`.
logs.ranks | none | The folder of torchrun's `--log-dir`.
logs.globs | none | Globs beside it.
health.startup_timeout | 2h, later learned | How long the first progress may take.
health.progress | none: running when alive | How progress is known.
health.progress.log | none | A pattern with a group `step`, and optionally `rate`, `loss` and `total`.
health.progress.in | the job's output | Globs of the files in which that pattern is looked for.
health.progress.stall | auto | A run without a step for so long hangs.
health.progress.files | none | A glob: the count of complete files is the step.
health.progress.jsonl.file | | A file of JSON lines.
health.progress.jsonl.step | | The key of the step in it.
health.progress.jsonl.loss | none | The key of the loss in it.
health.progress.heartbeat | none | A file that is touched while the job lives.
health.phases | none | Parts of a run with a limit of their own, such as an evaluation.
health.phases.[].name | | The phase's name, for `recovery.rules`.
health.phases.[].from | | The text that begins it.
health.phases.[].to | | The text that ends it.
health.phases.[].limit | | How long it may take.
health.silent_gpu.util_below | 5 | The default of all roles.
health.silent_gpu.for | 2m | The default of all roles.
health.lost_progress | halt | What a job that begins further back than its checkpoint means.
health.numeric.steps | 3 | So many steps with a loss that is NaN or infinite are a failure.
done | the job's exit 0 | What finished means besides: one of these.
done.step | none | This step was reached.
done.file | none | This file is there.
done.log | none | This text was printed.
recovery.max_attempts | 6 | So many failed attempts that gained no checkpoint
recovery.per | 12h | in this time halt the run.
recovery.stop.signal | SIGTERM | What asks the job to end.
recovery.stop.grace | 60s | How long it may take before it is killed.
recovery.verify_zero.stable_for | 2s | The GPUs must be empty for so long.
recovery.verify_zero.timeout | 5m | How long our own leftovers and unreadable GPUs are waited for.
recovery.verify_zero.floor | learned | What an empty GPU shows as used.
recovery.verify_zero.foreign.wait | 0s | How long GPUs that others hold are waited for.
recovery.verify_zero.foreign.allow | 0MiB | What others may hold of each GPU: your consent to resident holders.
recovery.backoff.first | 5s | The wait before a relaunch for the same cause; four times as long each time,
recovery.backoff.cap | 10m | and never longer.
recovery.rules | the built-in policy | What is done about a failure: the first rule that matches; then the built-in policy (failure-kinds.md).
recovery.rules.[].on | | The kind of failure, or several.
recovery.rules.[].do | | What is done.
recovery.rules.[].lower | none | The knobs that go down a rung.
recovery.rules.[].lower.one_of | | Only one of these: the first that has a rung left.
recovery.rules.[].role | any | Only where a GPU of this role failed.
recovery.rules.[].phase | any | Only in this phase of `health.phases`; or `starting` (before its first step), `running`.
recovery.rules.[].match | any | Only where the deciding lines match.
recovery.rules.[].after | any | Only when the attempt has lived for so long.
recovery.rules.[].times | no limit | So often, then the next rule.
recovery.rules.[].from | newest | `older`: from the checkpoint before the newest.
recovery.rules.[].wait | by backoff | Wait so long before the relaunch.
signatures | none | Failure texts of your own.
signatures.[].name | | What it is called.
signatures.[].kind | | The kind of failure that it means.
signatures.[].match | | The pattern; RE2, so it takes linear time.
notify.urls_from | SUPERVISE_NOTIFY | The variable that holds the addresses, parted by white space: http(s) is a webhook, all else takes apprise.
notify.on | [recovered, degraded, foretold, waiting, halted, finished] | What is told.
notify.command | none | A command, run in workdir, that gets each message as JSON on its standard input.
notify.heartbeat.url_from | | The variable that holds an address which is asked (GET) while the run is in order.
notify.heartbeat.every | 5m | How often.
notify.morning | none | The time of day, such as "08:00", at which the night is summed up.
steps | none | How many steps there are, for the time that is left.
cost_per_hour | none | What an hour of the box costs, for the report.
tracking.wandb | none | `true` or an id: WANDB_RUN_ID and WANDB_RESUME are the same in every attempt. For a job in which one process reports.
tracking.wandb.id | made of the run | The id.
tracking.wandb.resume | allow | WANDB_RESUME.
tracking.mlflow | none | The id of an MLflow run that is there: MLFLOW_RUN_ID in every attempt.
tracking.tensorboard | none | The folder of event files whose scalars the report shows.
tracking.tensorboard.logdir | | That folder.
tracking.tensorboard.loss | as in the log | The tag of the loss.
tracking.tensorboard.rate | as in the log | The tag of the rate.
"""


@cache
def meanings() -> dict[str, tuple[str, str]]:
    """Path → (default, meaning)."""
    found: dict[str, tuple[str, str]] = {}
    for line in _LINES.strip().splitlines():
        path, default, meaning = (part.strip() for part in line.split("|", 2))
        found[path] = (default, meaning)
    for path in ("params.protected.NAME", "params.knobs.NAME", "params.knobs.NAME.how.NAME"):
        found |= {f"{path}.{key}": said for key, said in _WRITING.items()}
    return found


def described(json: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """The JSON Schema with each key's meaning, for editors to show. The one given is left as it is."""
    out = dict(json)
    if "anyOf" in json:
        out["anyOf"] = [described(one, path) for one in json["anyOf"]]
    if isinstance(json.get("properties"), dict):
        out["properties"] = {
            key: _told(described(one, (*path, key)), (*path, key)) for key, one in json["properties"].items()
        }
    if isinstance(json.get("additionalProperties"), dict):
        out["additionalProperties"] = described(json["additionalProperties"], (*path, "NAME"))
    if isinstance(json.get("items"), dict):
        out["items"] = described(json["items"], (*path, "[]"))
    return out


def _told(json: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    default, meaning = meanings().get(".".join(path), ("", ""))
    if not meaning:
        return json
    return {"description": f"{meaning} Default: {default}." if default else meaning, **json}
