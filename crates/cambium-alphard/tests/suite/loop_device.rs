//! Real block devices: loop devices with sectors of 512 and 4,096 bytes, alone and as
//! a pair. Skipped, and said so, where this machine gives no loop devices.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cambium_alphard::Alphard;
use cambium_api::{Durability, Engine, EngineKind, Error, OptionValues};
use cambium_io::Environment;

const DEVICE_BYTES: u64 = 8 << 20;

/// A loop device, detached when it is dropped.
struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Over a new file; why not, where there is none.
    fn attach(folder: &Path, name: &str, sector_bytes: u32) -> Result<Self, String> {
        let image = folder.join(name);
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(DEVICE_BYTES)
            .map_err(|error| error.to_string())?;
        let attached = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size"])
            .arg(sector_bytes.to_string())
            .arg(&image)
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !attached.status.success() {
            return Err(String::from_utf8_lossy(&attached.stderr).trim().to_string());
        }
        let path = String::from_utf8_lossy(&attached.stdout).trim().into();
        Ok(LoopDevice { path })
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
        if !detached.is_ok_and(|status| status.success()) {
            println!("{} stays attached", self.path.display());
        }
    }
}

/// Attaches devices of each sector size and runs a test on them.
fn on_devices(count: usize, test: impl Fn(&Path, &[LoopDevice], u32)) {
    for sector_bytes in [512, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let devices: Result<Vec<LoopDevice>, String> = (0..count)
            .map(|number| LoopDevice::attach(folder.path(), &number.to_string(), sector_bytes))
            .collect();
        match devices {
            Ok(devices) => test(&folder.path().join("store"), &devices, sector_bytes),
            Err(reason) => println!("SKIPPED: sectors of {sector_bytes} bytes: {reason}"),
        }
    }
}

fn create(path: &Path, pairs: &[(&str, &str)]) -> cambium_api::Result<Arc<dyn Engine>> {
    Alphard.create(&Environment::real(), path, &OptionValues::from(pairs))
}

/// A process that attaches a loop device claims each one that it tries for a moment, those in
/// use too; until then the kernel refuses to open them alone.
fn patiently<T>(mut step: impl FnMut() -> cambium_api::Result<T>) -> T {
    for _ in 0..100 {
        match step() {
            Err(Error::Locked { .. }) => std::thread::sleep(Duration::from_millis(20)),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done.unwrap(),
        }
    }
    step().unwrap()
}

fn open_with(path: &Path, options: &OptionValues) -> Arc<dyn Engine> {
    patiently(|| Alphard.open(&Environment::real(), path, options, &()))
}

fn open(path: &Path) -> Arc<dyn Engine> {
    open_with(path, &OptionValues::default())
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 1 + number as usize * 401 % 20_000]
}

fn fill(store: &dyn Engine) {
    for number in 0..200u32 {
        let key = number.to_be_bytes();
        store.put(&key, b"older", Durability::Buffered).unwrap();
        store
            .put(&key, &value(number), Durability::Written)
            .unwrap();
    }
    for number in (0..200u32).step_by(3) {
        store
            .delete(&number.to_be_bytes(), Durability::Written)
            .unwrap();
    }
    store.sync().unwrap();
}

fn compare(store: &dyn Engine) {
    for number in 0..200u32 {
        let found = store.get(&number.to_be_bytes()).unwrap();
        match number % 3 {
            0 => assert!(found.is_none(), "{number} was deleted"),
            _ => assert_eq!(found.unwrap(), value(number), "{number}"),
        }
    }
    assert!(store.check(&()).unwrap().is_sound());
}

