"""Tests of the package `cambium`, run by tests/python.rs with the extension that
cargo has built; by hand, after `pip install .`: python -m unittest test_cambium."""

import ast
import asyncio
import builtins
import gc
import inspect
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import cambium
import cambium as plyvel
from cambium import aio


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "db")
        self.db = self.open()
        self.addCleanup(lambda: self.db.close())

    def open(self, **options):
        return cambium.DB(self.path, create_if_missing=True, **options)

    def fill(self, keys=b"12345"):
        for key in keys:
            self.db.put(bytes([key]), bytes([key]))


class Values(Case):
    def test_values_beyond_the_limit_are_refused(self):
        for engine in "forest", "wisckey":
            with cambium.DB(self.path + engine, create_if_missing=True, engine=engine) as db:
                with self.assertRaisesRegex(cambium.Error, "1 GiB"):
                    db.put(b"oak", bytes((1 << 30) + 1))
                self.assertIsNone(db.get(b"oak"))

    def test_entries_expire_and_stay(self):
        self.db.put(b"oak", b"1", ttl=0)
        self.assertIsNone(self.db.get(b"oak"))
        self.assertFalse(self.db.expire(b"oak", None))
        self.db.put(b"oak", b"2", ttl=1000)
        left = self.db.expires_at(b"oak") - time.time()
        self.assertTrue(900 < left < 1100, left)
        self.assertTrue(self.db.expire(b"oak", None))
        self.assertIsNone(self.db.expires_at(b"oak"))
        self.assertTrue(self.db.expire(b"oak", 0))
        self.assertEqual(list(self.db), [])
        with self.assertRaises(ValueError):
            self.db.put(b"oak", b"3", ttl=float("inf"))

    def test_merges_make_the_next_value(self):
        for _ in range(3):
            self.db.merge("add", b"n", (2).to_bytes(8, "little"))
        self.assertEqual(int.from_bytes(self.db[b"n"], "little"), 6)
        self.db.prefixed_db(b"p").merge("append", b"k", b"1")
        self.assertEqual(self.db[b"pk"], b"1")
        with self.assertRaises(Exception) as raised:
            self.db.merge("sum", b"n", b"")
        self.assertIn("add, append, maximum", str(raised.exception))

    def test_a_merge_operator_is_a_function(self):
        def longer(current, operand):
            if operand == b"text":
                return "text"
            if not operand:
                raise KeyError("an empty operand")
            return max(current or b"", bytearray(operand), key=len)

        self.db.register_operator("longer", longer)
        self.db.merge("longer", b"k", b"12")
        with self.db.write_batch() as batch:
            batch.merge("longer", b"k", b"123")
            batch.merge("longer", b"k", b"1")
            batch.merge("longer", b"ada", b"1", namespace="people")
        self.assertEqual(self.db[b"k"], b"123")
        self.assertEqual(self.db.namespace("people")[b"ada"], b"1")
        with self.db.transaction() as t:
            t.merge("longer", b"k", b"1234")
        with self.assertRaisesRegex(cambium.Error, "longer into key.*an empty operand"):
            self.db.merge("longer", b"k", b"")
        with self.assertRaisesRegex(cambium.Error, "TypeError"):
            self.db.merge("longer", b"k", b"text")
        self.assertEqual(self.db[b"k"], b"1234")
        self.assertRaises(TypeError, self.db.register_operator, "none", None)

    def test_transactions_expire_and_merge(self):
        self.db.put(b"oak", b"1", ttl=1000)
        with self.db.transaction() as t:
            t.put(b"elm", b"1", ttl=0)
            t.merge("append", b"oak", b"2")
            t.merge("append", b"elm", b"2")
            self.assertEqual(t[b"elm"], b"12")
        self.assertEqual(list(self.db), [(b"oak", b"12")])
        self.assertIsNotNone(self.db.expires_at(b"oak"))


class Asynchronous(Case):
    def test_calls_are_awaited(self):
        async def calls():
            async with aio.AsyncDB(self.db) as db:
                await asyncio.gather(*(db.put(b"%d" % at, b"v") for at in range(1000)))
                await db.put(b"5", b"five", ttl=1000)
                self.assertEqual(await db.get(b"5"), b"five")
                self.assertEqual(await db.multi_get([b"5", b"none"]), [b"five", None])
                await db.delete(b"5", sync=True)
                await db.merge("append", b"a", b"1")
                batch = self.db.write_batch()
                batch.put(b"b", b"2")
                await db.write(batch)
                keys = [key async for key in db.iterator(include_value=False)]
                self.assertEqual(len(keys), 1001)
                self.assertEqual(keys[-2:], [b"a", b"b"])
                async for _ in db.iterator(prefix=b"9"):
                    break
            with self.assertRaises(Exception):
                await db.get(b"a")

        asyncio.run(calls())

    def test_transactions_repeat_after_conflicts(self):
        async def count():
            db = aio.AsyncDB(self.db)

            def add(transaction):
                at = int(transaction.get(b"n", b"0"))
                transaction.put(b"n", b"%d" % (at + 1))
                return at

            answers = await asyncio.gather(*(db.transact(add) for _ in range(50)))
            self.assertEqual(sorted(answers), list(range(50)))

        asyncio.run(count())

    def test_whatever_a_database_does_is_awaited(self):
        async def calls():
            async with await aio.open(self.path + "2", create_if_missing=True) as db:
                await db.put(b"oak", b"1", ttl=1000, durability="buffered")
                self.assertIsNotNone(await db.expires_at(b"oak"))
                self.assertTrue(await db.expire(b"oak", None))
                self.assertIsNone(await db.expires_at(b"oak"))
                people = await db.namespace("people")
                await people.put(b"ada", b"Lovelace")
                self.assertEqual(await db.namespaces(), ["", "people"])
                await db.create_named_snapshot("monday")
                async with await db.snapshot() as then:
                    await db.delete_range(start=b"o")
                    self.assertEqual(await then.get(b"oak"), b"1")
                    self.assertEqual([entry async for entry in then.iterator()], [(b"oak", b"1")])
                    inner = await then.namespace("people")
                    self.assertEqual(await inner.multi_get([b"ada"]), [b"Lovelace"])
                    self.assertIsNone(await then.namespace("nobody"))
                    self.assertGreater(then.db.sequence, 0)
                await inner.close()
                with self.assertRaises(RuntimeError):
                    await then.get(b"oak")
                async with await db.named_snapshot("monday") as monday:
                    self.assertEqual(await monday.get(b"oak"), b"1")
                self.assertEqual(await db.named_snapshots(), ["monday"])
                await db.rollback("monday")
                await db.drop_named_snapshot("monday")
                self.assertEqual(await db.get(b"oak"), b"1")
                await db.sync()
                await db.compact()
                self.assertGreater(len(await db.stats()), 5)
                await db.backup(self.path + "-copy")
                self.assertEqual(cambium.check_db(self.path + "-copy"), [])
                taken = await db.backup(self.path + "-backups", incremental=True)
                self.assertEqual(taken.kind, "full")
                await db.drop_namespace("people")
                self.assertIn("(", str(inspect.signature(aio.AsyncDB.backup)))

        asyncio.run(calls())

    def test_changes_are_followed_and_consumed(self):
        async def calls():
            async with await aio.open(
                self.path + "2", engine="zdb", create_if_missing=True
            ) as db:
                consumer = await db.consumer("mirror")
                self.assertEqual((consumer.db.name, consumer.db.is_new), ("mirror", True))

                async def follow(changes, most):
                    seen = []
                    async for batch in changes:
                        seen += [change.key for change in batch.changes]
                        if len(seen) == most:
                            await changes.aclose()
                            return seen, batch.last
                    return seen, None

                following = asyncio.ensure_future(follow(db.changes(follow=True), 3))
                for key in (b"a", b"b", b"c"):
                    await asyncio.sleep(0.05)
                    await db.put(key, b"")
                seen, last = await following
                self.assertEqual(seen, [b"a", b"b", b"c"])
                self.assertEqual(await follow(consumer.changes(), 9), (seen, None))
                await consumer.acknowledge(last)
                self.assertEqual(await consumer.position(), last)
                self.assertEqual(await db.consumers(), [("mirror", last)])
                waiting = asyncio.ensure_future(follow(consumer.changes(follow=True), 1))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
                await consumer.remove()
                self.assertEqual(await db.consumers(), [])

        asyncio.run(calls())

    def test_the_loop_goes_on_beside_a_slow_call(self):
        async def beside():
            db = await aio.open(self.path + "2", create_if_missing=True)
            ticks = 0
            writing = asyncio.ensure_future(
                db.transact(lambda transaction: time.sleep(0.2))
            )
            while not writing.done():
                ticks += 1
                await asyncio.sleep(0)
            self.assertGreater(ticks, 10)
            await db.close()

        asyncio.run(beside())


