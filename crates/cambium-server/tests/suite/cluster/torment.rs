//! Faults in random order against a real cluster, and histories of its clients.
//!
//! Nodes are killed (`SIGKILL`) and started again, all at once too; paused (`SIGSTOP`) for
//! longer than the lease; cut off from etcd and from each other, also one way only; slowed
//! down; moved in and out of chains; one has a disk that fills up. etcd is killed, restarted
//! and paused. Between the turns everything is mended, the history so far is checked, and all
//! members of each chain must hold the same.
//!
//! `CAMBIUM_SEED=N` repeats the order of faults of a run, `CAMBIUM_STATES=N` makes a fault of
//! each 500. `CAMBIUM_LOGS=DIR` keeps the logs of the nodes.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cambium_cluster::control;
use cambium_cluster::slots::{partition, slot};
use cambium_cluster::topology::{Acknowledgement, View};
use cambium_io::simulated::Generator;
use tempfile::TempDir;

use super::harness::{Cluster, ClusterClient, Course, beside, eventually, name};
use super::history::{Call, NEVER, check};
use crate::harness::folder;

const KEYS: usize = 16;
const CLIENTS: usize = 6;
/// Faults between two checks.
const TURN: u64 = 8;
/// The node whose disk fills up.
const SMALL: usize = 1;
const SMALL_BYTES: u64 = 256 << 20;

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A file system in memory, which can be filled.
struct SmallDisk<'a> {
    folder: &'a Path,
}

impl SmallDisk<'_> {
    /// `None` where this user may not mount.
    fn mount(folder: &Path) -> Option<SmallDisk<'_>> {
        let size = format!("size={SMALL_BYTES}");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(folder)
            .output();
        let is_mounted = mount.is_ok_and(|output| output.status.success());
        if !is_mounted {
            eprintln!("SKIPPED the full disk: this user may not mount a tmpfs");
        }
        is_mounted.then_some(SmallDisk { folder })
    }

    /// Leaves so many bytes.
    fn fill(&self, left: u64) {
        let space = rustix::fs::statvfs(self.folder).unwrap();
        let bytes = (space.f_bavail * space.f_frsize).saturating_sub(left);
        let file = std::fs::File::create(self.folder.join("filler")).unwrap();
        // The node may write at the same time, and leave less room than there was.
        let flags = rustix::fs::FallocateFlags::empty();
        _ = rustix::fs::fallocate(&file, flags, 0, bytes.max(1));
    }

    fn empty(&self) {
        _ = std::fs::remove_file(self.folder.join("filler"));
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Its server has not ended yet.
        _ = Command::new("umount").arg("-l").arg(self.folder).output();
    }
}

/// The faults that last at the moment, and how each is mended.
struct Torment<'a> {
    random: Generator,
    disk: Option<SmallDisk<'a>>,
    paused: Vec<bool>,
    is_full: bool,
    kills: u64,
    begun: Instant,
}

