"""Measures this package beside plyvel on LevelDB: the same operations on both, in
turns, in one process each round.

    pip install . plyvel
    python crates/cambium-python/bench/beside_plyvel.py --keys 100000 --rounds 5

Prints microseconds an operation (medians over the rounds) and the ratio: above 1,
this package is faster. Both write without syncing, rest, and read what fits their caches.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time

import cambium
import plyvel


def operations(module, keys, values, how):
    """Names and seconds of what was done, in order."""
    with tempfile.TemporaryDirectory(dir=how.dir) as folder:
        options = {"engine": how.engine} if module is cambium else {}
        db = module.DB(
            folder + "/db", create_if_missing=True, lru_cache_size=how.cache, **options
        )

        def timed(name, work, count):
            start = time.perf_counter()
            done = work()
            seconds = time.perf_counter() - start
            assert done == count, (name, done, count)
            return name, seconds / count

        def put(order):
            for key in order:
                db.put(key, values[key])
            return len(order)

        def put_batches():
            for start in range(0, len(keys), 100):
                with db.write_batch() as batch:
                    for key in shuffled[start : start + 100]:
                        batch.put(key, values[key])
            return len(keys)

        def get():
            return sum(1 for key in shuffled if db.get(key) == values[key])

        def missing():
            return sum(1 for key in shuffled if db.get(key + b"-") is None)

        def iterate(**bounds):
            return sum(1 for _ in db.iterator(**bounds))

        def ranges():
            found = 0
            for key in starts:
                for _, _ in zip(range(10), db.iterator(start=key)):
                    found += 1
            return found

        def raw():
            at = db.raw_iterator()
            at.seek_to_first()
            found = 0
            while at.valid():
                at.item()
                found += 1
                at.next()
            return found

        shuffled = keys[:]
        random.Random(7).shuffle(shuffled)
        starts = [key for key in shuffled[::20] if key < keys[-10]]
        count = len(keys)
        yield timed("put, in order", lambda: put(keys), count)
        yield timed("put, overwriting at random", lambda: put(shuffled), count)
        yield timed("put, batches of 100", put_batches, count)
        time.sleep(how.settle)
        yield timed("get, at random", get, count)
        yield timed("get, not there", missing, count)
        yield timed("iterator(), the first", iterate, count)
        yield timed("iterator()", iterate, count)
        yield timed("iterator(reverse=True)", lambda: iterate(reverse=True), count)
        yield timed("iterator(include_value=False)", lambda: iterate(include_value=False), count)
        yield timed("raw_iterator()", raw, count)
        yield timed("iterator(start=key), 10 entries", ranges, 10 * len(starts))
        db.close()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--value-bytes", type=int, default=100)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--engine", default="forest")
    arguments.add_argument("--cache", type=int, default=64 << 20, help="bytes, of both")
    arguments.add_argument(
        "--settle", type=float, default=1.0, help="seconds of rest between writing and reading"
    )
    arguments.add_argument("--dir", help="where the databases go")
    how = arguments.parse_args()
    numbers = random.Random(1)
    keys = [b"%016d" % (number * 7) for number in range(how.keys)]
    values = {key: numbers.randbytes(how.value_bytes) for key in keys}
    names, seconds = [], {}
    for round_ in range(how.rounds):
        modules = [cambium, plyvel] if round_ % 2 == 0 else [plyvel, cambium]
        for module in modules:
            for name, each in operations(module, keys, values, how):
                if name not in names:
                    names.append(name)
                seconds.setdefault((module, name), []).append(each)
    print(f"{how.keys} keys of 16 bytes, values of {how.value_bytes}, engine {how.engine}, "
          f"{how.rounds} rounds, Python {sys.version.split()[0]}")
    print(f"{'operation':34} {'cambium':>9} {'plyvel':>9} {'ratio':>6}")
    for name in names:
        ours = statistics.median(seconds[cambium, name]) * 1e6
        theirs = statistics.median(seconds[plyvel, name]) * 1e6
        ratios = zip(seconds[cambium, name], seconds[plyvel, name])
        ratio = statistics.median(theirs / ours for ours, theirs in ratios)
        print(f"{name:34} {ours:7.2f}us {theirs:7.2f}us {ratio:6.2f}")


if __name__ == "__main__":
    main()
