"""Ratios of a cluster of three nodes on this machine: docs/cluster.md, "What was measured".

    cargo build --release -p cambium-cli -p cambium-server
    python3 scripts/cluster_measures.py [target/release] [rounds]

Needs redis-benchmark (redis-tools), etcd (etcd-server) and etcdctl (etcd-client). Each round
runs all of it in turn; the medians of the rounds' ratios are printed.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time

import cluster


def benchmark(port, test, requests, is_cluster, clients=50, pipeline=1):
    words = ["redis-benchmark", "-h", cluster.HOST, "-p", str(port), "-c", str(clients), "-n", str(requests), "-r", "100000",
             "-d", "100", "-P", str(pipeline), "-t", test, "--csv"]
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


def main(binaries, rounds):
    results = []
    for number in range(rounds):
        (one_set, one_get) = of_one(binaries, "written", ["set", "get"], 200_000)
        (async_set,) = of_cluster(binaries, "written", "async", ["set"], 200_000)
        (strong_set, cluster_get) = of_cluster(binaries, "written", "strong", ["set", "get"], 200_000)
        # etcd's check has 500 connections.
        (synced_set,) = of_cluster(binaries, "synced", "strong", ["set"], 200_000, 500)
        etcd = of_etcd()
        result = {
            "async SET : one node": async_set / one_set,
            "strong SET : one node": strong_set / one_set,
            "GET of a cluster : one node": cluster_get / one_get,
            "strong synced SET : puts of etcd": synced_set / etcd,
        }
        results.append(result)
        print(f"round {number + 1}:", json.dumps({name: round(ratio, 2) for name, ratio in result.items()}), flush=True)
    for name in results[0]:
        print(f"{name}: {statistics.median(result[name] for result in results):.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "target/release", int(sys.argv[2]) if len(sys.argv) > 2 else 5)
