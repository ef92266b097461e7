//! The table of commands: which function does each, and how it uses its store.

use crate::arguments::Command;
use crate::failure::{Failure, Status};
use crate::reports::idle_options;
use crate::snapshots::SnapshotAction;
use crate::stores::Access::{Maintain, Read, Write};
use crate::stores::Stores;
use crate::{
    backup, changes, cluster, copy, count, create, delete, expire, export, get, import, namespaces,
    options, put, reports, scan, shell, snapshots, stats, upgrade,
};

/// Runs a command; the answer is the exit status.
pub fn run(stores: &Stores, command: &Command) -> Result<Status, Failure> {
    match command {
        Command::Create(it) => create::run(it),
        Command::Put(it) => put::run(stores, it),
        Command::Get(it) => stores.using(Read, &it.path, |store| {
            get::run(store, stores.in_shell(), it)
        }),
        Command::Expire(it) => {
            let access = if it.changes() { Write } else { Read };
            stores.using(access, &it.path, |store| expire::run(store, it))
        }
        Command::Delete(it) => {
            let access = if it.dry_run { Read } else { Write };
            stores.using(access, &it.path, |store| delete::run(store, it))
        }
        Command::Scan(it) => stores.using(Read, &it.path, |store| scan::run(store, it)),
        Command::Count(it) => stores.using(Read, &it.path, |store| count::run(store, it)),
        Command::Import(it) => import::run(stores, it),
        Command::Export(it) => stores.using(Read, &it.path, |store| export::run(store, it)),
        Command::Namespaces(it) => {
            let access = if it.drop.is_none() { Read } else { Write };
            stores.using(access, &it.path, |store| namespaces::run(store, it))
        }
        Command::Snapshot(it) => {
            let access = match it.action {
                SnapshotAction::List => Read,
                _ => Write,
            };
            stores.using(access, &it.path, |store| snapshots::run(store, it))
        }
        Command::Rollback(it) => {
            stores.using(Write, &it.path, |store| snapshots::rollback(store, it))
        }
        Command::Changes(it) => changes::run(stores, it),
        Command::Cluster(it) => cluster::run(it),
        Command::Consumers(it) => {
            let access = if it.remove.is_none() { Read } else { Maintain };
            stores.using(access, &it.path, |store| changes::consumers(store, it))
        }
        Command::Dump(it) => stores.with(Read, || idle_options(&it.path), &it.path, reports::dump),
        Command::Stats(it) => stores.using(Read, &it.path, |store| stats::run(store, it)),
        Command::Check(it) => reports::check(it),
        Command::Inspect(it) => reports::inspect(it),
        Command::Compact(it) => {
            let options = || idle_options(&it.path);
            stores.with(Maintain, options, &it.path, |store| {
                reports::compact(store, it)
            })
        }
        Command::Backup(it) => {
            backup::refuse_inside(&it.path, &it.destination)?;
            let access = if it.incremental { Maintain } else { Read };
            stores.using(access, &it.path, |store| backup::run(store, it))
        }
        Command::Backups(it) => backup::list(it),
        Command::Restore(it) => backup::restore(it),
        Command::Copy(it) => stores.using(Read, &it.path, |store| copy::run(store, it)),
        Command::Repair(it) => reports::repair(it),
        Command::Upgrade(it) => upgrade::run(it),
        Command::Shell(it) => shell::run(it),
        Command::Options(it) => options::run(it),
        Command::Completions(it) => options::completions(it),
        Command::Man(it) => options::man(it),
        Command::ReadLmdb(it) => import::read_lmdb(&it.path),
    }
}