class Transactions(Case):
    def test_a_block_commits_and_sees_its_own_writes(self):
        with self.db.transaction(sync=True) as t:
            t[b"oak"] = b"Quercus"
            t.put(b"elm", b"Ulmus")
            self.assertEqual(t[b"oak"], b"Quercus")
            self.assertIsNone(self.db.get(b"oak"))
        self.assertEqual(self.db[b"oak"], b"Quercus")
        self.assertEqual(list(self.db), [(b"elm", b"Ulmus"), (b"oak", b"Quercus")])

    def test_an_exception_or_a_rollback_forgets_the_writes(self):
        with self.assertRaises(ZeroDivisionError):
            with self.db.transaction() as t:
                t[b"oak"] = b""
                1 / 0
        with self.db.transaction() as t:
            t[b"oak"] = b""
            t.roll_back()
        self.assertEqual(list(self.db), [])
        with self.assertRaises(RuntimeError):
            t.commit()
        with self.assertRaises(RuntimeError):
            t.get(b"oak")

    def test_a_transaction_that_ended_is_closed(self):
        for end in ("commit", "roll_back"):
            t = self.db.transaction()
            t[b"oak"] = b"Quercus"
            entries = t.iterator()
            savepoint = t.savepoint()
            getattr(t, end)()
            for call in (
                lambda: t.get(b"oak"),
                lambda: t.put(b"oak", b""),
                lambda: t.merge("add", b"n", b"1"),
                lambda: t.delete(b"oak"),
                lambda: b"oak" in t,
                t.iterator,
                t.savepoint,
                lambda: t.roll_back_to(savepoint),
                t.commit,
                lambda: next(entries),
            ):
                self.assertRaisesRegex(RuntimeError, "transaction is closed", call)

    def test_what_was_read_and_changed_conflicts(self):
        t = self.db.transaction()
        self.assertNotIn(b"oak", t)
        t[b"elm"] = b""
        self.db[b"oak"] = b"meanwhile"
        with self.assertRaises(cambium.ConflictError) as raised:
            t.commit()
        self.assertIn("oak", str(raised.exception))
        self.assertIsNone(self.db.get(b"elm"))

    def test_savepoints_and_iterators(self):
        self.fill()
        with self.db.transaction() as t:
            del t[b"3"]
            with self.assertRaises(KeyError):
                del t[b"3"]
            mark = t.savepoint()
            t.delete(b"4")
            t[b"6"] = b"6"
            keys = [key for key, _ in t.iterator(start=b"2", reverse=True)]
            self.assertEqual(keys, [b"6", b"5", b"2"])
            t.roll_back_to(mark)
            self.assertEqual([key for key, _ in t], [b"1", b"2", b"4", b"5"])
        self.assertEqual(len(list(self.db)), 4)

    def test_prefixed_databases_and_comparators(self):
        trees = self.db.prefixed_db(b"tree-")
        with trees.transaction() as t:
            t[b"oak"] = b""
            self.assertEqual(list(t.iterator(prefix=b"o")), [(b"oak", b"")])
        self.assertIn(b"tree-oak", self.db)
        with self.assertRaises(cambium.Error):
            with self.db.transaction() as t:
                t[b"x" * 70_000] = b""

    def test_namespaces_ranges_and_several_keys(self):
        people = self.db.namespace("people")
        people[b"ada"] = b"Lovelace"
        self.fill(b"1234")
        with self.db.transaction(durability="buffered") as t:
            inner = t.namespace("people")
            self.assertEqual(inner.multi_get([b"ada", b"alan"]), [b"Lovelace", None])
            inner[b"alan"] = b"Turing"
            inner.namespace("")[b"5"] = b"five"
            t.namespace("new")[b"k"] = b"v"
            t.delete_range(start=b"2", stop=b"4")
            self.assertEqual(t.multi_get([b"1", b"2", b"5"]), [b"1", None, b"five"])
            self.assertNotIn(b"alan", people)
        self.assertEqual(people[b"alan"], b"Turing")
        self.assertEqual(self.db.namespace("new")[b"k"], b"v")
        self.assertEqual([key for key, _ in self.db], [b"1", b"4", b"5"])
        self.assertRaises(RuntimeError, inner.get, b"ada")
        self.assertRaises(RuntimeError, t.namespace, "people")
        first, second = self.db.transaction(), self.db.transaction()
        for t in (first, second):
            t.namespace("people").multi_get([b"nobody"])
            t[b"6"] = b""
        people[b"nobody"] = b""
        self.assertRaisesRegex(cambium.ConflictError, "people", first.commit)
        second.namespace("people").roll_back()
        self.assertRaises(RuntimeError, second.commit)
        with self.db.prefixed_db(b"p").transaction() as t:
            t[b"a"] = t[b"b"] = b"1"
            t.delete_range(prefix=b"a")
        self.assertEqual([key for key, _ in self.db.iterator(prefix=b"p")], [b"pb"])

    def test_a_function_is_repeated_after_conflicts(self):
        def add(transaction):
            at = int(transaction.get(b"n", b"0"))
            transaction[b"n"] = b"%d" % (at + 1)
            return at

        def count():
            for _ in range(50):
                answers.append(self.db.transact(add, durability="buffered"))

        answers = []
        threads = [threading.Thread(target=count) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answers), list(range(150)))

        def loses(transaction):
            add(transaction)
            calls.append(transaction)
            self.db.put(b"n", b"0")

        calls = []
        with self.assertRaisesRegex(cambium.ConflictError, "key n "):
            self.db.transact(loses, attempts=3)
        self.assertEqual((len(calls), self.db[b"n"]), (3, b"0"))
        self.assertRaises(RuntimeError, calls[0].get, b"n")

        def fails(transaction):
            add(transaction)
            calls.append(transaction)
            raise KeyError("mine")

        self.assertRaises(KeyError, self.db.transact, fails)
        self.assertEqual((len(calls), self.db[b"n"]), (4, b"0"))
        self.db.prefixed_db(b"p").transact(add)
        self.assertEqual(self.db[b"pn"], b"1")
        self.assertRaises(TypeError, self.db.transact, 7)
        self.db.close()
        self.assertRaises(RuntimeError, self.db.transact, add)

    def test_threads_lose_no_update(self):
        def count():
            for _ in range(50):
                while True:
                    try:
                        with self.db.transaction() as t:
                            t[b"n"] = b"%d" % (int(t.get(b"n", b"0")) + 1)
                        break
                    except cambium.ConflictError:
                        pass

        threads = [threading.Thread(target=count) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.db[b"n"], b"150")


