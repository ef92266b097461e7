"""Three nodes and a load: see scripts/cluster.sh. Needs Python's standard library alone."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

LEASE = 3
NODES = ("node1", "node2", "node3")
# Linux has all of 127.0.0.0/8: an address of this process alone, whose ports nobody takes.
PID = os.getpid()
HOST = f"127.{64 + (PID >> 16) % 64}.{PID >> 8 & 255}.{PID & 255}" if sys.platform == "linux" else "127.0.0.1"


def free_port():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


class Connection:
    """A client of one node."""

    def __init__(self, port):
        self.socket = socket.create_connection((HOST, port), timeout=5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        request = b"*%d\r\n" % len(words)
        for word in words:
            word = str(word).encode()
            request += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(request)
        line = self.file.readline()
        if not line:
            raise ConnectionError("the node has closed the connection")
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2].decode()
        return line.decode().strip()


class Client:
    """A client of the cluster: it follows MOVED, and forgets a node that fails."""

    def __init__(self, ports):
        self.ports, self.connections, self.turn = ports, {}, 0

    def call(self, *words):
        """The answer, or None if no node has given one: the write may be done or not."""
        port = self.ports[self.turn % len(self.ports)]
        for _ in range(5):
            try:
                if port not in self.connections:
                    self.connections[port] = Connection(port)
                answer = self.connections[port].call(*words)
            except OSError:
                self.connections.pop(port, None)
                self.turn += 1
                return None
            if answer is not None and answer.startswith("-MOVED"):
                port = int(answer.rsplit(":", 1)[1])
            elif answer is not None and answer.startswith("-"):
                self.turn += 1
                time.sleep(0.02)
                return None
            else:
                return answer if answer is not None else "nil"
        return None


class Load:
    """Threads that write numbered keys, and read some of them."""

    def __init__(self, ports, threads=8):
        self.ports, self.is_over = ports, False
        self.acknowledged = [{} for _ in range(threads)]
        self.moments = []
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, number):
        client, count = Client(self.ports), 0
        while not self.is_over:
            count += 1
            key = f"key:{number}:{count}"
            if client.call("SET", key, count) == "+OK":
                self.acknowledged[number][key] = str(count)
                self.moments.append(time.monotonic())
                if count % 10 == 0:
                    seen = client.call("GET", key)
                    if seen not in (None, str(count)):
                        raise SystemExit(f"{key} was {count}, and is read as {seen}")

    def rate(self, seconds):
        since = time.monotonic() - seconds
        return sum(moment > since for moment in self.moments[-200_000:]) / seconds

    def longest_gap(self, since):
        moments = sorted(moment for moment in self.moments if moment > since - 0.5)
        return max((b - a for a, b in zip(moments, moments[1:])), default=0)

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        return {key: value for of in self.acknowledged for key, value in of.items()}


class Cluster:
    def __init__(self, binaries, folder):
        self.binaries, self.folder = binaries, folder
        self.url = f"http://{HOST}:{free_port()}"
        peer = f"http://{HOST}:{free_port()}"
        self.ports = {node: free_port() for node in NODES}
        self.processes = {}
        self.etcd = subprocess.Popen(
            ["etcd", "--data-dir", f"{folder}/etcd", "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until("etcd answers", lambda: self.cambium("init", "--lease-seconds", str(LEASE), quiet=True) is not None)
        for node in NODES:
            self.start(node)

    def start(self, node):
        address = f"{HOST}:{self.ports[node]}"
        log = open(f"{self.folder}/{node}.log", "a")
        self.processes[node] = subprocess.Popen(
            [f"{self.binaries}/cambium-server", "--dir", f"{self.folder}/{node}", "--resp", address,
             "--cluster", f"etcd={self.url}", "--name", node, "--advertise", address],
            stdout=log, stderr=log)

    def cambium(self, *words, quiet=False):
        done = subprocess.run(
            [f"{self.binaries}/cambium", "cluster", *words, "--etcd", self.url],
            capture_output=True, text=True)
        if done.returncode > 1 and not quiet:
            raise SystemExit(done.stderr)
        return done.stdout if done.returncode <= 1 else None

    def status(self):
        return json.loads(self.cambium("status", "--json"))

    def is_whole(self):
        status = self.status()
        return status["chains"] == status["whole"]

    def stop(self):
        for process in [*self.processes.values(), self.etcd]:
            process.send_signal(signal.SIGTERM)
        for process in [*self.processes.values(), self.etcd]:
            process.wait()


def until(what, test, patience=60):
    begun = time.monotonic()
    while not test():
        if time.monotonic() - begun > patience:
            raise SystemExit(f"{what}: not within {patience} seconds")
        time.sleep(0.05)
    return time.monotonic() - begun


def step(text):
    print(f"\n== {text}", flush=True)


def main(binaries, pause):
    with tempfile.TemporaryDirectory(prefix="cambium-cluster-") as folder:
        step("etcd and three nodes start; each of 32 chains gets a copy on every node")
        cluster = Cluster(binaries, folder)
        try:
            show(cluster, pause)
        finally:
            cluster.stop()


def show(cluster, pause):
    until("all chains are whole", cluster.is_whole)
    print(cluster.cambium("status"), end="")
    ports = list(cluster.ports.values())
    load = Load(ports)
    time.sleep(pause)
    print(f"8 clients write: {load.rate(pause):,.0f} acknowledged writes a second, each on three nodes")

    node = max(cluster.status()["nodes"], key=lambda node: node["heads"])["name"]
    step(f"{node}, the head of most chains, is killed with -9; the load goes on")
    killed = time.monotonic()
    cluster.processes[node].kill()
    cluster.processes[node].wait()
    until("every chain has a head", lambda: all(
        other["heads"] == 0 for other in cluster.status()["nodes"] if other["name"] == node))
    time.sleep(pause)
    print(f"no write was acknowledged for {load.longest_gap(killed):.1f} s "
          f"(the lease is {LEASE} s); now {load.rate(pause / 2):,.0f} a second on two nodes")

    step(f"{node} comes back, and catches up while the load goes on")
    before = len(load.moments)
    cluster.start(node)
    seconds = until("all chains are whole", cluster.is_whole)
    print(f"every chain has three copies again after {seconds:.1f} s; "
          f"{len(load.moments) - before:,} writes were acknowledged meanwhile")

    step("the heads are spread over the nodes again")
    cluster.cambium("balance")
    time.sleep(pause)
    acknowledged = load.stop()
    # A former head has writes that the new one has not seen: they were not acknowledged, and it
    # is brought up again.
    until("all chains are whole", cluster.is_whole)
    time.sleep(LEASE / 2)
    print(cluster.cambium("status"), end="")

    step(f"all {len(acknowledged):,} acknowledged writes are looked for, on each node")
    for name, port in cluster.ports.items():
        connection = Connection(port)
        connection.call("READONLY")
        lost = [key for key, value in acknowledged.items() if found(connection, key) != value]
        if lost:
            raise SystemExit(f"{name} lacks {len(lost)} of them, such as {lost[0]}")
        print(f"{name}: all are there")


def found(connection, key):
    """The value of a key; a node that has no fresh view, as where etcd is slow, is asked again."""
    answer = connection.call("GET", key)
    if answer is not None and answer.startswith("-"):
        until(f"{key}: {answer}", lambda: not (connection.call("GET", key) or "").startswith("-"))
        answer = connection.call("GET", key)
    return answer


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
