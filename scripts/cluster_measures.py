"""Ratios of a cluster of three nodes on this machine: docs/measured/cluster.md.

    cargo build --release -p cambium-cli -p cambium-server
    python3 scripts/cluster_measures.py rates|changes [target/release] [rounds]

Needs redis-benchmark (redis-tools) and etcd (etcd-server); puts of etcd need etcdctl (etcd-client).
Each round runs all of it in turn; the medians of the rounds' ratios are printed.
"""

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import cluster


def benchmark(port, test, requests, is_cluster, clients=50, pipeline=1, keys=100_000):
    words = ["redis-benchmark", "-h", cluster.HOST, "-p", str(port), "-c", str(clients), "-n", str(requests),
             "-r", str(keys), "-d", "100", "-P", str(pipeline), "-t", test, "--csv"]
    done = subprocess.run(words + (["--cluster"] if is_cluster else []), capture_output=True, text=True)
    for line in done.stdout.splitlines():
        parts = line.replace('"', "").split(",")
        if parts[0].upper() == test.upper():
            return float(parts[1])
    raise SystemExit(done.stdout + done.stderr)


class Nodes(cluster.Cluster):
    """A cluster with a durability and an acknowledgement."""

    def __init__(self, binaries, folder, durability, acknowledgement):
        self.durability, self.acknowledgement = durability, acknowledgement
        super().__init__(binaries, folder)
        cluster.until("all chains are whole", self.is_whole)
        time.sleep(2)

    def cambium(self, *words, quiet=False):
        if words[0] == "init":
            words += ("--acknowledgement", self.acknowledgement)
        return super().cambium(*words, quiet=quiet)

    def start(self, node):
        address = f"{cluster.HOST}:{self.ports[node]}"
        log = open(f"{self.folder}/{node}.log", "a")
        self.processes[node] = subprocess.Popen(
            [f"{self.binaries}/cambium-server", "--dir", f"{self.folder}/{node}", "--resp", address,
             "--durability", self.durability, "--log-level", "error",
             "--cluster", f"etcd={self.url}", "--name", node, "--advertise", address],
            stdout=log, stderr=log)


def of_cluster(binaries, durability, acknowledgement, tests, requests, clients=50):
    with tempfile.TemporaryDirectory(prefix="cambium-cluster-") as folder:
        nodes = Nodes(binaries, folder, durability, acknowledgement)
        try:
            return [benchmark(nodes.ports["node1"], test, requests, True, clients) for test in tests]
        finally:
            nodes.stop()


def of_one(binaries, durability, tests, requests):
    with tempfile.TemporaryDirectory(prefix="cambium-one-") as folder:
        port = cluster.free_port()
        server = subprocess.Popen(
            [f"{binaries}/cambium-server", "--dir", f"{folder}/store", "--resp", f"{cluster.HOST}:{port}",
             "--durability", durability, "--log-level", "error"], stdout=subprocess.PIPE)
        server.stdout.readline()
        try:
            return [benchmark(port, test, requests, False) for test in tests]
        finally:
            server.terminate()
            server.wait()


