//! Temporary smoke tests on a throw-away in-memory file system.
use cambium_api::*;
use cambium_io::environment::*;
use cambium_io::step::*;
use cambium_io::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

#[derive(Debug, Default)]
struct Fs {
    files: Mutex<BTreeMap<PathBuf, Arc<RwLock<Vec<u8>>>>>,
    dirs: Mutex<std::collections::BTreeSet<PathBuf>>,
    locks: Arc<Mutex<std::collections::BTreeSet<PathBuf>>>,
}
#[derive(Debug)]
struct F {
    path: PathBuf,
    data: Arc<RwLock<Vec<u8>>>,
}
#[derive(Debug)]
struct L(PathBuf, Arc<Mutex<std::collections::BTreeSet<PathBuf>>>);
impl Drop for L {
    fn drop(&mut self) {
        self.1.lock().unwrap().remove(&self.0);
    }
}
impl FileLock for L {}
impl File for F {
    fn path(&self) -> &Path {
        &self.path
    }
    fn read_at(&self, b: &mut [u8], o: u64) -> Result<usize> {
        let d = self.data.read().unwrap();
        let o = (o as usize).min(d.len());
        let n = b.len().min(d.len() - o);
        b[..n].copy_from_slice(&d[o..o + n]);
        Ok(n)
    }
    fn write_at(&self, b: &[u8], o: u64) -> Result<()> {
        let mut d = self.data.write().unwrap();
        let e = o as usize + b.len();
        if d.len() < e {
            d.resize(e, 0)
        }
        d[o as usize..e].copy_from_slice(b);
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        Ok(())
    }
    fn length(&self) -> Result<u64> {
        Ok(self.data.read().unwrap().len() as u64)
    }
    fn set_length(&self, l: u64) -> Result<()> {
        self.data.write().unwrap().resize(l as usize, 0);
        Ok(())
    }
    fn allocate(&self, o: u64, l: u64) -> Result<()> {
        let mut d = self.data.write().unwrap();
        let e = (o + l) as usize;
        if d.len() < e {
            d.resize(e, 0)
        }
        Ok(())
    }
    fn punch_hole(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn advise(&self, _: u64, _: u64, _: Advice) {}
    fn allocated_bytes(&self) -> Result<u64> {
        self.length()
    }
    fn alignment(&self) -> Alignment {
        Alignment::NONE
    }
}
#[derive(Debug)]
struct Q(Vec<ReadCompletion>, usize);
impl ReadQueue for Q {
    fn backend(&self) -> ReadBackend {
        ReadBackend::Sync
    }
    fn fallback_note(&self) -> Option<&str> {
        None
    }
    fn depth(&self) -> usize {
        self.1
    }
    fn pending(&self) -> usize {
        self.0.len()
    }
    fn submit(&mut self, mut r: ReadRequest) {
        let result = r.file.read_at(&mut r.buffer, r.offset);
        self.0.push(ReadCompletion {
            tag: r.tag,
            buffer: r.buffer,
            result,
        });
    }
    fn wait(&mut self, _: usize, c: &mut Vec<ReadCompletion>) -> Result<()> {
        c.append(&mut self.0);
        Ok(())
    }
    fn statistics(&self) -> cambium_io::batch::ReadQueueStatistics {
        Default::default()
    }
}
impl FileSystem for Fs {
    fn open(&self, path: &Path, o: OpenOptions) -> Result<Arc<dyn File>> {
        let mut f = self.files.lock().unwrap();
        if !f.contains_key(path) && !o.create && !o.create_new {
            return Err(Error::io(
                "open",
                path,
                std::io::Error::from_raw_os_error(2),
            ));
        }
        let d = f.entry(path.into()).or_default().clone();
        if o.truncate {
            d.write().unwrap().clear();
        }
        Ok(Arc::new(F {
            path: path.into(),
            data: d,
        }))
    }
    fn create_directory(&self, p: &Path) -> Result<()> {
        self.dirs.lock().unwrap().insert(p.into());
        Ok(())
    }
    fn remove_directory(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn list(&self, p: &Path) -> Result<Vec<DirectoryEntry>> {
        Ok(self
            .files
            .lock()
            .unwrap()
            .keys()
            .filter(|k| k.parent() == Some(p))
            .map(|k| DirectoryEntry {
                name: k.file_name().unwrap().into(),
                kind: FileKind::File,
            })
            .collect())
    }
    fn metadata(&self, p: &Path) -> Result<Option<Metadata>> {
        if self.dirs.lock().unwrap().contains(p) {
            return Ok(Some(Metadata {
                kind: FileKind::Directory,
                length: 0,
                allocated: 0,
            }));
        }
        Ok(self.files.lock().unwrap().get(p).map(|d| {
            let l = d.read().unwrap().len() as u64;
            Metadata {
                kind: FileKind::File,
                length: l,
                allocated: l,
            }
        }))
    }
    fn rename(&self, a: &Path, b: &Path) -> Result<()> {
        let mut f = self.files.lock().unwrap();
        let d = f.remove(a).unwrap();
        f.insert(b.into(), d);
        Ok(())
    }
    fn remove(&self, p: &Path) -> Result<()> {
        self.files
            .lock()
            .unwrap()
            .remove(p)
            .ok_or_else(|| Error::io("remove", p, std::io::Error::from_raw_os_error(2)))?;
        Ok(())
    }
    fn sync_directory(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn lock(&self, p: &Path, _: LockMode) -> Result<Box<dyn FileLock>> {
        if !self.locks.lock().unwrap().insert(p.into()) {
            return Err(Error::Locked {
                path: p.into(),
                owner: None,
            });
        }
        self.files.lock().unwrap().entry(p.into()).or_default();
        Ok(Box::new(L(p.into(), self.locks.clone())))
    }
    fn space(&self, _: &Path) -> Result<Space> {
        Ok(Space {
            available: 1 << 40,
            total: 1 << 40,
        })
    }
    fn read_queue(&self, o: BatchOptions) -> Result<Box<dyn ReadQueue>> {
        Ok(Box::new(Q(Vec::new(), o.depth)))
    }
}
#[derive(Debug)]
struct C;
impl Clock for C {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn wall_nanoseconds(&self) -> u64 {
        1
    }
    fn sleep(&self, _: Duration) {}
}
#[derive(Debug)]
struct R(Mutex<u64>);
impl Randomness for R {
    fn fill(&self, b: &mut [u8]) {
        for x in b {
            let mut s = self.0.lock().unwrap();
            *s = s
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *x = (*s >> 56) as u8;
        }
    }
}
#[derive(Debug)]
struct E;
#[derive(Debug)]
struct B;
impl BackgroundTask for B {
    fn notify(&self) {}
}
impl Executor for E {
    fn spawn(&self, _: &str, _: Task) -> Box<dyn BackgroundTask> {
        Box::new(B)
    }
    fn runs_tasks(&self) -> bool {
        false
    }
}

pub fn env() -> Environment {
    Environment {
        file_system: Arc::new(Fs::default()),
        clock: Arc::new(C),
        randomness: Arc::new(R(Mutex::new(7))),
        executor: Arc::new(E),
        memory: MemoryBudget::new(1 << 30),
    }
}
fn opts(extra: &[(&str, &str)]) -> OptionValues {
    let mut o = OptionValues::default();
    for (k, v) in [
        ("keys_per_table", "64"),
        ("piece_bytes", "256"),
        ("block_bytes", "256"),
        ("data_files", "3"),
        ("commit_log_bytes", "2048"),
        ("buckets", "4"),
        ("open_tables", "2"),
        ("sparse_tables", "1000"),
    ] {
        o.set(k, v);
    }
    for (k, v) in extra {
        o.set(k, v);
    }
    o
}
fn tuning() -> OptionValues {
    let mut o = OptionValues::default();
    o.set("open_tables", "2");
    o.set("sparse_tables", "1000");
    o.set("compaction_least_bytes", "0");
    o.set("checkpoint_bytes", "4096");
    o
}

#[test]
fn random_ops_match() {
    for keys in ["integer", "string"] {
        for seed in 0..200u64 {
            let env = env();
            let path = Path::new("/db");
            let mut store = cambium_zdb::Zdb
                .create(&env, path, &opts(&[("keys", keys)]))
                .unwrap();
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut s = seed.wrapping_mul(0x9e3779b97f4a7c15) | 1;
            let mut rnd = move |n: u64| {
                s ^= s << 13;
                s ^= s >> 7;
                s ^= s << 17;
                s % n
            };
            for step in 0..300 {
                let k = rnd(if keys == "integer" { 400 } else { 60 });
                let key = k.to_be_bytes().to_vec();
                let d = [
                    Durability::Buffered,
                    Durability::Written,
                    Durability::Synced,
                ][rnd(3) as usize];
                match rnd(20) {
                    0..=8 => {
                        let v = vec![step as u8; rnd(80) as usize];
                        store.put(&key, &v, d).unwrap();
                        model.insert(key, v);
                    }
                    9..=11 => {
                        store.delete(&key, d).unwrap();
                        model.remove(&key);
                    }
                    12 | 13 => {
                        let mut b = WriteBatch::new();
                        for _ in 0..rnd(6) {
                            let k = rnd(60).to_be_bytes();
                            if rnd(3) == 0 {
                                b.delete(&k);
                                model.remove(&k[..]);
                            } else {
                                b.put(&k, &[step as u8; 9]);
                                model.insert(k.to_vec(), vec![step as u8; 9]);
                            }
                        }
                        store.write(b, d).unwrap();
                    }
                    14 => {
                        store.close().unwrap();
                        store = cambium_zdb::Zdb.open(&env, path, &tuning(), &()).unwrap();
                    }
                    15 => {
                        store.write(WriteBatch::new(), Durability::Written).unwrap();
                        drop(store.clone());
                        store.sync().unwrap();
                        drop(store);
                        store = cambium_zdb::Zdb.open(&env, path, &tuning(), &()).unwrap();
                    }
                    16 => {
                        store.compact(&CompactOptions::default(), &()).unwrap();
                    }
                    17 => {
                        for _ in 0..rnd(4) {
                            store.step(200).unwrap();
                        }
                    }
                    18 if keys == "integer" => {
                        let r = KeyRange::between(&k.to_be_bytes(), &(k + rnd(30)).to_be_bytes());
                        model.retain(|k, _| !r.contains(k));
                        store.delete_range(r, d).unwrap();
                    }
                    _ => {
                        assert_eq!(
                            store.get(&key).unwrap().map(|v| v.to_vec()),
                            model.get(&key).cloned(),
                            "{keys} seed {seed} step {step}"
                        );
                    }
                }
                if step % 20 == 0 {
                    let mut c = store.iterate(IterationOrder::Any, None).unwrap();
                    let mut got = BTreeMap::new();
                    while let Some(e) = c.next().unwrap() {
                        assert!(got.insert(e.key.to_vec(), e.value.to_vec()).is_none());
                    }
                    assert_eq!(got, model, "{keys} seed {seed} step {step}");
                    if keys == "integer" {
                        let mut c = store.scan(&KeyRange::all(), Direction::Reverse).unwrap();
                        let mut n = 0;
                        let mut it = model.iter().rev();
                        while let Some(e) = c.next().unwrap() {
                            let (k, v) = it.next().unwrap();
                            assert_eq!(e.key, *k);
                            assert_eq!(e.value, *v);
                            n += 1;
                        }
                        assert_eq!(n, model.len());
                    }
                }
            }
        }
    }
}
