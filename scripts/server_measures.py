#!/usr/bin/env python3
"""Measures a cambium-server as docs/server.md reports it: one measurement a subcommand.

    scripts/server_measures.py idle --server target/release/cambium-server

Needs Python 3.9 alone; `latency`, `synced`, `budget` and `expiry` need redis-benchmark, the first two also
redis-server; `full-disk` needs root, for a small file system in a file; `beyond-memory` needs root,
a memory controller of version 1, redis-cli and kvzone. Each starts servers of its own in a temporary
folder, and exits with 1 if a bound is not kept.
"""

import argparse
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
ROUNDS = 5


class Server:
    """A server on a port that the system chooses, ended with the block."""

    def __init__(self, program, folder, arguments=(), enter=()):
        level = [] if "--log-level" in arguments else ["--log-level", "error"]
        command = [*enter, program, "--dir", os.path.join(folder, "store"), "--resp", "127.0.0.1:0",
                   *level, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        if not found:
            sys.exit(f"{program} is not ready: {line!r}")
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def client(self):
        return Client(self.port)

    def resident(self, figure="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(rf"{figure}:\s+(\d+) kB", status.read()).group(1)) * 1024


class Client:
    """A connection that sends commands one by one."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))

    def answer(self):
        line = self.file.readline().rstrip(b"\r\n")
        if line[:1] == b"$" and line != b"$-1":
            return self.file.read(int(line[1:]) + 2)[:-2]
        return line

    def call(self, *words):
        self.send(*words)
        return self.answer()


def many_descriptors():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def idle(options, folder):
    """Resident memory with idle connections, each of which has been answered once."""
    many_descriptors()
    arguments, context = list(options.arguments), None
    if options.tls:
        certificate, key = options.tls
        arguments += ["--tls-cert", certificate, "--tls-key", key]
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
    with Server(options.server, folder, arguments) as server:
        before = server.resident()
        held = []
        for _ in range(options.connections):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            if context:
                connection = context.wrap_socket(connection)
            connection.sendall(b"PING\r\n")
            answer = connection.recv(100)
            assert answer == b"+PONG\r\n", (len(held), answer)
            held.append(connection)
        after = server.resident()
    each = (after - before) / options.connections
    print(f"{options.connections} idle connections: {after / MIB:.1f} MiB resident, "
          f"{before / MIB:.1f} MiB before, {each:.0f} bytes each")
    return after <= options.most_mib * MIB


def reconnects(options, folder):
    """Clients that connect, ask and leave, half of them in the middle of a command."""
    with Server(options.server, folder, options.arguments) as server:
        watcher = server.client()
        watcher.call("SET", "oak", "Quercus")
        warm, before, worst = 0, server.resident(), 0.0
        begun = time.monotonic()
        for number in range(options.connections):
            client = server.client()
            if number % 2:
                client.socket.sendall(b"*2\r\n$3\r\nGET\r\n$3\r\noa")
            else:
                assert client.call("GET", "oak") == b"Quercus"
            client.file.close()
            client.socket.close()
            if number % 100 == 0:
                asked = time.monotonic()
                assert watcher.call("GET", "oak") == b"Quercus"
                worst = max(worst, time.monotonic() - asked)
            if number == options.connections // 10:
                warm = server.resident()
        seconds = time.monotonic() - begun
        after = server.resident()
        for _ in range(100):
            info = watcher.call("INFO", "clients").decode()
            if "connected_clients:1\r" in info:
                break
            time.sleep(0.05)
        descriptors = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    print(f"{options.connections} connections in {seconds:.1f} s ({options.connections / seconds:.0f}/s); "
          f"resident {before / MIB:.1f} MiB, after a tenth {warm / MIB:.1f}, at the end {after / MIB:.1f}; "
          f"{descriptors} descriptors left; another client waited {worst * 1e3:.1f} ms at most")
    return "connected_clients:1\r" in info and after - warm < 8 * MIB


def full_disk(options, folder):
    """A small file system fills up: writes say so, reads go on, and deletes make room."""
    image, mount = os.path.join(folder, "image"), os.path.join(folder, "disk")
    os.mkdir(mount)
    with open(image, "wb") as file:
        file.truncate(options.disk_mib * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        with Server(options.server, mount, options.arguments) as server:
            return fill(server)
    finally:
        subprocess.run(["umount", mount], check=True)


def fill(server):
    client = server.client()
    value, count, answer = os.urandom(100_000), 0, b"+OK"
    while answer == b"+OK":
        answer = client.call("SET", f"key:{count}", value)
        count += 1
    written = count - 1
    print(f"after {written} values of 100,000 bytes: {answer.decode()}")
    is_named = b"space" in answer or b"full" in answer.lower()
    reads = all(client.call("GET", f"key:{number}") == value for number in range(written))
    print(f"all {written} are read: {reads}; DBSIZE {client.call('DBSIZE').decode()}")
    deleted = [client.call("DEL", f"key:{number}") for number in range(0, written, 2)]
    worked = sum(answer == b":1" for answer in deleted)
    refused = sorted({answer.decode() for answer in deleted if answer != b":1"})
    print(f"{worked} of {len(deleted)} deletes work; others: {refused[:1]}")
    compacted = client.call("CAMBIUM.COMPACT")
    again = client.call("SET", "again", value)
    print(f"CAMBIUM.COMPACT: {compacted.decode()}; a write behind it: {again.decode()}")
    kept = all(client.call("GET", f"key:{number}") == value for number in range(1, written, 2))
    print(f"what was not deleted is read: {kept}")
    return is_named and reads and worked == len(deleted) and kept


def benchmark(port, *arguments):
    """Requests a second and milliseconds of p99, by the name of the test."""
    command = ["redis-benchmark", "-p", str(port), "--csv", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.strip('"').split('","') for line in output.splitlines()]
    head = rows[0]
    rate, p99 = head.index("rps"), head.index("p99_latency_ms")
    return {row[0]: (float(row[rate]), float(row[p99])) for row in rows[1:]}


def median(figures):
    return sorted(figures)[len(figures) // 2]


def beside_redis(options, folder, tests, arguments, redis_arguments):
    """Rates and p99 beside redis-server, in turns; medians of rounds. Yields test, depth, and
    ours : Redis' of both."""
    redis_port = free_port()
    command = ["redis-server", "--port", str(redis_port), "--save", "", "--dir", folder]
    redis = subprocess.Popen([*command, *redis_arguments], stdout=subprocess.DEVNULL)
    try:
        with Server(options.server, folder, [*arguments, *options.arguments]) as server:
            for depth in (1, 16):
                asked = ["-t", ",".join(tests).lower(), "-c", "50", "-d", "100", "-r", "100000",
                         "-n", str(options.requests), "-P", str(depth)]
                ours, theirs = [], []
                for _ in range(ROUNDS):
                    ours.append(benchmark(server.port, *asked))
                    theirs.append(benchmark(redis_port, *asked))
                for name in tests:
                    own, other = ([median([run[name][figure] for run in runs]) for figure in (0, 1)]
                                  for runs in (ours, theirs))
                    ratios = own[0] / other[0], own[1] / other[1]
                    print(f"{name}, depth {depth}: {own[0]:.0f}/s and {other[0]:.0f}/s of redis "
                          f"({ratios[0]:.2f}); p99 {own[1]:.2f} ms and {other[1]:.2f} ms "
                          f"({ratios[1]:.2f})", flush=True)
                    yield depth, *ratios
    finally:
        redis.terminate()
        redis.wait()


def latency(options, folder):
    """SET and GET beside Redis without persistence."""
    ratios = list(beside_redis(options, folder, ("SET", "GET"), [], []))
    least = {1: 0.9, 16: 0.8}
    return all(rate >= least[depth] and p99 <= 1.2 for depth, rate, p99 in ratios)


def synced(options, folder):
    """SET with durability synced beside Redis that syncs its log always."""
    ratios = list(beside_redis(options, folder, ("SET",), ["--durability", "synced"],
                               ["--appendonly", "yes", "--appendfsync", "always"]))
    least = {1: 4, 16: 1.5}
    return all(rate >= least[depth] for depth, rate, _ in ratios)


def budget(options, folder):
    """Resident memory under a memory budget, at most and behind a load of SET and GET."""
    arguments = ["--set", f"memory_budget={options.budget_mib}MiB", *options.arguments]
    with Server(options.server, folder, arguments) as server:
        rates = {}
        for test in ("SET", "GET"):
            asked = ["-t", test.lower(), "-c", "50", "-d", "100", "-r", str(options.requests),
                     "-n", str(options.requests), "-P", "16"]
            rates[test] = benchmark(server.port, *asked)[test][0]
        most, now = server.resident("VmHWM"), server.resident()
        program = server.resident("RssFile")
    print(f"budget {options.budget_mib} MiB: {most / MIB:.1f} MiB resident at most, {now / MIB:.1f} "
          f"behind the load, {program / MIB:.1f} of them the program; SET {rates['SET']:.0f}/s, "
          f"GET {rates['GET']:.0f}/s")
    return most <= (options.budget_mib + options.beside_mib) * MIB


def beyond_memory(options, folder):
    """GET at random of ten times the memory that the server may use, beside one thread of kvzone
    with the same engine in process, under the same limit."""
    keys = options.memory_mib * MIB // 100
    group = f"/sys/fs/cgroup/memory/cambium-measure-{os.getpid()}"
    os.mkdir(group)
    with open(f"{group}/memory.limit_in_bytes", "w") as file:
        file.write(str(options.memory_mib * MIB))
    enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    small = ["--set", "cache_bytes=16MiB", "--set", "write_buffer_bytes=8MiB"]
    rates = {}
    try:
        with Server(options.server, folder, [*small, *options.arguments], enter) as server:
            load_all(server.port, keys)
            asked = ["-t", "get", "-c", "50", "-r", str(keys), "-n", str(options.requests)]
            for depth in (1, 16):
                runs = [benchmark(server.port, *asked, "-P", str(depth)) for _ in range(3)]
                rates[depth] = median([run["GET"][0] for run in runs])
    finally:
        os.rmdir(group)
    report = os.path.join(folder, "report.json")
    asked = ["--workload", "read-random", "--memory", f"{options.memory_mib}MiB", "--budget", "32MiB",
             "--keys", str(keys), "--value-size", "1000", "--operations", str(options.requests)]
    subprocess.run([options.kvzone, "run", "--stores", "forest", *asked, "--repeat", "1", "--json", report],
                   check=True, cwd=folder, stdout=subprocess.DEVNULL)
    with open(report) as file:
        alone = json.load(file)["runs"][-1]["ops_per_second"]
    for depth, rate in rates.items():
        print(f"GET, depth {depth}: {rate:.0f}/s and {alone:.0f}/s in process ({rate / alone:.2f})")
    return rates[1] >= 0.8 * alone


def load_all(port, keys):
    """Gives each key that redis-benchmark draws a value of 1,000 bytes."""
    pipe = subprocess.Popen(["redis-cli", "-p", str(port), "--pipe"], stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL)
    command = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$1000\r\n%01000d\r\n"
    for first in range(0, keys, 1000):
        numbers = range(first, min(first + 1000, keys))
        pipe.stdin.write(b"".join(command % (number, number) for number in numbers))
    pipe.stdin.close()
    pipe.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def expired_keys(client):
    return int(re.search(r"expired_keys:(\d+)", client.call("INFO", "stats").decode()).group(1))


def expiry(options, folder):
    """Keys that expire all at once, and what their removal costs live work."""
    with Server(options.server, folder, options.arguments) as server:
        client = server.client()
        expires = time.time() + options.lifetime
        begun, batch = time.monotonic(), 1000
        for first in range(0, options.keys, batch):
            for number in range(first, first + batch):
                client.send("SET", f"expiring:{number}", "x" * 16, "PXAT", int(expires * 1000))
            assert all(client.answer() == b"+OK" for _ in range(batch))
        print(f"{options.keys} keys with expiry in {time.monotonic() - begun:.1f} s, "
              f"DBSIZE {client.call('DBSIZE').decode()}")
        arguments = ["-t", "set", "-c", "50", "-d", "100", "-r", "100000", "-n", str(options.requests)]
        calm = [benchmark(server.port, *arguments)["SET"] for _ in range(3)]
        if time.time() > expires:
            sys.exit("the keys expired while they were loaded: give a longer --lifetime")
        time.sleep(expires - time.time())
        due, busy = time.monotonic(), []
        while expired_keys(client) < options.keys:
            busy.append(benchmark(server.port, *arguments)["SET"])
        seconds = time.monotonic() - due
        size = client.call("DBSIZE").decode()
        expired = expired_keys(client)
    rate = [median([run[0] for run in runs]) for runs in (calm, busy)]
    cost = 1 - rate[1] / rate[0]
    print(f"SET: {rate[0]:.0f}/s before, {rate[1]:.0f}/s while keys are removed ({cost:+.1%} cost); "
          f"all removed {seconds:.1f} s after they were due, beside the load; "
          f"expired_keys {expired}, DBSIZE {size}")
    return expired == options.keys and cost <= 0.1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name, measure):
        sub = commands.add_parser(name, help=measure.__doc__)
        sub.add_argument("--server", default="target/release/cambium-server")
        sub.add_argument("--arguments", type=str.split, default=[], help="of the server")
        sub.set_defaults(measure=measure)
        return sub

    sub = command("idle", idle)
    sub.add_argument("--connections", type=int, default=10_000)
    sub.add_argument("--most-mib", type=int, default=100)
    sub.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    sub = command("reconnects", reconnects)
    sub.add_argument("--connections", type=int, default=20_000)
    sub = command("full-disk", full_disk)
    sub.add_argument("--disk-mib", type=int, default=64)
    sub = command("latency", latency)
    sub.add_argument("--requests", type=int, default=200_000)
    sub = command("synced", synced)
    sub.add_argument("--requests", type=int, default=100_000)
    sub = command("budget", budget)
    sub.add_argument("--requests", type=int, default=1_000_000)
    sub.add_argument("--budget-mib", type=int, default=32)
    sub.add_argument("--beside-mib", type=int, default=40, help="that the server may take more")
    sub = command("beyond-memory", beyond_memory)
    sub.add_argument("--kvzone", type=os.path.abspath, default="target/release/kvzone")
    sub.add_argument("--memory-mib", type=int, default=192)
    sub.add_argument("--requests", type=int, default=100_000)
    sub = command("expiry", expiry)
    sub.add_argument("--keys", type=int, default=1_000_000)
    sub.add_argument("--lifetime", type=int, default=120, help="seconds")
    sub.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    options.server = os.path.abspath(options.server)
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if options.measure(options, folder) else 1)


if __name__ == "__main__":
    main()