impl Torment<'_> {
    /// One fault, and some of the others mended.
    fn step(&mut self, cluster: &mut Cluster) {
        for node in 0..cluster.nodes.len() {
            if self.random.chance(1, 3) {
                cluster.etcd_ways[node].mend();
                cluster.ways[node].mend();
            }
            if self.random.chance(1, 2) {
                self.resume(cluster, node);
            }
            if self.random.chance(1, 2) && cluster.nodes[node].is_none() {
                _ = cluster.try_start_node(node);
            }
        }
        if self.random.chance(2, 3) {
            cluster.etcd.resume();
        }
        if self.random.chance(1, 4) {
            self.free(cluster);
        }
        let node = self.random.below(cluster.nodes.len() as u64) as usize;
        let fault = self.random.below(20);
        println!("{:?}: fault {fault} of n{node}", self.begun.elapsed());
        match fault {
            0..9 => self.kill(cluster, node),
            9..12 => self.pause(cluster, node),
            12 => cluster.etcd_ways[node].cut(true),
            13 => cluster.etcd_ways[node].stop(self.random.below(2) as usize),
            14 => match self.random.chance(1, 2) {
                true => cluster.ways[node].cut(true),
                false => cluster.ways[node].stop(self.random.below(2) as usize),
            },
            15 => cluster.ways[node].slow(1 + self.random.below(200)),
            16 => match self.random.chance(1, 2) {
                true => cluster.etcd.kill(node),
                false => cluster.etcd.pause(node),
            },
            17 => (0..cluster.nodes.len()).for_each(|node| {
                self.kill(cluster, node);
                if self.random.chance(3, 4) {
                    _ = cluster.try_start_node(node);
                }
            }),
            18 => self.relocate(cluster),
            _ => {
                if let Some(disk) = &self.disk {
                    disk.empty();
                    disk.fill(self.random.below(SMALL_BYTES / 32));
                    self.is_full = true;
                }
            }
        }
        let millis = match self.random.below(4) {
            0 => cluster.meta.lease_seconds * 1_000 + self.random.below(1_000),
            _ => 20 + self.random.below(1_000),
        };
        std::thread::sleep(Duration::from_millis(millis));
    }

    fn kill(&mut self, cluster: &mut Cluster, node: usize) {
        self.kills += u64::from(cluster.nodes[node].is_some());
        self.paused[node] = false;
        cluster.kill(node);
    }

    fn pause(&mut self, cluster: &Cluster, node: usize) {
        if let Some(server) = &cluster.nodes[node] {
            server.signal("STOP");
            self.paused[node] = true;
        }
    }

    fn resume(&mut self, cluster: &Cluster, node: usize) {
        if let (Some(server), true) = (&cluster.nodes[node], self.paused[node]) {
            println!("{:?}: n{node} goes on", self.begun.elapsed());
            server.signal("CONT");
        }
        self.paused[node] = false;
    }

    /// A copy of some chain goes to a node that has none, if etcd and the controller let it.
    fn relocate(&mut self, cluster: &Cluster) {
        let Ok(seen) = cluster.registry.read(&cluster.meta) else {
            return;
        };
        let place = self.random.below(seen.view.chains.len() as u64) as u16;
        let chain = &seen.view.chains[usize::from(place)];
        let from = chain.members[self.random.below(chain.members.len() as u64) as usize].clone();
        let is_free = |node: &&String| chain.place(node).is_none();
        let to = seen.view.nodes.keys().find(is_free);
        if let (Some(to), false) = (to, from.leaving) {
            let moved = control::relocate(&seen.view, place, &from.node, to).unwrap();
            _ = cluster.registry.change(&seen, place, &moved, None);
        }
    }

    /// The disk has room again. A store that has seen an error of its disk is opened again.
    fn free(&mut self, cluster: &mut Cluster) {
        if let (Some(disk), true) = (&self.disk, self.is_full) {
            disk.empty();
            self.is_full = false;
            self.kill(cluster, SMALL);
            _ = cluster.try_start_node(SMALL);
        }
    }

    /// Everything is as it should be, and all chains are whole.
    fn mend(&mut self, cluster: &mut Cluster) {
        cluster.etcd.resume();
        eventually("etcd answers", || {
            cluster.registry.read(&cluster.meta).is_ok()
        });
        cluster.etcd_ways.iter().for_each(|way| way.mend());
        cluster.ways.iter().for_each(|way| way.mend());
        self.free(cluster);
        for node in 0..cluster.nodes.len() {
            self.resume(cluster, node);
            if cluster.nodes[node].is_none() {
                eventually("the node starts", || cluster.try_start_node(node));
            }
        }
        cluster.settle();
    }
}

fn key(number: usize) -> String {
    format!("register{number}")
}

/// The entries of each member of the chains, once all of them serve.
struct Copies<'a> {
    cluster: &'a Cluster,
    view: View,
    reader: ClusterClient,
}

impl Copies<'_> {
    fn of(cluster: &Cluster) -> Copies<'_> {
        Copies {
            cluster,
            view: cluster.view(),
            reader: cluster.reader(),
        }
    }

    /// The value of a key, which all members must have.
    fn value(&mut self, key: &str) -> String {
        let mut values = self.values(key);
        if self.cluster.meta.acknowledgement != Acknowledgement::Strong {
            eventually("the members agree", || {
                values = self.values(key);
                values.iter().all(|value| *value == values[0])
            });
        }
        assert!(
            values.len() == 3 && values.iter().all(|value| *value == values[0]),
            "{key}: {values:?}"
        );
        values.swap_remove(0)
    }

    fn values(&mut self, key: &str) -> Vec<String> {
        let place = partition(slot(key.as_bytes()), self.cluster.meta.partitions);
        let chain = &self.view.chains[usize::from(place)];
        let nodes = 0..self.cluster.nodes.len();
        let members = nodes.filter(|node| chain.place(&name(*node)).is_some());
        let reader = &mut self.reader;
        let value = |node: usize| reader.ask(&self.cluster.places[node].1, &["GET", key]);
        members.map(value).collect()
    }
}