def of_etcd(seconds=60):
    """Puts a second that three nodes of etcd reach, by etcd's own check."""
    with tempfile.TemporaryDirectory(prefix="etcd-") as folder:
        ports = [(cluster.free_port(), cluster.free_port()) for _ in range(3)]
        members = ",".join(f"e{n}=http://127.0.0.1:{peer}" for n, (_, peer) in enumerate(ports))
        processes = [subprocess.Popen(
            ["etcd", "--name", f"e{n}", "--data-dir", f"{folder}/{n}",
             "--listen-client-urls", f"http://{cluster.HOST}:{client}",
             "--advertise-client-urls", f"http://{cluster.HOST}:{client}",
             "--listen-peer-urls", f"http://{cluster.HOST}:{peer}",
             "--initial-advertise-peer-urls", f"http://{cluster.HOST}:{peer}",
             "--initial-cluster", members, "--quota-backend-bytes", str(8 << 30)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n, (client, peer) in enumerate(ports)]
        time.sleep(3)
        endpoints = ",".join(f"http://{cluster.HOST}:{client}" for client, _ in ports)
        try:
            done = subprocess.run(["etcdctl", "--endpoints", endpoints, "check", "perf", "--load", "l"],
                                  capture_output=True, text=True, env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"})
        finally:
            for process in processes:
                process.kill()
                process.wait()
        found = re.search(r"[Tt]hroughput.*?(\d+) writes/s", done.stdout)
        if not found:
            raise SystemExit(done.stdout + done.stderr)
        return float(found.group(1))


def longest_gaps(nodes, end):
    """Seconds for which a key of a head has no acknowledged write as `end` ends the node."""
    port, node = nodes.ports["node1"], nodes.processes["node1"]
    connection = cluster.Connection(port)
    keys = [key for key in map(str, range(400)) if connection.call("SET", key, 0) == "+OK"][:4]
    gaps, is_over = [], False

    def write(key):
        client, last, longest = cluster.Client(list(nodes.ports.values())), time.monotonic(), 0
        while not is_over:
            if client.call("SET", key, "x" * 100) == "+OK":
                now = time.monotonic()
                longest, last = max(longest, now - last), now
        gaps.append(longest)

    threads = [threading.Thread(target=write, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    time.sleep(1)
    end(node)
    node.wait()
    time.sleep(2 * cluster.LEASE)
    is_over = True
    for thread in threads:
        thread.join()
    return statistics.median(gaps)


def of_a_change(binaries, acknowledgement, end):
    """The same in leases."""
    with tempfile.TemporaryDirectory(prefix="cambium-cluster-") as folder:
        nodes = Nodes(binaries, folder, "written", acknowledgement)
        try:
            return longest_gaps(nodes, end) / cluster.LEASE
        finally:
            nodes.stop()


def of_catching_up(binaries, requests):
    """Writes a second of a node that was away for so many, to the keys a second of `cambium copy`."""
    with tempfile.TemporaryDirectory(prefix="cambium-cluster-") as folder:
        nodes = Nodes(binaries, folder, "written", "async")
        try:
            nodes.processes["node3"].kill()
            nodes.processes["node3"].wait()
            cluster.until("others are the heads", lambda: all(
                node["serving"] == 0 for node in nodes.status()["nodes"] if node["name"] == "node3"))
            benchmark(nodes.ports["node1"], "set", requests, True, 50, keys=100 * requests)
            nodes.start("node3")
            caught_up = cluster.until("all chains are whole", nodes.is_whole)
        finally:
            nodes.stop()
        begun = time.monotonic()
        subprocess.run([f"{binaries}/cambium", "copy", f"{folder}/node1", f"{folder}/copy"], check=True,
                       capture_output=True)
        return (time.monotonic() - begun) / caught_up


def rates(binaries):
    (one_set, one_get) = of_one(binaries, "written", ["set", "get"], 200_000)
    (async_set,) = of_cluster(binaries, "written", "async", ["set"], 200_000)
    (strong_set, cluster_get) = of_cluster(binaries, "written", "strong", ["set", "get"], 200_000)
    # etcd's check has 500 connections.
    (synced_set,) = of_cluster(binaries, "synced", "strong", ["set"], 200_000, 500)
    ratios = {
        "async SET : one node": async_set / one_set,
        "strong SET : one node": strong_set / one_set,
        "GET of a cluster : one node": cluster_get / one_get,
    }
    if shutil.which("etcdctl"):
        ratios["strong synced SET : puts of etcd"] = synced_set / of_etcd()
    return ratios


def changes(binaries):
    def kill(process):
        process.kill()

    def terminate(process):
        process.terminate()

    return {
        "strong: leases without a write, head killed": of_a_change(binaries, "strong", kill),
        "async: leases without a write, head killed": of_a_change(binaries, "async", kill),
        "async: leases without a write, head stopped": of_a_change(binaries, "async", terminate),
        "catching up with 300,000 writes : cambium copy": of_catching_up(binaries, 300_000),
    }


def main(measures, binaries, rounds):
    results = []
    for number in range(rounds):
        result = measures(binaries)
        results.append(result)
        print(f"round {number + 1}:", json.dumps({name: round(ratio, 3) for name, ratio in result.items()}), flush=True)
    for name in results[0]:
        print(f"{name}: {statistics.median(result[name] for result in results):.3f}")


if __name__ == "__main__":
    chosen = {"rates": rates, "changes": changes}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if chosen is None:
        raise SystemExit(__doc__)
    main(chosen, sys.argv[2] if len(sys.argv) > 2 else "target/release", int(sys.argv[3]) if len(sys.argv) > 3 else 5)