#[test]
fn a_store_on_a_block_device_survives_a_close_and_a_scan() {
    on_devices(1, |path, devices, sector_bytes| {
        let device = [("device", devices[0].path()), ("size", "0")];
        let store = patiently(|| create(path, &device));
        let stats = store.stats().unwrap();
        assert_eq!(stats.number("block_bytes"), Some(u64::from(sector_bytes)));
        assert_eq!(stats.number("size_bytes"), Some(DEVICE_BYTES));
        fill(&*store);
        compare(&*store);
        // Dropped, not closed: the next opening scans.
        drop(store);
        let store = open(path);
        compare(&*store);
        store.close().unwrap();
        drop(store);
        compare(&*open(path));
        // What it carries is not formatted again by mistake.
        let again = create(&path.with_file_name("second"), &device);
        assert!(
            again
                .err()
                .unwrap()
                .to_string()
                .contains("an alphard store")
        );
    });
}

#[test]
fn a_block_device_in_use_is_refused() {
    on_devices(1, |path, devices, _| {
        let forced = [
            ("device", devices[0].path()),
            ("size", "0"),
            ("force", "on"),
        ];
        let _store = patiently(|| create(path, &forced));
        let second = create(&path.with_file_name("second"), &forced);
        let text = second.err().unwrap().to_string();
        assert!(text.contains("in use"), "{text}");
    });
}

#[test]
fn a_pair_of_block_devices_does_without_either() {
    on_devices(2, |path, devices, _| {
        let pair = [
            ("device", devices[0].path()),
            ("mirror", devices[1].path()),
            ("size", "0"),
        ];
        let store = patiently(|| create(path, &pair));
        fill(&*store);
        compare(&*store);
        store.close().unwrap();
        drop(store);
        for lost in devices {
            // Zeros in place of all it had; `repair` makes a mirror of it again.
            std::fs::write(path.with_file_name("zeros"), vec![0; DEVICE_BYTES as usize]).unwrap();
            let copied = Command::new("dd")
                .arg(format!("if={}", path.with_file_name("zeros").display()))
                .arg(format!("of={}", lost.path()))
                .args(["bs=1M", "oflag=direct", "status=none"])
                .status();
            assert!(copied.unwrap().success());
            let store = open(path);
            assert_eq!(store.stats().unwrap().number("members_current"), Some(1));
            compare(&*store);
            drop(store);
            let options = OptionValues::default();
            let report = patiently(|| Alphard.repair(&Environment::real(), path, &options, &()));
            assert!(report.is_sound());
            let store = open(path);
            assert_eq!(store.stats().unwrap().number("members_current"), Some(2));
            compare(&*store);
        }
    });
}

#[test]
fn what_is_free_is_discarded_and_the_rest_stays() {
    on_devices(1, |path, devices, sector_bytes| {
        let image = path.parent().unwrap().join("0");
        let taken = || std::os::unix::fs::MetadataExt::blocks(&image.metadata().unwrap()) * 512;
        let options = [("device", devices[0].path()), ("size", "0")];
        patiently(|| create(path, &options)).close().unwrap();
        let tuning = OptionValues::from([("discard_bytes", "64KiB")]);
        let store = open_with(path, &tuning);
        for number in 0..200u32 {
            let key = number.to_be_bytes();
            store.put(&key, &[7; 20_000], Durability::Written).unwrap();
        }
        store.sync().unwrap();
        let before = taken();
        fill(&*store);
        for number in 0..150u32 {
            store
                .delete(&number.to_be_bytes(), Durability::Written)
                .unwrap();
        }
        store
            .compact(&cambium_api::CompactOptions::default(), &())
            .unwrap();
        let discarded = store.stats().unwrap().number("discarded_bytes").unwrap();
        assert!(
            discarded > 1 << 20,
            "sectors of {sector_bytes}: {discarded}"
        );
        assert!(taken() < before, "{} of {before} bytes are left", taken());
        drop(store);
        // As a crash leaves it: the scan meets what was discarded.
        let store = open(path);
        for number in 150..200u32 {
            let found = store.get(&number.to_be_bytes()).unwrap();
            match number % 3 {
                0 => assert!(found.is_none()),
                _ => assert_eq!(found.unwrap(), value(number)),
            }
        }
        assert!(store.get(&7u32.to_be_bytes()).unwrap().is_none());
    });
}