/// Reads and writes registers, and notes when.
fn play(
    mut random: Generator,
    (mut writer, mut reader): (ClusterClient, ClusterClient),
    values: &AtomicU64,
    now: impl Fn() -> u64,
    course: &Course,
) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut answers = 0;
    while course.goes_on(answers >= 20) {
        let number = random.below(KEYS as u64) as usize;
        let (key, is_write) = (key(number), random.chance(1, 2));
        let mut call = Call {
            key: number,
            value: 0,
            is_write,
            begun: now(),
            ended: NEVER,
            node: 0,
        };
        let client = match is_write || random.chance(1, 2) {
            true => &mut writer,
            false => {
                reader.turn_to(random.below(4) as usize);
                &mut reader
            }
        };
        let answer = match is_write {
            true => {
                call.value = values.fetch_add(1, Ordering::Relaxed);
                client.try_call(&["SET", &key, &call.value.to_string()])
            }
            false => client.try_call(&["GET", &key]),
        };
        call.node = client.node;
        let has_failed = answer.is_none();
        if let Some(answer) = answer {
            answers += 1;
            call.ended = now();
            if !is_write {
                call.value = answer.parse().unwrap_or(0);
            }
        }
        if is_write || !has_failed {
            calls.push(call);
        }
        // Each answer is worth a check, and so many more are not.
        std::thread::sleep(Duration::from_millis(if has_failed { 20 } else { 1 }));
    }
    calls
}

/// Where the nodes write their logs, and the folder that goes with the test.
fn logs() -> (std::path::PathBuf, TempDir) {
    let own = folder();
    let path = std::env::var_os("CAMBIUM_LOGS").map(std::path::PathBuf::from);
    let path = path.unwrap_or_else(|| own.path().to_path_buf());
    std::fs::create_dir_all(&path).unwrap();
    (path, own)
}

