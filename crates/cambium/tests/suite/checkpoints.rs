//! Checkpoints on file systems that share blocks, and on one that has hard links alone: each
//! a small file system on a loop device. Needs root and loop devices, and the program that
//! makes the file system; skipped loudly without.

use std::path::{Path, PathBuf};
use std::process::Command;

use cambium::{EngineKind, Options, engines};
use cambium_io::{Environment, FileSystem, RealFileSystem};
use cambium_testkit::{Subject, checkpoints};

/// XFS takes no smaller ones.
const IMAGE_BYTES: u64 = 320 << 20;
/// Of a store.
const VALUES: usize = 300;
const VALUE_BYTES: usize = 64 << 10;

/// A mounted file system that is unmounted when dropped.
struct Mounted {
    mount: PathBuf,
    // Dropped after the unmount: the image lies in it.
    _folder: tempfile::TempDir,
}

impl Mounted {
    fn new(make: &[&str]) -> Result<Mounted, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(IMAGE_BYTES))
            .map_err(|error| error.to_string())?;
        run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &mount]))?;
        Ok(Mounted {
            mount,
            _folder: folder,
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(&self.mount)) {
            println!("{} stays mounted: {error}", self.mount.display());
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {message}")),
    }
}

/// Bytes that are free, when everything is on the device.
fn free(folder: &Path) -> u64 {
    run(Command::new("sync").arg("-f").arg(folder)).unwrap();
    RealFileSystem.space(folder).unwrap().available
}

/// Backs up a store of 20 MB, and says how much space that takes.
fn bytes_of_a_backup(folder: &Path, engine: &str) -> u64 {
    let store = Options::new().create(folder.join("s"), engine).unwrap();
    for number in 0..VALUES {
        let value = vec![number as u8; VALUE_BYTES];
        store.put(format!("key {number}"), value).unwrap();
    }
    store.close().unwrap();
    let store = Options::new().open(folder.join("s")).unwrap();
    let before = free(folder);
    store.backup(folder.join("copy"), &()).unwrap();
    let copy = Options::new().open(folder.join("copy")).unwrap();
    assert_eq!(copy.iterate().unwrap().count(), VALUES, "{engine}");
    copy.close().unwrap();
    before.saturating_sub(free(folder))
}

/// The engines named share their files here; all stay apart from their backups.
fn shares(make: &[&str], sharing: &[&str]) {
    let mounted = match Mounted::new(make) {
        Ok(mounted) => mounted,
        Err(reason) => {
            println!("SKIPPED: no {make:?} on a loop device here: {reason}");
            return;
        }
    };
    for engine in ["forest", "wisckey", "zdb"] {
        let folder = mounted.mount.join(engine);
        std::fs::create_dir(&folder).unwrap();
        let bytes = bytes_of_a_backup(&folder, engine);
        let most = match sharing.contains(&engine) {
            true => 4 << 20,
            false => u64::MAX,
        };
        assert!(
            bytes < most,
            "{engine} on {make:?}: a backup of {bytes} bytes"
        );
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        let kind: &'static dyn EngineKind = &**Box::leak(Box::new(engines().find(engine).unwrap()));
        let subject = Subject::new(kind);
        checkpoints::stay_apart(&subject, &Environment::real(), &folder, 1).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn xfs_shares_the_files_of_every_engine_with_a_log() {
    let make = ["mkfs.xfs", "-q", "-m", "reflink=1"];
    shares(&make, &["forest", "wisckey", "zdb"]);
}

#[test]
fn btrfs_shares_the_files_of_every_engine_with_a_log() {
    shares(&["mkfs.btrfs", "-q"], &["forest", "wisckey", "zdb"]);
}

#[test]
fn ext4_shares_the_segments_and_tables_of_wisckey() {
    shares(&["mkfs.ext4", "-q"], &["wisckey"]);
}