class Databases(Case):
    def test_values_are_read_written_and_deleted(self):
        db = self.db
        self.assertIsNone(db.get(b"oak"))
        self.assertEqual(db.get(b"oak", b"none"), b"none")
        self.assertEqual(db.get(b"oak", default=7), 7)
        db.put(b"oak", bytearray(b"Quercus"), sync=True)
        db.put(memoryview(b"ash"), memoryview(b"Fraxinus"))
        db.put(b"", b"\x00")
        self.assertEqual(db.get(bytearray(b"oak"), verify_checksums=True), b"Quercus")
        self.assertEqual(db.get(b"ash", fill_cache=False), b"Fraxinus")
        self.assertEqual(db.get(b""), b"\x00")
        db.delete(b"oak")
        db.delete(b"never", sync=True)
        self.assertIsNone(db.get(b"oak"))

    def test_it_is_a_mapping(self):
        db = self.db
        db[b"oak"] = b"Quercus"
        self.assertEqual(db[b"oak"], b"Quercus")
        self.assertIn(b"oak", db)
        self.assertNotIn(b"elm", db)
        with self.assertRaises(KeyError):
            db[b"elm"]
        with self.assertRaises(KeyError):
            del db[b"elm"]
        self.assertEqual(list(db), [(b"oak", b"Quercus")])
        self.assertEqual(db.snapshot()[b"oak"], b"Quercus")
        trees = db.prefixed_db(b"o")
        trees[b"live"] = b"Olea"
        self.assertEqual(db[b"olive"], b"Olea")
        del trees[b"live"]
        self.assertIn(b"ak", trees)
        del db[b"oak"]
        self.assertTrue(db)
        self.assertEqual(list(db), [])
        with self.assertRaises(TypeError):
            len(db)

    def test_wrong_types_are_type_errors(self):
        db = self.db
        for call in (
            lambda: db.get("text"),
            lambda: db.get(None),
            lambda: db.get(7),
            lambda: db.get(b"k", None, True),
            lambda: db.put(b"k", "text"),
            lambda: db.put(7, b"v"),
            lambda: db.delete(None),
            lambda: db.iterator(start=1),
            lambda: db.iterator(prefix=b"p", start=b"s"),
            lambda: db.get_property(7),
            lambda: db.approximate_sizes(None),
            lambda: db.approximate_sizes((1, 2)),
            lambda: db.approximate_size(1, 2),
            lambda: db.write_batch().append(7),
            lambda: cambium.DB(123),
            lambda: cambium.DB(self.path, lru_cache_size="lots"),
            lambda: cambium.DB(self.path, comparator=b"no", comparator_name=b"n"),
            lambda: db["text"],
        ):
            self.assertRaises(TypeError, call)
        self.assertRaises(ValueError, lambda: self.open(compression="none"))
        self.assertRaises(ValueError, lambda: self.open(comparator_name=b"alone"))

    def test_arguments_are_taken_as_plyvel_takes_them(self):
        db = self.db
        db.put(b"oak", b"Quercus", sync=None)
        db.delete(b"elm", sync=None)
        with db.write_batch(transaction=None, sync=None) as batch:
            batch.put(b"ash", b"Fraxinus")
        keys = db.iterator(reverse=1, include_value=0, verify_checksums=None, fill_cache=None)
        self.assertEqual(list(keys), [b"oak", b"ash"])
        for flag in ("yes", 0.5, b"", []):
            self.assertRaises(TypeError, db.put, b"k", b"v", sync=flag)
            self.assertRaises(TypeError, db.iterator, reverse=flag)
        db.close()
        self.open(compression=b"snappy", error_if_exists=None).close()
        cambium.repair_db(
            self.path, paranoid_checks=True, compression=None, lru_cache_size=1 << 20
        )
        self.assertRaises(ValueError, cambium.repair_db, self.path, compression="none")
        self.assertRaises(ValueError, cambium.repair_db, self.path, comparator_name=b"n")

    def test_flags_decide_what_open_does(self):
        self.assertRaises(cambium.LockedError, self.open)
        self.db.close()
        self.assertRaises(cambium.Error, lambda: self.open(error_if_exists=True))
        with self.assertRaises(cambium.IOError) as caught:
            cambium.DB(self.path + "-none")
        self.assertIsInstance(caught.exception, OSError)
        self.assertIsInstance(caught.exception, cambium.Error)
        with self.open(lru_cache_size=1 << 20, bloom_filter_bits=10) as db:
            self.assertEqual(db.name, self.path)
            self.assertFalse(db.closed)
        self.assertTrue(db.closed)

    def test_engines_and_their_options(self):
        self.assertEqual(self.db.engine, "forest")
        for engine, options in (
            ("wisckey", {"read_ahead": 8}),
            ("zdb", {}),
            ("alphard", {"size": "16MiB"}),
        ):
            path = f"{self.path}-{engine}"
            with cambium.DB(
                path, create_if_missing=True, engine=engine, options=options
            ) as db:
                db[b"oak"] = b"Quercus"
                self.assertEqual(db[b"oak"], b"Quercus")
                self.assertIsInstance(db.stats(), dict)
                if engine != "wisckey":
                    self.assertEqual(len(db), 1)
                    with self.assertRaises(cambium.UnsupportedError):
                        next(db.iterator())
        with self.assertRaisesRegex(cambium.Error, "did you mean"):
            cambium.DB(self.path + "-x", create_if_missing=True, engine="forrest")

    def test_upkeep(self):
        self.fill()
        self.db.sync()
        self.db.compact()
        self.db.compact_range(start=b"a", stop=b"b")
        self.assertEqual(self.db.stats()["entries"], 5)
        self.assertGreater(self.db.approximate_size(b"", b"\xff"), 0)
        self.assertEqual(self.db.approximate_sizes(), [])
        self.assertIsInstance(self.db.get_property(b"leveldb.stats"), bytes)
        self.assertIsNone(self.db.get_property(b"nothing"))
        copy = self.path + "-copy"
        self.db.backup(copy)
        self.assertEqual(cambium.check_db(copy), [])
        cambium.repair_db(copy)
        with cambium.DB(copy) as db:
            self.assertEqual(len(list(db)), 5)
            self.assertRaises(cambium.LockedError, lambda: cambium.destroy_db(copy))
        del db
        cambium.destroy_db(copy)
        self.assertFalse(os.path.exists(copy))
        cambium.destroy_db(copy)

    def test_incremental_backups(self):
        self.fill()
        place, target = self.path + "-backups", self.path + "-restored"
        self.assertIsNone(self.db.backup(self.path + "-copy", incremental=False))
        first = self.db.backup(place, incremental=True)
        self.assertEqual((first.number, first.kind), (1, "full"))
        self.assertEqual(self.db.backup(place, incremental=True), first)
        self.db.put(b"6", b"6")
        second = self.db.backup(place, incremental=True)
        self.assertEqual((second.number, second.kind), (2, "changes"))
        self.assertEqual(second.after, first.through)
        self.assertGreaterEqual(second.taken_at, first.taken_at)
        self.assertEqual(cambium.list_backups(place), [first, second])
        self.assertEqual(cambium.check_db(place), [])
        self.assertEqual(cambium.restore_db(place, target, number=1), first)
        with cambium.DB(target) as db:
            self.assertEqual(len(list(db)), 5)
        with self.assertRaisesRegex(cambium.Error, "not there"):
            cambium.restore_db(place, target)
        self.assertEqual(cambium.restore_db(place, target + "-2"), second)
        with cambium.DB(target + "-2") as db:
            self.assertEqual(db[b"6"], b"6")
        with self.assertRaises(cambium.Error):
            cambium.restore_db(place, target + "-3", number=3)
        with self.assertRaises(cambium.Error):
            self.db.backup(target, incremental=True)
        self.assertEqual(cambium.keep_backups(place, 1), [])
        with self.assertRaises(cambium.Error):
            cambium.keep_backups(place, 0)

    def test_a_memory_budget(self):
        bounded = {"memory_budget": "64MiB"}
        with cambium.DB(self.path + "-bounded", create_if_missing=True, options=bounded) as db:
            self.assertEqual(db.stats()["environment_memory_limit_bytes"], 64 << 20)
        with self.assertRaisesRegex(cambium.Error, "would do"):
            cambium.DB(self.path + "-bounded", options={"memory_budget": "1MiB"})

    def test_a_database_for_reading_alone(self):
        self.fill()
        self.db.close()
        with cambium.DB(self.path, read_only=True) as db:
            self.assertEqual(db[b"1"], b"1")
            self.assertEqual(len(list(db)), 5)
            self.assertRaises(cambium.UnsupportedError, db.put, b"6", b"6")
            with cambium.DB(self.path, read_only=True) as beside:
                self.assertEqual(beside[b"5"], b"5")
            # Engine forest is written meanwhile, and the reader keeps its moment.
            with self.open() as writer:
                writer.put(b"6", b"6")
                self.assertIsNone(db.get(b"6"))
                db.refresh()
                self.assertEqual(db[b"6"], b"6")
        none = self.path + "-none"
        with self.assertRaises(cambium.IOError):
            cambium.DB(none, read_only=True, create_if_missing=True)
        self.assertFalse(os.path.exists(none))

    def test_namespaces_are_written_in_one_batch(self):
        people = self.db.namespace("people")
        self.assertEqual((people.name, people.db), ("people", self.db))
        long = b"k" * 70_000
        with self.db.write_batch() as batch:
            batch.put(b"ada", b"tree")
            batch.put(b"ada", b"Lovelace", namespace="people")
            batch.put(long, b"long", namespace="people")
            batch.delete(b"alan", namespace="people")
        self.assertEqual((self.db[b"ada"], people[b"ada"]), (b"tree", b"Lovelace"))
        self.assertEqual([key for key, _ in people], [b"ada", long])
        self.assertNotIn(long, self.db)
        people[b"ada"] = b"King"
        self.assertEqual(self.db[b"ada"], b"tree")
        self.assertEqual(self.db.namespaces(), ["", "people"])
        self.assertRaises(TypeError, self.db.namespace, b"people")
        self.db.close()
        self.assertRaises(RuntimeError, people.get, b"ada")
        self.assertRaises(RuntimeError, people.write_batch().write)

    def test_namespaces_are_dropped(self):
        people, then = self.db.namespace("people"), None
        people[b"ada"] = b"Lovelace"
        then = people.snapshot()
        self.db.drop_namespace("people")
        self.assertEqual(self.db.namespaces(), [""])
        self.assertEqual(then[b"ada"], b"Lovelace")
        self.assertRaisesRegex(cambium.Error, "people", self.db.drop_namespace, "people")
        self.assertRaises(cambium.Error, self.db.drop_namespace, "")
        self.assertEqual(list(self.db.namespace("people")), [])
        for call in (lambda: people[b"ada"], lambda: people.put(b"a", b""), people.snapshot):
            self.assertRaisesRegex(cambium.Error, "people, which was dropped", call)
        with cambium.DB(f"{self.path}-wisckey", create_if_missing=True, engine="wisckey") as db:
            people = db.namespace("people")
            people[b"ada"] = b"Lovelace"
            db.drop_namespace("people")
            self.assertEqual(db.namespaces(), [""])
            for call in (lambda: people[b"ada"], lambda: people.put(b"a", b""), people.snapshot):
                self.assertRaisesRegex(cambium.Error, "people, which was dropped", call)
        with cambium.DB(f"{self.path}-zdb", create_if_missing=True, engine="zdb") as db:
            with self.assertRaisesRegex(cambium.UnsupportedError, "forest"):
                db.drop_namespace("people")

    def test_named_snapshots_and_rollback(self):
        self.fill(b"1")
        self.db.create_named_snapshot("monday")
        self.fill(b"2")
        self.assertEqual(self.db.named_snapshots(), ["monday"])
        with self.assertRaises(cambium.Error):
            self.db.rollback("tuesday")
        with self.db.named_snapshot("monday") as monday:
            self.assertEqual(list(monday), [(b"1", b"1")])
            self.assertEqual(monday.multi_get([b"1", b"2"]), [b"1", None])
        self.assertRaises(RuntimeError, monday.get, b"1")
        self.assertRaisesRegex(cambium.Error, "tuesday", self.db.named_snapshot, "tuesday")
        self.db.rollback("monday")
        self.assertEqual([key for key, _ in self.db], [b"1"])
        monday = self.db.named_snapshot("monday")
        self.db.drop_named_snapshot("monday")
        self.assertEqual(monday[b"1"], b"1")
        monday.close()
        self.assertEqual(self.db.named_snapshots(), [])
        with cambium.DB(
            self.path + "-zdb", create_if_missing=True, engine="zdb"
        ) as db:
            self.assertRaises(cambium.UnsupportedError, db.create_named_snapshot, "monday")
            self.assertRaises(cambium.UnsupportedError, db.namespace, "people")

    def test_ranges_are_deleted(self):
        self.fill(b"123456")
        self.db.delete_range(start=b"2", stop=b"4", durability="buffered")
        self.assertEqual([key for key, _ in self.db], [b"1", b"4", b"5", b"6"])
        self.db.delete_range(stop=b"4", sync=True)
        self.db.delete_range(prefix=b"5")
        self.assertEqual([key for key, _ in self.db], [b"4", b"6"])
        self.assertRaises(TypeError, self.db.delete_range, prefix=b"5", stop=b"6")
        prefixed, people = self.db.prefixed_db(b"p-"), self.db.namespace("people")
        for db in (prefixed, people):
            db[b"a"] = db[b"b"] = b""
            db.delete_range(stop=b"b")
            self.assertEqual([key for key, _ in db], [b"b"])
        prefixed.delete_range()
        self.assertEqual([key for key, _ in self.db], [b"4", b"6"])
        # Longer keys go with the entry that they share.
        long = b"k" * 70_000
        self.db[long] = b""
        self.db.delete_range(start=b"a")
        self.assertNotIn(long, self.db)
        with cambium.DB(self.path + "-zdb", create_if_missing=True, engine="zdb") as db:
            self.assertRaises(cambium.UnsupportedError, db.delete_range)

    def test_durabilities_have_names(self):
        for durability in ("buffered", "written", "synced", None):
            self.db.put(b"oak", b"1", durability=durability)
            self.db.merge("append", b"oak", b"2", durability=durability)
            self.assertTrue(self.db.expire(b"oak", None, durability=durability))
            self.assertEqual(self.db[b"oak"], b"12")
            self.db.delete(b"oak", durability=durability)
            with self.db.write_batch(durability=durability) as batch:
                batch.put(b"elm", b"")
        self.db.put(b"oak", b"", sync=True, durability="synced")
        with self.assertRaisesRegex(ValueError, "'buffered', 'written' or 'synced'"):
            self.db.put(b"oak", b"", durability="safe")
        with self.assertRaisesRegex(ValueError, "give one"):
            self.db.write_batch(sync=True, durability="buffered")

    def test_a_database_can_be_subclassed(self):
        class Texts(cambium.DB):
            def __getitem__(self, key):
                return super().__getitem__(key.encode()).decode()

        self.fill(b"1")
        self.db.close()
        with Texts(self.path) as db:
            self.assertEqual(db["1"], "1")

    def test_keys_longer_than_the_engines_take(self):
        keys = [bytes(length) for length in (0, 1, 65_534, 65_535, 70_000, 99_900)]
        with self.db.write_batch() as batch:
            for key in keys:
                batch.put(key, b"v")
        self.assertEqual(list(self.db.iterator(include_value=False)), keys)
        self.assertEqual(self.db.get(keys[-1]), b"v")
        self.assertIsNone(self.db.get(keys[-1] + b"\x00"))

    def test_every_call_has_the_same_long_keys(self):
        short, longest = b"k" * 65_534, b"k" * 65_535
        for key in (short, short + b"\x00", longest):
            self.db.put(key, b"1", ttl=3600)
            self.assertIsNotNone(self.db.expires_at(key))
            self.assertEqual(self.db.get(key), b"1")
            self.assertTrue(self.db.expire(key, None))
            self.db.put(key, b"2")
            self.assertIsNone(self.db.expires_at(key))
            self.db.merge("append", key, b"3")
            with self.db.transaction() as t:
                self.assertEqual(t[key], b"23")
                t[key] = t[key] + b"4"
            self.assertEqual(self.db.get(key), b"234")
            self.db.merge("append", key, b"5")
            self.assertEqual(self.db.multi_get([key]), [b"2345"])
        self.assertEqual(
            list(self.db.iterator(include_value=False)), [short, short + b"\x00", longest]
        )
        self.db.delete(longest)
        self.assertIsNone(self.db.get(longest))
        for key in (b"k" * 65_536, b"k" * 70_000):
            self.db.put(key, b"v")
            self.assertEqual(self.db.get(key), b"v")
            for call in (
                lambda: self.db.put(key, b"", ttl=1),
                lambda: self.db.expires_at(key),
                lambda: self.db.expire(key, 1),
                lambda: self.db.merge("add", key, b"1"),
            ):
                self.assertRaisesRegex(cambium.Error, "65535", call)
            with self.db.transaction() as t:
                for call in (lambda: t.get(key), lambda: t.put(key, b""), lambda: t.delete(key)):
                    self.assertRaisesRegex(cambium.Error, "65535", call)

    def test_a_key_beside_longer_ones_that_begin_with_it(self):
        key, longer = b"k" * 65_535, b"k" * 70_000
        self.db.put(key, b"", ttl=3600)
        self.assertRaisesRegex(cambium.Error, "expires", self.db.put, longer, b"v")
        self.db.delete(longer)
        self.assertIsNotNone(self.db.expires_at(key))
        self.db.expire(key, None)
        self.db.put(longer, b"v")
        self.assertEqual(list(self.db), [(key, b""), (longer, b"v")])
        for call in (
            lambda: self.db.put(key, b"lost", ttl=1),
            lambda: self.db.merge("append", key, b"lost"),
        ):
            self.assertRaisesRegex(cambium.Error, "longer", call)
        with self.db.transaction() as t:
            self.assertRaisesRegex(cambium.Error, "longer", t.put, key, b"lost")
            self.assertEqual(list(t), [(key, b"")])
        self.db.put(key, b"new")
        self.assertEqual(list(self.db), [(key, b"new"), (longer, b"v")])
        self.db.delete(key)
        with self.db.transaction() as t:
            self.assertEqual(list(t), [])
            self.assertIsNone(t.get(key))
        self.assertEqual(list(self.db), [(longer, b"v")])
        self.db.delete(longer)
        self.db.put(key, b"1", ttl=3600)
        self.assertIsNotNone(self.db.expires_at(key))


