"""Clusters of real processes and the SDK programs around them, for run.py and demo.py."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("RAFTMQ_CACHE", pathlib.Path.home() / ".cache" / "raftmq"))
BIN = os.environ.get("RAFTMQ_BIN", str(CACHE / "target" / "release" / "raftmq"))


class Failed(Exception):
    """Something that must hold does not; the text says what."""


def free_port(count):
    """The first of `count` ports in a row that nobody listens on."""
    for base in range(21000 + os.getpid() % 500 * 20, 32000, 20):
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
    raise Failed("no free ports")


class Cluster:
    """Three nodes on loopback, made by `raftmq playground`."""

    def __init__(self, groups=1, nodes=3):
        self.data = tempfile.mkdtemp(prefix="raftmq-conformance-")
        self.run("playground", "--nodes", str(nodes), "--groups", str(groups), "--port", str(free_port(20)), "--detach", timeout=60)
        self.nodes = json.loads((pathlib.Path(self.data) / "playground.json").read_text())["nodes"]
        self.endpoints = ";".join(node["client"] for node in self.nodes)

    def run(self, *words, timeout=30):
        """One raftmq command against this cluster; its standard output."""
        done = subprocess.run([BIN, *words, "--data", self.data], capture_output=True, text=True, timeout=timeout)
        if done.returncode != 0:
            raise Failed(f"raftmq {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def status(self):
        return json.loads(self.run("cluster", "status", "-o", "json"))

    def leader(self, timeout_s=20):
        """The node that leads the first broker group."""
        deadline = time.monotonic() + timeout_s
        while True:
            for group in self.status()["groups"]:
                if group["name"] != "namesrv" and group["leader"]:
                    return group["leader"]
            if time.monotonic() > deadline:
                raise Failed("no leader")
            time.sleep(0.05)

    def close(self, keep=False):
        try:
            self.run("playground", "stop", timeout=30)
        finally:
            if not keep:
                shutil.rmtree(self.data, ignore_errors=True)

    def logs(self):
        """The last lines of each node's log, for a failed case."""
        out = []
        for log in sorted(pathlib.Path(self.data).glob("node-*/log*")):
            lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
            out += [f"--- {log.name} of {log.parent.name}", *lines[-15:]]
        return "\n".join(out)


def command_of(sdk):
    """The program of an SDK, or None where its language is missing."""
    if sdk == "python":
        return [str(CACHE / "python-sdk" / "bin" / "python"), str(HERE / "python" / "client.py")]
    if sdk == "node":
        return ["node", str(HERE / "node" / "client.mjs")]
    if sdk == "java":
        return ["java", "-Xmx256m", f"-Drocketmq.log.root={tempfile.gettempdir()}", "-cp", f"{CACHE}/java/lib/*:{CACHE}/java/classes", "Client"]
    if sdk == "rust":
        return [str(CACHE / "conformance-rust" / "release" / "conformance-rust")]
    if sdk == "go":
        program = CACHE / "go" / "client"
        return [str(program)] if program.exists() else None
    raise Failed(f"no SDK {sdk}")


class Client:
    """One running SDK program: sends it commands, keeps its events."""

    def __init__(self, sdk, cluster, topic):
        self.sdk, self.topic = sdk, topic
        self.vias = ["simple"] if sdk == "rust" else ["simple", "push"]
        self.sent, self.failed, self.errors, self.got = [], [], [], {via: [] for via in ("simple", "push")}
        self.marks, self.changed, self.asked = set(), threading.Condition(), 0
        self.folder = tempfile.mkdtemp(prefix=f"raftmq-{sdk}-")
        os.mkdir(f"{self.folder}/logs")  # where the Rust SDK writes
        environment = {**os.environ, "HOME": self.folder}  # the SDKs write logs below the home folder
        self.process = subprocess.Popen(
            [*command_of(sdk), "--endpoints", cluster.endpoints, "--topic", topic, "--simple-group", f"{topic}-simple", "--push-group",
             f"{topic}-push"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(f"{self.folder}/stderr", "w", encoding="utf-8"), text=True,
            env=environment, cwd=self.folder)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the SDK's own chatter
            with self.changed:
                kind = event.get("e")
                if kind == "sent":
                    self.sent.append(event)
                elif kind == "failed":
                    self.failed.append(event)
                elif kind == "got":
                    self.got[event["via"]].append(event)
                elif kind == "error":
                    self.errors.append(event)
                else:
                    self.marks.add(kind)
                self.changed.notify_all()
        with self.changed:
            self.marks.add("ended")
            self.changed.notify_all()

    def wait(self, what, holds, timeout_s):
        with self.changed:
            if not self.changed.wait_for(lambda: holds() or "ended" in self.marks, timeout_s) or not holds():
                raise Failed(f"{self.sdk}: {what} after {timeout_s} s: {self.summary()}; stderr: {self.stderr()}")

    def summary(self):
        got = {via: len({event["n"] for event in events}) for via, events in self.got.items()}
        return f"{len(self.sent)} acked, {len(self.failed)} failed {self.failed[-1:]}, received {got}, errors {self.errors[-2:]}"

    def stderr(self):
        return pathlib.Path(self.folder, "stderr").read_text(encoding="utf-8", errors="replace")[-800:]

    def ready(self):
        self.wait("not ready", lambda: "ready" in self.marks, 60)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def produce(self, first, count, rate):
        with self.changed:
            self.marks.discard("produced")
        self.asked += count
        self.tell(f"produce {first} {count} {rate}")

    def produced(self, timeout_s):
        self.wait("has not sent all", lambda: "produced" in self.marks, timeout_s)

    def missing(self):
        """For each consumer the acked messages that it has not received."""
        acked = {event["id"] for event in self.sent}
        return {via: len(acked - {event["id"] for event in self.got[via]}) for via in self.vias}

    def delivered(self, timeout_s):
        self.wait("acked messages not received", lambda: not any(self.missing().values()), timeout_s)

    def stored_twice(self):
        """Messages that one consumer group received twice as a first attempt: two copies in the log."""
        twice = set()
        for via in self.vias:
            seen = set()
            for event in self.got[via]:
                if event["attempt"] == 1:
                    (twice if event["id"] in seen else seen).add(event["id"])
        return len(twice)

    def bad(self):
        return sum(1 for via in self.vias for event in self.got[via] if not event["good"])

    def gap_ms(self):
        """The longest time between two acked sends."""
        times = [event["t"] for event in self.sent]
        return max((b - a for a, b in zip(times, times[1:])), default=0)

    def slowest(self):
        """For each consumer the longest time from the acked send of a message to its first receipt, and the attempt of that receipt."""
        slowest = {}
        sent = {event["id"]: event["t"] for event in self.sent}
        for via in self.vias:
            first = {}
            for event in self.got[via]:
                first.setdefault(event["id"], event)
            times = [(event["t"] - sent[id], event["attempt"]) for id, event in first.items() if id in sent]
            ms, attempt = max(times, default=(0, 0))
            slowest[via] = f"{via} {ms / 1000:.1f} s" + (f" (attempt {attempt})" if attempt > 1 else "")
        return ", ".join(slowest.values())

    def check(self):
        if self.bad():
            raise Failed(f"{self.sdk}: {self.bad()} messages came back changed")
        if self.stored_twice():
            raise Failed(f"{self.sdk}: {self.stored_twice()} messages are stored twice")

    def close(self):
        if self.process.poll() is None:
            try:
                self.tell("quit")
                self.process.wait(5)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
