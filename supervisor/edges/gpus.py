"""The GPUs of this box, read through one helper process that can be given up. No opinion on what is empty.

Rule 1: what was not read in time is `Unreadable`, never zero and never the reading before.
Rule 2: one helper at a time. While one that was given up still hangs, none is started and the GPUs are unknown.
Rule 3: nothing here blocks but `list` (its timeout) and `close`. `fileno()` becomes readable when answers wait.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from supervisor.core.errors import Exit, Refusal
from supervisor.core.evidence import Gpu, GpuSeen, Reading, Unreadable, Uuid
from supervisor.edges.gpus_link import Link, boot_s, options_for

MIB = 2**20
INIT_DEADLINE_S = 30.0  # nvmlInit wakes sleeping GPUs: 1-3 s each with persistence off
START_AGAIN_S = 5.0  # a helper that ends by itself is not started each second
RENEW_AFTER_S = 30.0  # a helper that lost the driver is replaced, as only a new process loads the new library
DRIVER_WIDE = frozenset({1, 9, 18, 999})  # nvml.h: not one GPU's fault

ADVICE = {
    12: "no NVIDIA driver was found here (libnvidia-ml.so.1 is missing). Install the driver, or give this container "
    "the GPUs (docker: --gpus all; LXC: bind the driver's libraries and /dev/nvidia*). Without GPUs: `up --simulate`",
    9: "the NVIDIA driver is installed but not loaded (NVML 9). Load it (`modprobe nvidia`) or reboot",
    18: "the NVIDIA driver was upgraded while in use: library and kernel module differ (NVML 18). What runs goes on; "
    "the GPUs are unknown until the module is reloaded or the box rebooted",
    999: "NVML answers Unknown Error (NVML 999), so the GPUs are unknown. In docker this often follows a "
    "`systemctl daemon-reload`: recreate the container; else see `dmesg`",
}


class GpusUnavailable(Refusal):
    """The GPUs of this box cannot be listed. `code` is NVML's; 12 means: there is no driver at all. Never zero GPUs."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(Exit.PREFLIGHT, why)
        self.code = code


class _Asked(Struct):
    """A request that is on its way; `left` are the GPUs without an answer, in the order of reading."""

    since_boot_s: float
    left: list[Uuid]
    codes: list[int | None]
    listing: bool = False
    health: bool = False