/// The seed of a run, and how many turns it takes.
fn bounds() -> (u64, Range<u64>) {
    let faults = number_from("CAMBIUM_STATES").map_or(TURN, |states| states.div_ceil(500));
    let seed = number_from("CAMBIUM_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    (seed, 0..faults.div_ceil(TURN))
}

/// Runs turns: each begins its clients, and calls what disturbs the cluster and mends it.
fn torment(
    mut cluster: Cluster,
    begun: Instant,
    mut turn: impl FnMut(&mut Cluster, u64, &mut dyn FnMut(&mut Cluster)),
) {
    let (seed, turns) = bounds();
    let (path, _logs) = logs();
    println!("CAMBIUM_SEED={seed}");
    cluster.logs = Some(path);
    let small = cluster.places[SMALL].0.path().to_path_buf();
    let mut torment = Torment {
        random: Generator::new(seed),
        disk: SmallDisk::mount(&small),
        paused: vec![false; 4],
        is_full: false,
        kills: 0,
        begun,
    };
    (0..3).for_each(|node| cluster.start_node(node));
    cluster.settle();
    cluster.grow();
    for number in turns {
        turn(&mut cluster, seed ^ (number << 32), &mut |cluster| {
            (0..TURN).for_each(|_| torment.step(cluster));
            torment.mend(cluster);
        });
        println!("turn {number}: {} kills so far", torment.kills);
    }
    assert!(torment.kills > 0, "nothing was killed");
}

fn strong_histories(engine: &'static str, durability: &'static str, etcd_members: usize) {
    let strong = Acknowledgement::Strong;
    let cluster = Cluster::make(engine, durability, strong, etcd_members);
    let begun = Instant::now();
    let now = || begun.elapsed().as_nanos() as u64 + 1;
    let values = AtomicU64::new(1);
    let mut initial = vec![0; KEYS];
    let mut unanswered: Vec<Call> = Vec::new();
    torment(cluster, begun, |cluster, seed, disturb| {
        let clients = (0..CLIENTS).map(|_| (cluster.client(), cluster.reader()));
        let client = |number: usize, own, course: &Course| {
            let random = Generator::new(seed + number as u64);
            play(random, own, &values, now, course)
        };
        let histories = beside(clients.collect(), client, || disturb(cluster));
        let mut history: Vec<Call> = histories.into_iter().flatten().collect();
        let answered = history.iter().filter(|call| call.ended != NEVER).count();
        assert!(answered > 100, "{answered} calls were answered");
        // A write of an earlier turn may have been done in this one.
        history.append(&mut unanswered);
        let mut copies = Copies::of(cluster);
        let last: Vec<u64> = (0..KEYS)
            .map(|number| {
                let (begun, value) = (now(), copies.value(&key(number)));
                let value = value.parse().unwrap_or(0);
                let ended = now();
                history.push(Call {
                    key: number,
                    value,
                    is_write: false,
                    begun,
                    ended,
                    node: 0,
                });
                value
            })
            .collect();
        if let Err(failure) = check(&initial, &history) {
            panic!("{failure}");
        }
        unanswered = history
            .iter()
            .filter(|call| call.ended == NEVER && call.value != last[call.key])
            .copied()
            .collect();
        initial = last;
    });
}

#[test]
fn strong_histories_are_linearizable() {
    strong_histories("forest", "written", 1);
}

#[test]
fn strong_histories_with_three_members_of_etcd_are_linearizable() {
    strong_histories("wisckey", "synced", 3);
}

#[test]
fn strong_histories_without_an_order_of_keys_are_linearizable() {
    strong_histories("zdb", "synced", 1);
}

#[test]
fn strong_histories_without_a_change_feed_are_linearizable() {
    strong_histories("alphard", "written", 1);
}

/// The keys of a partition in the order of their writes.
fn in_turn(place: usize, number: u64) -> String {
    format!("{{{}}}{number}", TAGS[place])
}

/// One hash tag for each of four partitions.
const TAGS: [&str; 4] = ["a", "b", "c", "d"];
/// See `chains::MOST_LAG`.
const MOST_LOST: u64 = 10_000;

/// Writes keys in turn until it is over; those that were acknowledged, and the next one.
fn append(mut client: ClusterClient, place: usize, from: u64, course: &Course) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    for number in from.. {
        if !course.goes_on(acknowledged.len() > 20) {
            break;
        }
        let key = in_turn(place, number);
        match client.try_call(&["SET", &key, &number.to_string()]) {
            Some(_) => acknowledged.push(number),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    acknowledged
}

/// The batches that the nodes' logs say were discarded.
fn discarded(logs: &Path) -> u64 {
    let lines = (0..4).flat_map(|node| {
        let log = std::fs::read_to_string(logs.join(name(node))).unwrap_or_default();
        log.lines().map(str::to_string).collect::<Vec<_>>()
    });
    let lines = lines.filter(|line| line.contains("discards batches"));
    let number = |line: String| {
        let (_, rest) = line.split_once("batches=")?;
        rest.split(' ').next()?.parse::<u64>().ok()
    };
    lines.filter_map(number).sum()
}

/// Each time that the head changes, the last writes before it may be lost, and no others. The
/// logs report at least as many.
#[test]
fn what_async_chains_lose_is_bounded_and_reported() {
    let cluster = Cluster::make("forest", "written", Acknowledgement::Async, 1);
    let mut next = [1; 4];
    let mut lost = 0;
    torment(cluster, Instant::now(), |cluster, _, disturb| {
        let before = cluster.view();
        let clients = (0..4).map(|_| cluster.client()).collect();
        let client = |place: usize, own, course: &Course| append(own, place, next[place], course);
        let written = beside(clients, client, || disturb(cluster));
        let mut copies = Copies::of(cluster);
        for (place, written) in written.into_iter().enumerate() {
            assert!(
                written.len() > 20,
                "{} writes were acknowledged",
                written.len()
            );
            let chain = usize::from(partition(slot(TAGS[place].as_bytes()), 4));
            let changes = copies.view.chains[chain].epoch - before.chains[chain].epoch;
            let is_there = |number: &u64| copies.value(&in_turn(place, *number)) != "nil";
            let there: Vec<bool> = written.iter().map(is_there).collect();
            let runs = there
                .chunk_by(|one, other| one == other)
                .filter(|run| !run[0]);
            let runs: Vec<u64> = runs.map(|run| run.len() as u64).collect();
            assert!(
                runs.len() as u64 <= changes && runs.iter().all(|run| *run <= MOST_LOST),
                "{runs:?} writes of partition {chain} are lost, with {changes} changes"
            );
            lost += runs.iter().sum::<u64>();
            next[place] = written.last().map_or(next[place], |last| last + 1_000);
        }
        let mut reported = 0;
        eventually("all that is lost is reported", || {
            reported = discarded(cluster.logs.as_deref().unwrap());
            lost <= reported
        });
        println!("{lost} writes lost, {reported} batches reported");
    });
}