class Batches(Case):
    def test_a_batch_is_written_when_its_block_ends(self):
        with self.db.write_batch(sync=True) as batch:
            batch.put(b"a", b"1")
            batch.put(b"b", b"2")
            batch.delete(b"a")
            self.assertEqual(len(batch), 3)
            self.assertIsNone(self.db.get(b"b"))
        self.assertIsNone(self.db.get(b"a"))
        self.assertEqual(self.db.get(b"b"), b"2")
        with self.assertRaises(ValueError):
            with self.db.write_batch() as batch:
                batch.put(b"c", b"3")
                raise ValueError
        self.assertEqual(self.db.get(b"c"), b"3")
        with self.assertRaises(ValueError):
            with self.db.write_batch(transaction=True) as batch:
                batch.put(b"d", b"4")
                raise ValueError
        self.assertIsNone(self.db.get(b"d"))

    def test_a_batch_is_appended_measured_and_cleared(self):
        batch, other = self.db.write_batch(), self.db.write_batch()
        empty = batch.approximate_size()
        other.put(b"oak", b"Quercus")
        batch.append(other)
        batch.append(batch)
        self.assertGreater(batch.approximate_size(), empty)
        other.clear()
        other.write()
        self.assertIsNone(self.db.get(b"oak"))
        batch.write()
        batch.write()
        self.assertEqual(self.db.get(b"oak"), b"Quercus")


    def test_a_batch_has_all_kinds_of_changes(self):
        people = self.db.namespace("people")
        for db in (self.db, people):
            db[b"a"] = db[b"b"] = b"1"
        batch, first = self.db.write_batch(), self.db.write_batch()
        for namespace in (None, "people"):
            first.put(b"new", b"1", ttl=1000, namespace=namespace)
            first.put(b"gone", b"1", ttl=0, namespace=namespace)
            first.merge("append", b"b", b"2", namespace=namespace)
            first.delete_range(stop=b"b", namespace=namespace)
        batch.put(b"plain", b"")
        batch.append(first)
        batch.write()
        for db in (self.db, people):
            self.assertEqual(db[b"b"], b"12")
            self.assertNotIn(b"a", db)
            self.assertNotIn(b"gone", db)
            self.assertTrue(900 < db.expires_at(b"new") - time.time() < 1100)
        self.assertIsNone(self.db.expires_at(b"plain"))
        self.assertRaises(ValueError, batch.put, b"a", b"", ttl=float("nan"))

    def test_long_keys_beside_values_that_are_no_plain_ones(self):
        long = b"k" * 70_000
        with self.db.write_batch() as batch:
            batch.put(long, b"1")
            batch.put(b"a", b"1", ttl=1000)
            batch.merge("append", b"b", b"1")
        self.assertIsNotNone(self.db.expires_at(b"a"))
        self.assertEqual((self.db[long], self.db[b"b"]), (b"1", b"1"))
        for change in (
            lambda batch: batch.put(long, b"2", ttl=1000),
            lambda batch: batch.merge("append", long, b"2"),
            lambda batch: batch.delete_range(stop=b"a"),
            lambda batch: batch.require_present(long),
        ):
            batch = self.db.write_batch()
            batch.delete(long)
            change(batch)
            self.assertRaises(cambium.Error, batch.write)
        self.assertEqual(self.db[long], b"1")

    def test_a_batch_is_written_if_its_conditions_hold(self):
        batch = self.db.write_batch()
        batch.put(b"owner", b"me")
        batch.require_absent(b"owner")
        batch.write()
        self.assertRaisesRegex(cambium.PreconditionFailedError, "precondition 0", batch.write)
        batch.clear()
        batch.put(b"owner", b"you")
        batch.put(b"k" * 70_000, b"long")
        batch.require_present(b"owner")
        batch.require_equal(b"owner", b"me")
        batch.write()
        self.assertEqual(self.db[b"owner"], b"you")
        other = self.db.write_batch()
        other.append(batch)
        self.assertRaises(cambium.PreconditionFailedError, other.write)
        with self.assertRaises(cambium.PreconditionFailedError):
            with self.db.prefixed_db(b"p-").write_batch() as batch:
                batch.put(b"owner", b"me")
                batch.require_present(b"owner")
        self.assertNotIn(b"p-owner", self.db)