class Gpus:
    """Readings of GPUs. `driver` and `unlisted` (GPUs that did not answer by name) are those of the last `list`."""

    def __init__(
        self, *, world: Path | None = None, deadline_s: float = 10.0, init_deadline_s: float = INIT_DEADLINE_S
    ) -> None:
        self._options = options_for(world)
        self._deadline_s = deadline_s
        self._init_deadline_s = max(deadline_s, init_deadline_s)
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._link: Link | None = None
        self._given_up: Link | None = None
        self._not_before_boot_s = 0.0
        self._last_why = ""
        self._number = 0
        self._asked: dict[int, _Asked] = {}
        self._next: tuple[dict[Uuid, None], bool] | None = None
        self._seen: dict[Uuid, GpuSeen] = {}
        self._indices: dict[Uuid, int] = {}
        self._listed: dict[int, dict[str, Any]] = {}
        self.health: dict[Uuid, dict[str, Any]] = {}
        self.health_boot_s = float("-inf")
        self.driver: str | None = None
        self.unlisted: tuple[str, ...] = ()

    def start(self) -> None:
        """Starts the helper, so that its nvmlInit runs while others work."""
        self._linked()

    def fileno(self) -> int:
        """Readable when a request was answered. The same number for life."""
        return self._wake_r

    def list(self, timeout_s: float = INIT_DEADLINE_S) -> tuple[Gpu, ...]:
        """All GPUs that answer, by index. GpusUnavailable says why there is no list; it never means "no GPUs"."""
        until = boot_s() + timeout_s
        link = self._linked()
        if isinstance(link, str):
            raise GpusUnavailable(link)
        number = self._send(link, {"do": "list"}, _Asked(boot_s(), [], [], listing=True))
        poll = select.poll()
        poll.register(link, select.POLLIN)
        while number in self._asked and self._link is link:
            left_s = until - boot_s()
            if left_s <= 0:
                raise GpusUnavailable(f"NVML has not answered for {timeout_s:g} s; the GPUs are unknown")
            poll.poll(min(left_s, 1.0) * 1000)
            self._pump()
        answer = self._listed.pop(number, None)
        if answer is None:
            raise GpusUnavailable(self._last_why)
        if "why" in answer:
            code = answer["code"]
            raise GpusUnavailable(ADVICE.get(code, f"the GPUs cannot be listed: {answer['why']}"), code)
        return self._note_list(answer)

    def ask(self, uuids: Iterable[Uuid], processes: bool = False) -> None:
        """Asks for readings and returns at once. While one request is on its way the next waits; a third joins it."""
        self._pump()
        wanted = dict.fromkeys(uuids)
        link = self._linked()
        if isinstance(link, str):
            self._unknown(wanted, boot_s(), link)
        elif any(not (asked.listing or asked.health) for asked in self._asked.values()):
            before, also = self._next or ({}, False)
            self._next = ({**before, **wanted}, processes or also)
        elif wanted:
            self._send_read(link, wanted, processes)

    def ask_health(self, uuids: Iterable[Uuid]) -> None:
        """Asks how well the GPUs are and returns at once; `health` has the newest answer, as of `health_boot_s`."""
        self._pump()
        link = self._linked()
        if not isinstance(link, str):
            wanted = [*uuids]
            self._send(link, {"do": "health", "gpus": wanted}, _Asked(boot_s(), wanted, [], health=True))

    def take(self) -> dict[Uuid, GpuSeen]:
        """The newest finished reading of each GPU asked for so far; `began_boot_s` tells old from new."""
        self._pump()
        return dict(self._seen)

    def close(self) -> None:
        """Ends the helper and waits for that, at most 2 s."""
        for link in (self._link, self._given_up):
            if link is not None:
                link.end()
        self._link = self._given_up = None
        for fd in (self._wake_r, self._wake_w):
            os.close(fd)

    # ── the helper's life ────────────────────────────────────────────────────────────────────────────────────────────

    def _linked(self) -> Link | str:
        """The helper, started if need be; or why there is none now."""
        if self._link is not None:
            return self._link
        if self._given_up is not None:
            if not self._given_up.gone():
                pid = self._given_up.process.pid
                return f"NVML hangs: the helper (pid {pid}) that was given up has not ended; the GPUs are unknown"
            self._given_up = None
        if boot_s() < self._not_before_boot_s:
            return self._last_why
        try:
            self._link = Link(self._wake_w, self._options)
        except OSError as error:
            self._last_why = f"the NVML helper could not be started: {error}"
            return self._last_why
        return self._link

    def _pump(self) -> None:
        """Takes what has come, and gives up what has not."""
        with suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass
        link = self._link
        if link is None:
            return
        for answer in link.lines():
            self._note(answer)
        if self._link is not link:
            return
        if link.closed:
            self._lose(link.why_closed(), again_s=START_AGAIN_S)
        else:
            self._give_up_if_overdue(link)

    def _give_up_if_overdue(self, link: Link) -> None:
        now = boot_s()
        ready = link.ready_boot_s
        for asked in self._asked.values():
            if now - max(asked.since_boot_s, ready or 0.0) <= self._deadline_s:
                continue
            if ready is None and now - link.started_boot_s <= self._init_deadline_s:
                why = f"NVML is still starting after {now - link.started_boot_s:.0f} s"
                self._unknown(asked.left, asked.since_boot_s, why)
                continue
            at = f" while GPU {self._name(asked.left[0])} was being read" if ready and asked.left else ""
            self._lose(f"NVML gave no answer for {now - asked.since_boot_s:.0f} s{at}; its helper was given up")
            return

    def _lose(self, why: str, again_s: float = 0.0) -> None:
        """Gives the helper up; everything that was asked of it is unknown."""
        asked, self._asked = self._asked, {}
        waiting, self._next = self._next, None
        self._last_why, self._not_before_boot_s = why, boot_s() + again_s
        if self._link is not None:
            self._link.kill()
            self._given_up, self._link = self._link, None
        for each in asked.values():
            if not each.health:
                self._unknown(each.left, each.since_boot_s, why)
        if waiting is not None:
            self._unknown(waiting[0], boot_s(), why)

    # ── requests and answers ─────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, link: Link, request: dict[str, Any], asked: _Asked) -> int:
        self._number += 1
        self._asked[self._number] = asked
        if not link.send({"id": self._number, **request}):
            self._lose("the NVML helper takes no requests any more", again_s=START_AGAIN_S)
        return self._number

    def _send_read(self, link: Link, wanted: Iterable[Uuid], processes: bool) -> None:
        uuids = [*wanted]
        request = {"do": "read", "gpus": uuids, "processes": processes}
        self._send(link, request, _Asked(boot_s(), uuids.copy(), []))

    def _note(self, answer: dict[str, Any]) -> None:
        asked = self._asked.get(answer["id"])
        if asked is None:
            return
        if asked.listing:
            self._listed[answer["id"]] = answer
            del self._asked[answer["id"]]
            return
        if asked.health:
            self.health, self.health_boot_s = answer["health"], asked.since_boot_s
            del self._asked[answer["id"]]
            return
        uuid = answer["gpu"]
        self._seen[uuid] = self._reading(uuid, answer)
        asked.left.remove(uuid)
        asked.codes.append(answer.get("code"))
        if not asked.left:
            del self._asked[answer["id"]]
            self._after(asked)

    def _after(self, asked: _Asked) -> None:
        """A request was answered in full: send what waits, or renew a helper that has lost the driver."""
        link, waiting = self._link, self._next
        if link is None:
            return
        self._next = None
        if DRIVER_WIDE.issuperset(asked.codes) and boot_s() - link.started_boot_s > RENEW_AFTER_S:
            self._lose(f"NVML has lost the driver ({asked.codes[0]}); a new helper is started")
        elif waiting is not None:
            self._send_read(link, *waiting)

    def _reading(self, uuid: Uuid, answer: dict[str, Any]) -> GpuSeen:
        if "why" in answer:
            why = ADVICE.get(answer["code"], answer["why"])
            return Unreadable(uuid, self._indices.get(uuid), answer["began"], why)
        reserved, power, pids = answer["reserved"], answer["power"], answer["pids"]
        if answer["index"] is not None:
            self._indices[uuid] = answer["index"]
        return Reading(
            gpu=uuid,
            index=self._indices.get(uuid, -1),
            began_boot_s=answer["began"],
            used_mib=answer["used"] / MIB,
            total_mib=answer["total"] / MIB,
            reserved_mib=None if reserved is None else reserved / MIB,
            util_pct=answer["util"],
            v2=answer["v2"],
            temperature_c=answer["temperature"],
            power_w=None if power is None else power / 1000,
            pids=None if pids is None else tuple(pids),
        )

    def _unknown(self, uuids: Iterable[Uuid], began_boot_s: float, why: str) -> None:
        for uuid in uuids:
            self._seen[uuid] = Unreadable(uuid, self._indices.get(uuid), began_boot_s, why)

    def _note_list(self, answer: dict[str, Any]) -> tuple[Gpu, ...]:
        gpus = tuple(Gpu(**card) for card in answer["gpus"])
        self._indices = {**self._indices, **{gpu.uuid: gpu.index for gpu in gpus}}
        self.driver, self.unlisted = answer["driver"], tuple(answer["unlisted"])
        return gpus

    def _name(self, uuid: Uuid) -> str:
        index = self._indices.get(uuid)
        return uuid if index is None else str(index)


def resolve(ids: Sequence[str], gpus: Sequence[Gpu], unlisted: Sequence[str] = ()) -> tuple[Gpu, ...]:
    """The GPUs that these indices or UUIDs name, in their order. Refusal (6) for one that is not here, or is MIG."""
    by_name = {name: gpu for gpu in gpus for name in (str(gpu.index), gpu.uuid)}
    there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
    silent = f" Not answering: {'; '.join(unlisted)}." if unlisted else ""
    found = []
    for each in ids:
        gpu = by_name.get(each)
        if each.startswith("MIG-") or (gpu is not None and gpu.mig):
            what = f"GPU {each} is a MIG instance" if gpu is None else f"GPU {each} is cut into MIG instances"
            advice = "supervise proves whole GPUs empty, so name a whole one, or switch MIG off (`nvidia-smi -mig 0`)."
            raise Refusal(Exit.PREFLIGHT, f"{what}, which is not supported: {advice}")
        if gpu is None:
            advice = "Name one of these by index or UUID."
            raise Refusal(Exit.PREFLIGHT, f"GPU {each} is not on this box. There are: {there}.{silent} {advice}")
        found.append(gpu)
    return tuple(found)
