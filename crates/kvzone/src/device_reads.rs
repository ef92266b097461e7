//! Reads that a worker process sends to the device, counted one by one.
//!
//! `/proc/PID/io` counts bytes; how many reads they were only a control group
//! knows: one of four pages is one read, and one of read-ahead is too.
//!
//! | | version 1 | version 2 |
//! |---|---|---|
//! | group | the hierarchy with `blkio`, `/kvzone-PID-N` | the worker's own, made for its memory limit |
//! | count | `blkio.throttle.io_serviced`, lines `MAJOR:MINOR Read N` | `io.stat`, `rios=N` |
//!
//! Version 1 counts only where a limit is set: it is set to more than any device
//! can do. Without a group nothing is counted, and reports say null.

use std::fs;
use std::path::{Path, PathBuf};

use crate::limits::{Group, mount_of};
use crate::place::Disk;

/// Reads a second that no device does.
const NO_LIMIT: u64 = 4_000_000_000;

const OURS: &str = "kvzone-";

/// A group of version 1 in which reads of a disk are counted, where this machine has such
/// groups.
pub(crate) fn counting_group(disk: &Disk) -> Option<Group> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let group = Group::create_in(&mount_of(&mounts, "cgroup", "blkio")?).ok()?;
    let limit = |device: &str| {
        let text = format!("{device} {NO_LIMIT}");
        group
            .write("blkio.throttle.read_iops_device", &text)
            .is_ok()
    };
    let partition = disk.number.as_deref()?;
    let whole = || fs::read_to_string(format!("/sys/dev/block/{partition}/../dev")).ok();
    let is_counted = limit(partition) || whole().is_some_and(|device| limit(device.trim()));
    is_counted.then_some(group)
}

/// Reads that this process has sent to devices, if it is in a group of ours.
pub(crate) fn of_this_process() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let (file, parse) = counted_in(&own, &mounts)?;
    parse(&fs::read_to_string(file).ok()?)
}

type Parse = fn(&str) -> Option<u64>;

fn counted_in(own: &str, mounts: &str) -> Option<(PathBuf, Parse)> {
    let below = |root: PathBuf, group: &str| root.join(group.trim_start_matches('/'));
    let group_of = |is_it: &dyn Fn(&str) -> bool| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, group) = (parts.next()?, parts.next()?);
            let ours = Path::new(group).file_name()?.to_str()?;
            (is_it(controllers) && ours.starts_with(OURS)).then_some(group)
        })
    };
    if let Some(group) = group_of(&|names| names.split(',').any(|name| name == "blkio")) {
        let root = mount_of(mounts, "cgroup", "blkio")?;
        let file = below(root, group).join("blkio.throttle.io_serviced");
        return Some((file, parse_serviced));
    }
    let group = group_of(&str::is_empty)?;
    let root = mount_of(mounts, "cgroup2", "")?;
    Some((below(root, group).join("io.stat"), parse_stat))
}

/// `254:0 Read 1008`, summed over devices; none where nothing was counted yet
/// but the total.
fn parse_serviced(text: &str) -> Option<u64> {
    let reads = text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        (fields.next()? == "Read").then(|| fields.next()?.parse::<u64>().ok())?
    });
    text.contains("Total").then(|| reads.sum())
}

/// `254:0 rbytes=1 wbytes=2 rios=3 wios=4`, summed over devices.
fn parse_stat(text: &str) -> Option<u64> {
    let fields = text.split_whitespace();
    let reads = fields.filter_map(|field| field.strip_prefix("rios=")?.parse::<u64>().ok());
    Some(reads.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        let text = "254:0 Read 1008\n254:0 Write 7\n8:0 Read 2\nTotal 1017\n";
        assert_eq!(parse_serviced(text), Some(1010));
        assert_eq!(parse_serviced("Total 0\n"), Some(0));
        assert_eq!(parse_serviced(""), None);
        let text = "254:0 rbytes=1 wbytes=2 rios=3 wios=4\n8:0 rios=5\n";
        assert_eq!(parse_stat(text), Some(8));
    }

    #[test]
    fn only_a_group_of_ours_is_read() {
        let mounts = "cgroup /sys/fs/cgroup/blkio cgroup rw,blkio 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let file = |own: &str| counted_in(own, mounts).map(|(file, _)| file);
        let one = file("7:blkio:/kvzone-17-0\n0::/\n");
        let expected = "/sys/fs/cgroup/blkio/kvzone-17-0/blkio.throttle.io_serviced";
        assert_eq!(one, Some(PathBuf::from(expected)));
        assert_eq!(file("7:blkio:/\n4:memory:/kvzone-17-0\n0::/\n"), None);
        let two = file("7:blkio:/user\n0::/user.slice/kvzone-17-0\n");
        let expected = "/sys/fs/cgroup/unified/user.slice/kvzone-17-0/io.stat";
        assert_eq!(two, Some(PathBuf::from(expected)));
    }
}