class Changes(Case):
    def open(self, **options):
        return super().open(engine="zdb", **options)

    def test_a_snapshot_and_the_changes_after_it_fit(self):
        self.db.put(b"oak", b"young")
        self.db.put(b"elm", b"young")
        with self.db.snapshot() as snapshot:
            after = snapshot.sequence
        with self.db.write_batch(sync=True) as batch:
            batch.put(b"oak", b"old")
            batch.delete(b"elm")
        batches = list(self.db.changes(after=after))
        self.assertEqual(len(batches), 1)
        first, last, synced, changes = batches[0]
        self.assertTrue(after < first <= last and synced)
        # Changes of different keys come in an order of the engine's.
        wanted = [
            cambium.Change("", "delete", b"elm", None, None),
            cambium.Change("", "put", b"oak", b"old", None),
        ]
        self.assertEqual(sorted(changes), wanted)
        with self.assertRaises(cambium.Error):
            self.db.changes(after=last + 1)

    def test_expiring_entries_come_with_their_moment(self):
        self.db.put(b"oak", b"1", ttl=1000)
        (batch,) = self.db.changes()
        self.assertAlmostEqual(batch.changes[0].expires_at, time.time() + 1000, delta=100)
        self.assertEqual(batch.changes[0].value, b"1")

    def test_a_follower_waits_while_other_threads_write(self):
        changes, seen = self.db.changes(follow=True), []

        def follow():
            for batch in changes:
                seen.extend(change.key for change in batch.changes)
                if len(seen) == 50:
                    return

        follower = threading.Thread(target=follow)
        follower.start()
        keys = [str(number).encode() for number in range(50)]
        for key in keys:
            self.db.put(key, b"")
        follower.join(60)
        self.assertEqual(seen, keys)
        self.assertIsNone(changes.next(timeout=0.01))

    def test_a_close_ends_a_follower(self):
        changes, raised = self.db.changes(follow=True), []

        def follow():
            try:
                next(changes)
            except RuntimeError as error:
                raised.append(error)

        follower = threading.Thread(target=follow)
        follower.start()
        time.sleep(0.02)
        self.db.close()
        follower.join(60)
        self.assertEqual(len(raised), 1)

    def test_what_is_not_synced_is_left_out_where_asked(self):
        synced = self.db.changes(synced_only=True)
        self.db.put(b"oak", b"1")
        (batch,) = self.db.changes()
        if not batch.synced:
            self.assertIsNone(synced.next())
        self.db.sync()
        self.assertEqual(synced.next().last, batch.last)
        synced.close()
        self.assertRaises(RuntimeError, synced.next)

    def test_consumers(self):
        consumer = self.db.consumer("mirror")
        self.assertTrue(consumer.is_new)
        self.db.put(b"oak", b"1")
        (batch,) = consumer.changes()
        self.assertRaises(cambium.Error, consumer.acknowledge, batch.last + 1)
        consumer.acknowledge(batch.last)
        self.assertEqual(self.db.consumers(), [("mirror", batch.last)])
        self.db.close()
        self.db = cambium.DB(self.path)
        consumer = self.db.consumer("mirror")
        self.assertFalse(consumer.is_new)
        self.assertEqual((consumer.name, consumer.position), ("mirror", batch.last))
        self.assertEqual(list(consumer.changes()), [])
        consumer.remove()
        self.assertRaises(cambium.Error, consumer.remove)
        self.assertEqual(self.db.consumers(), [])

    def test_history_ends_where_the_error_says(self):
        for round in range(10):
            for key in range(500):
                self.db.put(str(key).encode(), bytes(500))
        self.db.compact()
        try:
            self.db.changes()
        except cambium.HistoryLostError as error:
            list(self.db.changes(after=error.oldest))


