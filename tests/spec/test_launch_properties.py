"""Whatever the spec and the failures: launches differ in nothing but knobs and checkpoint, and knobs only go down."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.evidence import Checkpoint
from supervisor.core.guard import argv_violations, environ_violations, file_violations, watched_keys
from supervisor.core.placing import RoleGpus
from supervisor.core.render import Placement, render, values
from supervisor.core.scalars import typed
from supervisor.core.spec import ConfigFile, Form, Knob, Param, Params, Resume, RunSpec, Scalar, Style

NAMES = st.lists(st.from_regex(r"[a-z]{1,6}(_[a-z]{1,4})?", fullmatch=True), min_size=2, max_size=6, unique=True)
VALUES = st.one_of(
    st.integers(-999, 999).map(lambda n: typed(str(n))),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda x: typed(repr(x))),
    st.booleans().map(lambda b: typed(str(b).lower())),
    st.text("abc xyz=,[]-'\"$", min_size=1, max_size=6).map(Scalar),
)
GPUS = {"r": RoleGpus((0, 1), (2, 5), ("GPU-a", "GPU-b"))}


@st.composite
def specs(draw):
    """A resolved spec: some params locked, some on a ladder, in any style; all of them reach the job."""
    names = draw(NAMES)
    cut = draw(st.integers(1, len(names) - 1))
    style = draw(st.sampled_from(list(Style)))
    protected = {name: draw(VALUES | st.lists(VALUES, min_size=1, max_size=3).map(tuple)) for name in names[:cut]}
    knobs = tuple(
        Knob(name=name, rungs=tuple({name: typed(str(n))} for n in range(9, 9 - draw(st.integers(1, 4)), -1)))
        for name in names[cut:]
    )
    how = {
        name: Param(
            name=name,
            form=draw(st.sampled_from([Form.SPACE, Form.EQUALS])),
            env=name.upper() if style is Style.ENV or draw(st.integers(0, 4)) == 0 else None,
        )
        for name in names
    }
    template = tuple(f"--{name}=${{{{ params.{name} }}}}" for name in names) if style is Style.TEMPLATE else ()
    where = draw(st.sampled_from([(), ("${{ params.args }}", "last")]))
    return RunSpec(
        name="run",
        command=("train", *template, *where),
        file="/s",
        workdir="/w",
        env={"FIXED": "1"},
        params=Params(style=style, protected=protected, knobs=knobs, how=how),
        files=(ConfigFile(name="c", from_="/c.yaml", set={name: f"${{{{ params.{name} }}}}" for name in names}),),
        resume=Resume(from_="/ck/*", args=("--resume", "${{ checkpoint.path }}")),
    )


def launch(spec, rungs, checkpoint):
    place = Placement(attempt=1, attempt_dir="/at", run_dir="/run", rungs=rungs, checkpoint=checkpoint, gpus=GPUS)
    return render(spec, place)


def descent(spec, draws):
    """Rungs as failures move them: each knob stays or goes one down, and never beyond its last rung."""
    rungs = {knob.name: 0 for knob in spec.params.knobs}
    yield dict(rungs)
    for lower in draws:
        for knob, moves in zip(spec.params.knobs, lower, strict=False):
            rungs[knob.name] = min(rungs[knob.name] + moves, len(knob.rungs) - 1)
        yield dict(rungs)


FAILURES = st.lists(st.lists(st.booleans(), min_size=6, max_size=6), max_size=5)


@settings(max_examples=200, deadline=None)
@given(specs(), FAILURES, st.integers(0, 900))
def test_launches_of_an_episode_differ_in_knobs_and_checkpoint_only(spec, failures, step):
    first = launch(spec, {}, None)
    for rungs in descent(spec, failures):
        taken = Checkpoint(f"/ck/step_{step}", step, 1, 1)
        then = launch(spec, rungs, taken)
        back = launch(spec, rungs, None)
        assert then.argv == (*back.argv, "--resume", taken.path)
        assert then.env == back.env
        assert undone(spec, back, rungs) == undone(spec, first, {})


def undone(spec, rendered, rungs):
    """A launch with every value of a knob taken out: by the knob's own spelling, so nothing else is hidden."""
    gone = object()
    knobs = {name: value.text for name, value in values(spec, rungs).items()}
    flags = {}
    for name, text in knobs.items():
        flags |= {f"--{name.replace('_', '-')}={text}": gone, f"{name}={text}": gone, f"--{name}={text}": gone}
    argv = []
    for before, item in zip(("", *rendered.argv), rendered.argv, strict=False):
        own = before.removeprefix("--").replace("-", "_")
        argv.append(gone if flags.get(item) or (before.startswith("--") and knobs.get(own) == item) else item)
    argv = [None if item is gone else item for item in argv]
    env = {name: None if name.lower() in knobs else text for name, text in rendered.env.items()}
    files = [{key: None if key in knobs else value for key, value in file.set.items()} for file in rendered.files]
    return argv, env, files


@settings(max_examples=200, deadline=None)
@given(specs(), FAILURES)
def test_no_launch_of_ours_ever_violates_what_is_locked(spec, failures):
    def clear(found):
        return [one for one in found if is_plain(spec.params.protected[one.param])]

    for rungs in descent(spec, failures):
        rendered = launch(spec, rungs, None)
        read = {key: rendered.files[0].set[key.key] for key in watched_keys(spec)}
        assert clear(argv_violations(spec, rendered.argv)) == []
        assert clear(environ_violations(spec, rendered.env)) == []
        assert clear(file_violations(spec, read)) == []


def is_plain(value):
    """A value that every command line can carry: no list (how its commas are split is the job's business), and no
    text that argparse takes for a flag."""
    return isinstance(value, Scalar) and not (value.tag == "str" and value.text.startswith("-"))


@settings(max_examples=100, deadline=None)
@given(specs(), st.data())
def test_any_other_value_of_what_is_locked_is_found_on_argv(spec, data):
    name = data.draw(st.sampled_from(sorted(spec.params.protected)))
    how = spec.params.how[name]
    wanted = spec.params.protected[name]
    if how.env is not None or spec.params.style is Style.ENV or not isinstance(wanted, Scalar) or wanted.tag == "bool":
        return
    argv = (*launch(spec, {}, None).argv, f"--{name}=12345")
    assert any(one.param == name and one.found == "12345" for one in argv_violations(spec, argv))


@settings(max_examples=200, deadline=None)
@given(specs(), FAILURES)
def test_knobs_only_go_down_their_rungs(spec, failures):
    before = None
    for rungs in descent(spec, failures):
        now = {name: int(value.text) for name, value in values(spec, rungs).items()}
        allowed = {knob.name: {int(rung[knob.name].text) for rung in knob.rungs} for knob in spec.params.knobs}
        assert all(now[name] in allowed[name] for name in now)
        assert before is None or all(now[name] <= before[name] for name in now)
        before = now