class Iterators(Case):
    def keys(self, **how):
        return b"".join(self.db.iterator(include_value=False, **how))

    def test_bounds(self):
        self.fill(b"13457")
        self.assertEqual(self.keys(), b"13457")
        self.assertEqual(self.keys(reverse=True), b"75431")
        self.assertEqual(self.keys(start=b"3"), b"3457")
        self.assertEqual(self.keys(start=b"3", include_start=False), b"457")
        self.assertEqual(self.keys(stop=b"5"), b"134")
        self.assertEqual(self.keys(stop=b"5", include_stop=True), b"1345")
        self.assertEqual(self.keys(start=b"2", stop=b"6", reverse=True), b"543")
        self.assertEqual(self.keys(start=b"5", stop=b"3"), b"")
        self.assertEqual(self.keys(prefix=b"4"), b"4")
        self.assertEqual(self.keys(prefix=b"6"), b"")

    def test_what_is_answered(self):
        self.fill(b"1")
        self.assertEqual(list(self.db.iterator()), [(b"1", b"1")])
        self.assertEqual(list(self.db.iterator(include_key=False)), [b"1"])
        nothing = self.db.iterator(include_key=False, include_value=False)
        self.assertEqual(list(nothing), [None])

    def test_both_ways(self):
        self.fill(b"123")
        for reverse, order in ((False, [b"1", b"2", b"3"]), (True, [b"3", b"2", b"1"])):
            it = self.db.iterator(reverse=reverse, include_value=False)
            self.assertEqual(list(it), order)
            self.assertRaises(StopIteration, next, it)
            self.assertEqual(it.prev(), order[2])
            self.assertEqual(it.prev(), order[1])
            self.assertEqual(next(it), order[1])
            self.assertEqual(it.prev(), order[1])
            self.assertEqual(it.prev(), order[0])
            self.assertRaises(StopIteration, it.prev)
            self.assertEqual(next(it), order[0])

    def test_turning_and_seeking_amid_what_was_read_ahead(self):
        keys = [b"%04d" % number for number in range(1, 5000)]
        with self.db.write_batch() as batch:
            for key in keys:
                batch.put(key, b"v")
        it = self.db.iterator(include_value=False)
        there = [next(it) for _ in range(3000)]
        for key in keys:
            self.db.delete(key)
        back = [it.prev() for _ in range(2990)]
        self.assertEqual(back, there[:9:-1])
        self.assertEqual(list(it), keys[10:])
        it.seek(b"2500")
        self.assertEqual((it.prev(), next(it), next(it)), (b"2499", b"2499", b"2500"))
        self.assertEqual(list(self.db), [])
        raw = self.db.snapshot().raw_iterator()
        raw.seek_to_first()
        self.assertFalse(raw.valid())

    def test_seeking(self):
        self.fill()
        it = self.db.iterator(include_value=False)
        it.seek(b"2")
        self.assertEqual(next(it), b"2")
        it.seek(b"21")
        self.assertEqual(it.prev(), b"2")
        it.seek(b"9")
        self.assertRaises(StopIteration, next, it)
        it.seek_to_start()
        self.assertRaises(StopIteration, it.prev)
        it.seek_to_stop()
        self.assertEqual(it.prev(), b"5")
        it = self.db.iterator(reverse=True, include_value=False)
        it.seek(b"3")
        self.assertEqual(next(it), b"2")
        self.assertRaises(TypeError, it.seek, 3)

    def test_raw_iterators(self):
        self.fill()
        it = self.db.raw_iterator()
        self.assertFalse(it.valid())
        self.assertRaises(cambium.IteratorInvalidError, it.key)
        it.seek_to_first()
        self.assertEqual(it.item(), (b"1", b"1"))
        it.next()
        self.assertEqual((it.key(), it.value()), (b"2", b"2"))
        it.prev()
        it.prev()
        self.assertFalse(it.valid())
        self.assertRaises(cambium.IteratorInvalidError, it.next)
        it.seek(b"44")
        self.assertEqual(it.key(), b"5")
        it.seek_to_last()
        it.next()
        self.assertRaises(cambium.IteratorInvalidError, it.value)

    def test_a_comparator_decides_the_order(self):
        self.db.close()

        def backwards(a, b):
            return (a < b) - (a > b)

        how = dict(comparator=backwards, comparator_name=b"backwards")
        self.path += "-backwards"
        with self.open(engine="wisckey", **how) as db:
            for key in (b"a", b"c", b"b"):
                db.put(key, b"")
            self.assertEqual(len(db), 3)
            found = list(db.iterator(include_value=False, stop=b"a"))
            self.assertEqual(found, [b"c", b"b"])
        with self.assertRaisesRegex(cambium.Error, "backwards"):
            self.open()


    def test_comparators_that_cannot_be_supported(self):
        def order(a, b):
            if misbehave:
                misbehave[0]()
            return (a > b) - (a < b)

        how = dict(comparator=order, comparator_name=b"ours")
        for name in (b"", b"\xff", b"n" * 5000):
            with self.assertRaises((ValueError, cambium.Error)):
                cambium.DB(
                    self.path + "-x", create_if_missing=True, comparator=order, comparator_name=name
                )
        misbehave, reported = [], []
        self.path += "-ours"
        with self.open(**how) as db:
            for key in (b"a", b"b", b"c"):
                db[key] = key
            it, raw = db.iterator(), db.raw_iterator()
            sys.unraisablehook = lambda raised: reported.append(raised.exc_type)
            try:
                for call in (
                    lambda: db.get(b"b"),
                    lambda: db.put(b"b", b""),
                    lambda: next(it),
                    lambda: it.close(),
                    lambda: raw.seek_to_first(),
                    lambda: 1 / 0,
                ):
                    misbehave[:] = [call]
                    self.assertEqual(db.get(b"c"), b"c")
                    it.seek(b"b")
                    raw.seek(b"b")
                    self.assertTrue(reported)
                    reported.clear()
            finally:
                sys.unraisablehook = sys.__unraisablehook__
            misbehave.clear()
            self.assertEqual(list(db.iterator(include_value=False)), [b"a", b"b", b"c"])
            self.assertRaises(cambium.Error, db.namespace, "people")
            self.assertRaises(cambium.Error, db.rollback, "monday")
            self.assertRaises(cambium.UnsupportedError, db.named_snapshot, "monday")
            self.assertRaises(cambium.Error, db.snapshot().namespace, "people")
            self.assertRaises(cambium.Error, db.delete_range, stop=b"b")
            self.assertRaises(cambium.UnsupportedError, db.transact, lambda transaction: None)
            batch = db.write_batch()
            batch.require_absent(b"d")
            self.assertRaises(cambium.UnsupportedError, batch.write)

    def test_a_comparator_that_contradicts_itself_crashes_nothing(self):
        def order(a, b):
            turns.append(a)
            return len(turns) % 3 - 1

        turns = []
        self.path += "-chaos"
        with self.open(comparator=order, comparator_name=b"chaos") as db:
            for number in range(200):
                db.put(b"%d" % number, b"")
                db.get(b"%d" % (number // 2))
            for how in ({}, dict(reverse=True, start=b"3", stop=b"7")):
                try:
                    for _ in zip(range(1000), db.iterator(**how)):
                        pass
                except cambium.Error as error:
                    self.assertIn("contradicts itself", str(error))


class Snapshots(Case):
    def test_a_snapshot_sees_one_moment(self):
        self.fill(b"12")
        with self.db.snapshot() as then:
            self.db.delete(b"1")
            self.db.put(b"3", b"3")
            self.assertEqual(then.get(b"1"), b"1")
            self.assertEqual(then.get(b"3", b"none"), b"none")
            self.assertEqual([key for key, _ in then], [b"1", b"2"])
            raw = then.raw_iterator()
            raw.seek_to_last()
            self.assertEqual(raw.key(), b"2")
        self.assertRaises(RuntimeError, then.get, b"1")
        then.close()

    def test_a_snapshot_has_all_namespaces(self):
        people = self.db.namespace("people")
        people[b"ada"] = b"Lovelace"
        with self.db.snapshot() as then:
            people[b"ada"] = b"King"
            self.db.namespace("late")
            inner = then.namespace("people")
            self.assertEqual(inner[b"ada"], b"Lovelace")
            self.assertEqual(list(inner.namespace("")), [])
            self.assertIsNone(then.namespace("nobody"))
            self.assertIn("people", then.namespaces())
        self.assertRaises(RuntimeError, then.namespace, "people")
        self.assertEqual(inner[b"ada"], b"Lovelace")
        inner.close()


class Prefixes(Case):
    def test_a_prefix_is_a_database_of_its_own(self):
        trees, all_ = self.db.prefixed_db(b"tree-"), self.db
        self.assertIs(trees.db, all_)
        all_.put(b"shrub-hazel", b"Corylus")
        trees.put(b"oak", b"Quercus")
        with trees.write_batch() as batch:
            batch.put(b"ash", b"Fraxinus")
        self.assertEqual(all_.get(b"tree-oak"), b"Quercus")
        self.assertIn(b"ash", trees)
        self.assertEqual([key for key, _ in trees], [b"ash", b"oak"])
        then = trees.snapshot()
        trees.delete(b"ash")
        self.assertEqual(then.get(b"ash"), b"Fraxinus")
        it = trees.iterator(include_value=False, start=b"b")
        it.seek(b"a")
        self.assertEqual(list(it), [b"oak"])
        oaks = trees.prefixed_db(b"o")
        self.assertEqual(list(oaks), [(b"ak", b"Quercus")])
        raw = oaks.raw_iterator()
        raw.seek_to_first()
        self.assertEqual(raw.key(), b"ak")


class Closing(Case):
    def test_what_is_closed_raises_runtime_errors(self):
        db = self.db
        self.fill()
        batch, then, it, raw = db.write_batch(), db.snapshot(), db.iterator(), db.raw_iterator()
        raw.seek_to_first()
        next(it)
        db.close()
        db.close()
        for call in (
            lambda: db.get(b"1"),
            lambda: db.put(b"1", b"1"),
            lambda: db.delete(b"1"),
            lambda: db[b"1"],
            lambda: b"1" in db,
            lambda: len(db),
            lambda: iter(db),
            lambda: batch.put(b"1", b"1"),
            lambda: batch.write(),
            lambda: then.get(b"1"),
            lambda: next(then.iterator()),
            lambda: next(it),
            lambda: raw.next(),
            db.write_batch().write,
            db.snapshot,
            db.iterator,
            db.raw_iterator,
            db.compact,
            db.stats,
        ):
            self.assertRaises(RuntimeError, call)

    def test_iterators_are_closed(self):
        self.fill()
        with self.db.iterator() as it:
            next(it)
        self.assertRaises(RuntimeError, next, it)
        self.assertRaises(RuntimeError, it.seek_to_stop)
        raw = self.db.raw_iterator()
        raw.close()
        raw.close()
        self.assertRaises(RuntimeError, raw.valid)

    def test_what_is_left_of_a_database_nobody_holds_works(self):
        self.fill()
        it, then = self.db.iterator(include_value=False), self.db.snapshot()
        batch, people = self.db.write_batch(), self.db.namespace("people")
        next(it)
        self.db = self.open_elsewhere()
        gc.collect()
        self.assertEqual(list(it), [b"2", b"3", b"4", b"5"])
        self.assertEqual(then.get(b"1"), b"1")
        batch.put(b"6", b"6")
        batch.write()
        people.put(b"ada", b"Lovelace")
        self.assertRaises(cambium.LockedError, self.open)
        del it, then, batch, people
        gc.collect()
        with self.open() as db:
            self.assertEqual(db.get(b"6"), b"6")

    def open_elsewhere(self):
        return cambium.DB(self.path + "-elsewhere", create_if_missing=True)

    def test_threads_share_an_iterator_that_is_closed_beside_them(self):
        with self.db.write_batch() as batch:
            for number in range(20_000):
                batch.put(b"%05d" % number, b"v")
        for reads in ("iterator", "raw_iterator"):
            it, found = getattr(self.db, reads)(), []
            if reads == "raw_iterator":
                it.seek_to_first()

            def work():
                try:
                    while len(found) < 5_000:
                        if reads == "iterator":
                            found.append(next(it)[0])
                        else:
                            found.append(it.key())
                            it.next()
                    it.close()
                    found.append(it.seek(b"0"))
                except RuntimeError:
                    pass

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertRaises(RuntimeError, it.seek, b"0")
            self.assertNotIn(None, found)
            if reads == "iterator":
                self.assertEqual(sorted(found), sorted(set(found)))

    def test_threads_walk_far_while_others_write(self):
        keys = [b"%05d" % number for number in range(8_000)]
        with self.db.write_batch() as batch:
            for key in keys:
                batch.put(key, key)
        then, found, done = self.db.snapshot(), [], threading.Event()

        def write():
            number = 0
            while not done.is_set():
                self.db.put(b"%05d" % (number * 7 % 9_000), b"later")
                number += 1

        def walk(reverse):
            it = then.iterator(reverse=reverse)
            read = [next(it) for _ in range(5_000)]
            # Back over where a thread has read ahead, and on.
            back = [it.prev() for _ in range(4_000)]
            found.append(read[:999:-1] == back)
            read = read[:1_000] + list(it)
            found.append(read == [(key, key) for key in sorted(keys, reverse=reverse)])

        walks = [threading.Thread(target=walk, args=(way,)) for way in (True, False, True)]
        writer = threading.Thread(target=write)
        for thread in [writer, *walks]:
            thread.start()
        for thread in walks:
            thread.join()
        done.set()
        writer.join()
        self.assertEqual(found, [True] * 6)
        # Left in the middle: nothing holds the database open.
        it = self.db.iterator()
        for _ in range(4_000):
            next(it)
        then.close()
        self.db.close()
        del it
        self.open().close()

    def test_iterators_let_other_threads_run_while_they_read(self):
        count = 60_000
        with self.db.write_batch() as batch:
            for number in range(count):
                batch.put(b"%05d" % number, b"v" * 50)

        def walk_raw():
            it = self.db.raw_iterator()
            it.seek_to_first()
            found = 0
            while it.valid():
                found += 1
                it.next()
            return found

        walks = {
            "iterator": lambda: len(list(self.db.iterator())),
            "reverse": lambda: len(list(self.db.iterator(reverse=True, include_value=False))),
            "raw": walk_raw,
            # It reads nothing, so it never gives the interpreter lock away.
            "nothing": lambda: sum(1 for _ in range(count)),
        }
        for name, walk in walks.items():
            turns, done, begun = [], threading.Event(), threading.Event()

            def work():
                while not done.is_set():
                    turns.append(name)
                    begun.set()
                    time.sleep(0)

            other = threading.Thread(target=work)
            other.start()
            begun.wait()
            interval = sys.getswitchinterval()
            # No thread is made to give the lock away: only one that waits for the store does.
            sys.setswitchinterval(1_000)
            try:
                before = len(turns)
                found = [walk()]
                # On a busy machine the other thread may come too late for most of its turns.
                while name != "nothing" and len(turns) - before < 6 and len(found) < 20:
                    found.append(walk())
                during = len(turns) - before
            finally:
                sys.setswitchinterval(interval)
                done.set()
                other.join()
            self.assertEqual(set(found), {count})
            if name == "nothing":
                self.assertLessEqual(during, 1)
            else:
                self.assertGreater(during, 5, name)

    def test_threads_meet_a_database_that_is_closed_beside_them(self):
        raised = []

        def work():
            try:
                for number in range(1_000_000):
                    key = b"%d" % number
                    self.db.put(key, key)
                    for _ in self.db.iterator(start=key):
                        pass
            except RuntimeError as error:
                raised.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while self.db.get(b"10") is None:
            pass
        self.db.close()
        for thread in threads:
            thread.join()
        self.assertEqual(len(raised), 4)


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Forks(unittest.TestCase):
    """A child process leaves the objects of its parent alone."""

    # The child runs CHILD here, with every kind of object inherited.
    PROGRAM = """
import os, sys, threading, cambium
db = cambium.DB(sys.argv[1], create_if_missing=True, engine=sys.argv[2])
for n in range(3000):
    db.put(b"%d" % n, b"v" * 100)
objects = [db, db.prefixed_db(b"1"), db.snapshot(), db.write_batch(), db.iterator()]
objects += [db.raw_iterator(), db.namespace("n"), iter(db.snapshot()), db.changes()]
objects += [db.consumer("c")]
for _ in range(2500):
    next(objects[4])
transaction = db.transaction()
transaction.put(b"t", b"1")
child = os.fork()
if child == 0:
    CHILD
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 0, status
transaction.commit()
assert db.get(b"t") == b"1" and db.get(b"7") == b"v" * 100
del objects, transaction
db.close()
"""

    def run_program(self, child):
        for engine in "forest", "wisckey":
            with self.subTest(engine=engine), tempfile.TemporaryDirectory() as folder:
                program = self.PROGRAM.replace("CHILD", child)
                path = os.path.join(folder, "db")
                ended = subprocess.run(
                    [sys.executable, "-c", program, path, engine],
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                self.assertEqual((ended.returncode, ended.stderr), (0, ""))
                self.assertEqual(cambium.check_db(path), [])

    def test_a_child_lets_go_of_what_it_inherits(self):
        self.run_program("del db, transaction; objects.clear(); sys.exit(0)")
        self.run_program("sys.exit(0)")
        self.run_program(
            """
    with db, objects[2], objects[4], objects[5], objects[8], transaction:
        sys.exit(0)"""
        )

    def test_calls_in_a_child_say_whose_the_store_is(self):
        self.run_program("""
    calls = [
        lambda: db.put(b"k", b"v"), lambda: db.get(b"k"), lambda: db.close(),
        lambda: db.closed, lambda: db.snapshot(), lambda: db.write_batch().put(b"k", b"v"),
        lambda: objects[1].get(b"k"), lambda: objects[2].get(b"k"), lambda: objects[2].close(),
        lambda: objects[3].put(b"k", b"v"), lambda: next(objects[4]), lambda: objects[4].close(),
        lambda: objects[5].valid(), lambda: objects[5].seek(b"k"), lambda: objects[6].get(b"k"),
        lambda: objects[8].next(), lambda: objects[9].position, lambda: transaction.get(b"k"),
        lambda: transaction.commit(), lambda: transaction.roll_back(), lambda: db.backup("b"),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except cambium.Error as error:
            assert "parent process" in str(error), (number, error)
        else:
            raise AssertionError(number)
    repr(db), db.engine
    other = cambium.DB(sys.argv[1] + "-2", create_if_missing=True)
    other.put(b"k", b"v")
    assert other.get(b"k") == b"v"
    other.close()
    sys.exit(0)""")


class Names(unittest.TestCase):
    def test_everything_of_plyvel_is_there(self):
        for name in (
            "DB PrefixedDB WriteBatch Snapshot Iterator RawIterator Error IOError "
            "CorruptionError IteratorInvalidError repair_db destroy_db __version__ "
            "__leveldb_version__"
        ).split():
            self.assertTrue(hasattr(plyvel, name), name)

    def test_the_stubs_are_what_is_there(self):
        """Names, kinds and defaults of arguments, without mypy."""
        tree = stubs_of("__init__.pyi")
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.assertEqual(
            set(cambium.__all__), {name for name in {**classes, **functions} if name[0] != "_"}
        )
        compared = 0
        for owner, node in classes.items():
            there = getattr(cambium._native, owner, None)
            if there is None:
                continue
            own = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            found = {name for name in vars(there) if name not in OF_OBJECTS}
            self.assertEqual({part.name for part in own} - OF_OBJECTS, found - OF_OBJECTS, owner)
            for part in own:
                if part.name == "__new__" and sys.version_info < (3, 10):
                    continue  # Its `inspect` finds no signature.
                static = inspect.getattr_static(there, part.name)
                method = there if part.name == "__new__" else static
                if not inspect.isdatadescriptor(method):
                    self.assertEqual(stubbed(part), declared(method), (owner, part.name))
                    compared += 1
        for name, node in functions.items():
            self.assertEqual(stubbed(node), declared(getattr(cambium, name)), name)
        self.assertGreater(compared, 50)

    def test_the_stubs_of_what_is_in_python_are_what_is_there(self):
        """Bases, fields and arguments of what is not in the extension."""
        compared = 0
        for module, name in ((cambium, "__init__.pyi"), (aio, "aio.pyi")):
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            body = stubs_of(name).body
            named = [node for node in body if isinstance(node, functions + (ast.ClassDef,))]
            names = {node.name for node in named}
            self.assertEqual(set(module.__all__), {name for name in names if name[0] != "_"})
            for node in body:
                if isinstance(node, ast.AnnAssign):
                    self.assertTrue(hasattr(module, node.target.id), node.target.id)
            for node in named:
                there = getattr(module, node.name, None)
                if there is None or hasattr(cambium._native, node.name):
                    continue
                if isinstance(node, functions):
                    self.assertEqual(stubbed(node), declared(there), node.name)
                    continue
                known = {**vars(builtins), **vars(module)}
                known.update(builtins=builtins, NamedTuple=tuple)
                bases = [eval(ast.unparse(base), known) for base in node.bases]
                self.assertEqual(tuple(bases) or (object,), there.__bases__, node.name)
                fields = [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)]
                if tuple in bases:
                    found = list(there._fields)
                elif issubclass(there, Exception):
                    found = list(vars(there).get("__annotations__", {})) or fields
                else:
                    found = [field for field in vars(there(None)) if field[0] != "_"]
                self.assertEqual(fields, found, node.name)
                own = {part.name: part for part in node.body if isinstance(part, functions)}
                found = {name for name in vars(there) if inspect.isfunction(vars(there)[name])}
                found = {name for name in found if name[0] != "_" or name in own}
                self.assertEqual(set(own), found, node.name)
                for name, part in own.items():
                    self.assertEqual(stubbed(part), declared(getattr(there, name)), name)
                    compared += 1
        self.assertGreater(compared, 10)

    def readme(self):
        """Where the README lies."""
        here = os.path.dirname(os.path.abspath(__file__))
        return os.environ.get("CAMBIUM_README", os.path.join(here, "../../../README.md"))

    def lines_of(self, document):
        """The example in a document beside the README."""
        document = os.path.join(os.path.dirname(self.readme()), document)
        with open(document, encoding="utf-8") as file:
            (lines,) = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        return lines

    def test_the_lines_of_the_tutorial_run(self):
        lines = self.lines_of("docs/start/python.md")
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(
                [sys.executable, "-c", lines], cwd=folder, capture_output=True, text=True
            )
            self.assertEqual(ran.stderr, "")
            # What the page says that it prints.
            page = os.path.join(os.path.dirname(self.readme()), "docs/start/python.md")
            with open(page, encoding="utf-8") as file:
                (shown,) = re.findall(r"^```text\n(.*?)^```$", file.read(), re.M | re.S)
            self.assertEqual(ran.stdout, shown)

    def test_the_lines_that_move_from_leveldb_run(self):
        try:
            import plyvel
        except ImportError:
            self.skipTest("there is no plyvel")
        lines = self.lines_of("docs/moving/leveldb.md")
        with tempfile.TemporaryDirectory() as folder:
            entries = {b"%04d" % number: b"v" * number for number in range(2500)}
            old = plyvel.DB(os.path.join(folder, "old"), create_if_missing=True)
            for key, value in entries.items():
                old.put(key, value)
            old.close()
            ran = subprocess.run(
                [sys.executable, "-c", lines], cwd=folder, capture_output=True, text=True
            )
            self.assertEqual((ran.stderr, ran.stdout), ("", ""))
            with cambium.DB(os.path.join(folder, "copy")) as copy:
                self.assertEqual(dict(copy), entries)

    def test_the_lines_about_changes_run(self):
        lines = self.lines_of("docs/changes.md")
        with tempfile.TemporaryDirectory() as folder:
            # As at its first start, and as at a later one.
            for _ in range(2):
                ran = subprocess.run(
                    [sys.executable, "-c", lines], cwd=folder, capture_output=True, text=True
                )
                self.assertEqual((ran.stderr, ran.stdout), ("", "put b'oak' b'Quercus'\n"))

    def test_the_lines_of_the_readme_run(self):
        lines = self.lines_of("README.md")
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(
                [sys.executable, "-c", lines], cwd=folder, capture_output=True, text=True
            )
            self.assertEqual((ran.stderr, ran.stdout), ("", "b'oak' b'Quercus'\n"))
            self.assertEqual(cambium.check_db(os.path.join(folder, "copy")), [])


#: What every class has, or the interpreter's machinery looks up by itself.
OF_OBJECTS = {"__module__", "__doc__", "__new__", "__init__", "__repr__"}


def stubs_of(name):
    """The syntax tree of a file of the package."""
    stubs = os.path.join(os.path.dirname(cambium.__file__), name)
    with open(stubs, encoding="utf-8") as file:
        return ast.parse(file.read())


def stubbed(node):
    """Arguments of a function in the stubs: name, kind and default."""
    arguments = node.args
    defaults = [inspect.Parameter.empty] * len(arguments.posonlyargs + arguments.args)
    for at, default in enumerate(reversed(arguments.defaults), 1):
        defaults[-at] = ast.literal_eval(default)
    known = [(name.arg, "positional") for name in arguments.posonlyargs]
    known += [(name.arg, "any") for name in arguments.args]
    all_ = [(name, kind, default) for (name, kind), default in zip(known, defaults)]
    if arguments.vararg:
        all_.append((arguments.vararg.arg, "rest", inspect.Parameter.empty))
    for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        value = inspect.Parameter.empty if default is None else ast.literal_eval(default)
        all_.append((name.arg, "keyword", value))
    if arguments.kwarg:
        all_.append((arguments.kwarg.arg, "named rest", inspect.Parameter.empty))
    return [argument for argument in all_ if argument[0] not in ("self", "cls")]


def declared(function):
    """The same of a function that is there."""
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "any",
        inspect.Parameter.VAR_POSITIONAL: "rest",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.VAR_KEYWORD: "named rest",
    }
    there = inspect.signature(function).parameters.values()
    all_ = [(one.name, kinds[one.kind], one.default) for one in there]
    return [argument for argument in all_ if argument[0] != "self"]


if __name__ == "__main__":
    unittest.main()
