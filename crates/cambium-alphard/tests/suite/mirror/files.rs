//! Pairs of which the members are files: too short, too full, failing, damaged, the same
//! one twice; and what a repair takes of them.

use super::*;

/// A pair of files of 64 KiB with some entries, closed.
fn pair_of_files(disk: &SimulatedDisk) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let environment = Environment::simulated(disk, 1);
    let pair = options(&[("size", "65536"), ("mirror", "/mirror")]);
    let store = Alphard.create(&environment, path(), &pair).unwrap();
    for key in 0..20u8 {
        let value = vec![key; 1_500];
        store.put(&[key], &value, Durability::Synced).unwrap();
    }
    let written = contents(&*store);
    store.close().unwrap();
    written
}

#[test]
fn a_member_with_no_room_to_be_extended_is_as_good_as_before() {
    let disk = SimulatedDisk::new(1);
    let model = pair_of_files(&disk);
    let environment = Environment::simulated(&disk, 1);
    let lengths = || {
        ["/store/data", "/mirror"].map(|path| {
            let found = environment.file_system.metadata(Path::new(path)).unwrap();
            found.unwrap().length
        })
    };
    // Room for the one, and not for the other.
    disk.set_capacity(Some(512 << 10));
    let store = open(&disk).unwrap();
    let mut extended = cambium_api::CompactOptions::default();
    extended.settings.set("size", "327680");
    let error = store.compact(&extended, &()).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(lengths(), [65_536; 2]);
    assert_eq!(number(&*store, "members_current"), 2);
    assert_eq!(number(&*store, "size_bytes"), 65_536);
    disk.set_capacity(None);
    store.compact(&extended, &()).unwrap();
    assert_eq!(number(&*store, "size_bytes"), 327_680);
    drop(store);
    let store = open(&disk.crash(CrashStyle::NothingUnsynced, 1)).unwrap();
    assert_eq!(number(&*store, "members_current"), 2);
    assert_eq!(contents(&*store), model);
}

#[test]
fn a_member_that_was_put_back_from_a_copy_is_stale_after_a_clean_close_too() {
    let disk = SimulatedDisk::new(1);
    pair_of_files(&disk);
    let environment = Environment::simulated(&disk, 1);
    let member = |access| environment.file_system.open(Path::new("/mirror"), access);
    let mut copy = vec![0; 65_536];
    let reading = member(OpenOptions::READ).unwrap();
    reading.read_exact_at(&mut copy, 0).unwrap();
    drop(reading);
    let store = open(&disk).unwrap();
    store.put(b"since", b"then", Durability::Synced).unwrap();
    store.put(&[3], b"new", Durability::Synced).unwrap();
    let model = contents(&*store);
    store.close().unwrap();
    drop(store);
    let writing = member(OpenOptions::WRITE).unwrap();
    writing.write_at(&copy, 0).unwrap();
    writing.sync_data().unwrap();
    drop(writing);
    let store = open(&disk).unwrap();
    assert_eq!(number(&*store, "members_current"), 1);
    assert_eq!(contents(&*store), model);
    while store.step(1 << 20).unwrap() == StepOutcome::Again {}
    assert_eq!(number(&*store, "members_current"), 2);
    store.close().unwrap();
    drop(store);
    let alone = without(&environment, Path::new("/store/data"), 0);
    assert_eq!(contents(&*open_in(&alone).unwrap()), model);
}

#[test]
fn a_full_pair_makes_room_though_a_member_is_copied_first() {
    let disk = SimulatedDisk::new(1);
    pair_of_files(&disk);
    let away = without(&Environment::simulated(&disk, 1), Path::new("/mirror"), 0);
    let store = open_in(&away).unwrap();
    store.put(b"since", b"then", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let store = open(&disk).unwrap();
    assert_eq!(number(&*store, "members_current"), 1);
    for round in 0..600u32 {
        let key = (1_000 + round % 7).to_be_bytes();
        // No step is taken in between.
        let put = store.put(&key, &[round as u8; 700], Durability::Written);
        assert!(put.is_ok(), "{round}: {put:?}");
        store.delete(&key, Durability::Written).unwrap();
    }
    assert_eq!(number(&*store, "members_current"), 2);
    assert_eq!(contents(&*store).len(), 21);
}

#[test]
fn a_member_that_was_cut_off_is_missed_and_repair_makes_it_whole() {
    for cut in ["/store/data", "/mirror"] {
        let disk = SimulatedDisk::new(1);
        let model = pair_of_files(&disk);
        let environment = Environment::simulated(&disk, 1);
        let file = environment
            .file_system
            .open(Path::new(cut), cambium_io::OpenOptions::WRITE);
        file.unwrap().set_length(20_480).unwrap();
        let store = open(&disk).unwrap();
        assert_eq!(contents(&*store), model, "{cut}");
        store.put(b"since", b"then", Durability::Synced).unwrap();
        assert_eq!(number(&*store, "members_current"), 1);
        store.close().unwrap();
        drop(store);
        let report = Alphard
            .check(&environment, path(), &Default::default(), &())
            .unwrap();
        assert!(report.is_degraded(), "{report:?}");
        let report = Alphard
            .repair(&environment, path(), &Default::default(), &())
            .unwrap();
        assert!(report.is_sound(), "{report:?}");
        let store = open(&disk).unwrap();
        assert_eq!(number(&*store, "members_current"), 2);
        // The other one is lost, and nothing with it.
        let other = if cut == "/mirror" {
            "/store/data"
        } else {
            "/mirror"
        };
        drop(store);
        let alone = without(&environment, Path::new(other), 0);
        let store = open_in(&alone).unwrap();
        let mut expected = model.clone();
        expected.insert(b"since".to_vec(), b"then".to_vec());
        assert_eq!(contents(&*store), expected, "{cut}");
    }
}

/// A file system in which one file is there and fails whatever is asked of it.
#[derive(Debug)]
struct Fails(Arc<dyn FileSystem>, &'static str);

impl Fails {
    fn on(&self, path: &Path) -> Result<&dyn FileSystem> {
        match path == Path::new(self.1) {
            true => Err(Error::io("use", path, std::io::Error::from_raw_os_error(5))),
            false => Ok(&*self.0),
        }
    }
}

impl FileSystemLayer for Fails {
    fn below(&self) -> &dyn FileSystem {
        &*self.0
    }
    fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.on(path)?.open(path, options)
    }
    fn lock(&self, path: &Path, mode: LockMode) -> Result<Box<dyn FileLock>> {
        self.on(path)?.lock(path, mode)
    }
}

#[test]
fn a_member_of_which_the_file_fails_is_missed() {
    for failing in ["/store/data", "/mirror"] {
        let disk = SimulatedDisk::new(1);
        let model = pair_of_files(&disk);
        let environment = Environment::simulated(&disk, 1);
        let file_system = Arc::new(Layered(Fails(environment.file_system.clone(), failing)));
        let store = open_in(&Environment {
            file_system,
            ..environment
        });
        let store = store.unwrap();
        assert_eq!(number(&*store, "members_current"), 1);
        assert_eq!(contents(&*store), model, "{failing}");
    }
}

#[test]
fn a_member_that_is_there_under_two_names_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::real();
    let store = folder.path().join("store");
    let mirror = folder.path().join("mirror");
    let pair = options(&[("size", "65536"), ("mirror", mirror.to_str().unwrap())]);
    let made = Alphard.create(&environment, &store, &pair).unwrap();
    made.close().unwrap();
    drop(made);
    std::fs::remove_file(&mirror).unwrap();
    std::fs::hard_link(store.join("data"), &mirror).unwrap();
    let open = || Alphard.open(&environment, &store, &OptionValues::default(), &());
    let refused = open().err().unwrap().to_string();
    assert!(refused.contains("twice"), "{refused}");
}

#[test]
fn repair_of_a_pair_of_which_both_were_cut_off_keeps_what_either_has() {
    for lengths in [[32_768, 12_288], [12_288, 32_768], [20_480, 20_480]] {
        let disk = SimulatedDisk::new(1);
        let model = pair_of_files(&disk);
        let environment = Environment::simulated(&disk, 1);
        for (member, length) in ["/store/data", "/mirror"].into_iter().zip(lengths) {
            let file = environment
                .file_system
                .open(Path::new(member), cambium_io::OpenOptions::WRITE);
            file.unwrap().set_length(length).unwrap();
        }
        assert!(open(&disk).is_err(), "an opening takes what is whole");
        // What the longer one alone has: all that lies before its end.
        let expected = {
            let alone = disk.fork();
            let files = &Environment::simulated(&alone, 1).file_system;
            let longer = usize::from(lengths[1] > lengths[0]);
            let other = ["/mirror", "/store/data"][longer];
            files.remove(Path::new(other)).unwrap();
            Alphard
                .repair(
                    &Environment::simulated(&alone, 1),
                    path(),
                    &Default::default(),
                    &(),
                )
                .unwrap();
            contents(&*open(&alone).unwrap())
        };
        assert!(expected.len() > 3 && expected.len() < model.len());
        let report = Alphard
            .repair(&environment, path(), &Default::default(), &())
            .unwrap();
        assert!(!report.is_sound() && !report.is_degraded(), "{report:?}");
        let store = open(&disk).unwrap();
        assert_eq!(number(&*store, "members_current"), 2);
        assert_eq!(contents(&*store), expected, "{lengths:?}");
        drop(store);
        for away in ["/store/data", "/mirror"] {
            let alone = without(&Environment::simulated(&disk.fork(), 1), Path::new(away), 0);
            let store = open_in(&alone).unwrap();
            assert_eq!(contents(&*store), expected, "{lengths:?} without {away}");
        }
    }
}

#[test]
fn repair_says_which_member_it_could_not_take_and_takes_a_damaged_one_of_the_store() {
    let disk = disk(1, 512);
    let store = create(&disk);
    store.put(b"oak", &[7; 5_000], Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let environment = Environment::simulated(&disk, 3);
    let member = Path::new(MEMBERS[1]);
    let sound = disk.contents(member).unwrap();
    // Somebody else's data: not for us to overwrite.
    assert!(disk.replace_contents(member, &vec![9; 128 << 10]));
    let report = Alphard
        .repair(&environment, path(), &Default::default(), &())
        .unwrap();
    assert!(report.is_sound() && report.is_degraded(), "{report:?}");
    assert!(report.findings[0].what.contains("blank"), "{report:?}");
    assert_eq!(disk.contents(member).unwrap(), vec![9; 128 << 10]);
    // Ours, with both superblocks damaged.
    assert!(disk.replace_contents(member, &sound));
    assert!(disk.flip_bit(member, 60, 1) && disk.flip_bit(member, 4_156, 1));
    assert_eq!(number(&*open(&disk).unwrap(), "members_current"), 1);
    let report = Alphard
        .repair(&environment, path(), &Default::default(), &())
        .unwrap();
    assert_eq!(report.findings, []);
    let store = open_without(&disk, 0).unwrap();
    assert_eq!(store.get(b"oak").unwrap().unwrap(), [7; 5_000]);
}

#[test]
fn a_stale_member_stands_for_the_store_only_once_a_blank_one_is_put_in_place_of_the_other() {
    let disk = disk(1, 512);
    let store = create(&disk);
    store.put(b"oak", b"both", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let store = open_without(&disk, 1).unwrap();
    store.put(b"elm", b"one", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let environment = Environment::simulated(&disk, 3);
    let repair = || Alphard.repair(&environment, path(), &Default::default(), &());
    let member = Path::new(MEMBERS[0]);
    // Damaged is not gone: nothing of it is overwritten.
    assert!(disk.flip_bit(member, 60, 1) && disk.flip_bit(member, 4_156, 1));
    let damaged = disk.contents(member).unwrap();
    let refused = repair().unwrap_err().to_string();
    assert!(refused.contains("put a blank one of"), "{refused}");
    assert_eq!(disk.contents(member).unwrap(), damaged);
    assert!(disk.replace_contents(member, &vec![0; 128 << 10]));
    assert!(open(&disk).is_err(), "an opening takes no blank one");
    let report = repair().unwrap();
    assert!(!report.is_sound() && !report.is_degraded(), "{report:?}");
    assert!(report.findings[0].what.contains("is lost"), "{report:?}");
    for away in [0, 1] {
        let store = open_without(&disk.fork(), away).unwrap();
        let expected = BTreeMap::from([(b"oak".to_vec(), b"both".to_vec())]);
        assert_eq!(contents(&*store), expected, "without {away}");
    }
    let store = open(&disk).unwrap();
    assert_eq!(number(&*store, "members_current"), 2);
}

#[test]
fn an_empty_member_is_no_blank_one() {
    let disk = disk(1, 512);
    create(&disk).close().unwrap();
    let store = open_without(&disk, 0).unwrap();
    store.put(b"oak", b"two", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let written = disk.contents(Path::new(MEMBERS[1])).unwrap();
    let environment = Environment::simulated(&disk, 3);
    // The lengths of a detached loop device, and of one that is too small.
    for length in [0, 64 << 10] {
        assert!(disk.replace_contents(Path::new(MEMBERS[1]), &vec![0; length]));
        let refused = Alphard
            .repair(&environment, path(), &Default::default(), &())
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("/one") && refused.contains("at least 131072 bytes"),
            "{refused}"
        );
    }
    assert!(disk.replace_contents(Path::new(MEMBERS[1]), &written));
    let store = open(&disk).unwrap();
    assert_eq!(store.get(b"oak").unwrap().unwrap(), b"two");
}

#[test]
fn a_member_that_was_given_up_is_stale_when_it_comes_back() {
    let disk = disk(1, 512);
    create(&disk).close().unwrap();
    for _ in 0..5 {
        let store = open_without(&disk, 0).unwrap();
        store.put(b"oak", b"two", Durability::Synced).unwrap();
        store.close().unwrap();
    }
    let member = Path::new(MEMBERS[1]);
    let given_up = disk.contents(member).unwrap();
    assert!(disk.replace_contents(member, &vec![0; 128 << 10]));
    let environment = Environment::simulated(&disk, 3);
    let repaired = Alphard.repair(&environment, path(), &Default::default(), &());
    assert!(!repaired.unwrap().is_sound());
    let store = open(&disk).unwrap();
    store.put(b"elm", b"later", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    assert!(disk.replace_contents(member, &given_up));
    let store = open(&disk).unwrap();
    assert_eq!(store.get(b"oak").unwrap(), None);
    assert_eq!(store.get(b"elm").unwrap().unwrap(), b"later");
}

#[test]
fn repair_finds_both_members_again_where_what_names_them_is_damaged() {
    let members = Path::new("/store/members");
    for damage in ["checksum", "current", "both, one stale", "missing"] {
        let disk = SimulatedDisk::new(1);
        let mut model = pair_of_files(&disk);
        let environment = Environment::simulated(&disk, 1);
        if damage == "both, one stale" {
            let away = without(&environment, Path::new("/mirror"), 0);
            let store = open_in(&away).unwrap();
            store.put(b"since", b"then", Durability::Synced).unwrap();
            model.insert(b"since".to_vec(), b"then".to_vec());
            store.close().unwrap();
        }
        let text = disk.contents(members).unwrap();
        let at = |mark: &str| {
            let text = String::from_utf8_lossy(&text);
            text.find(mark).unwrap() as u64
        };
        match damage {
            "checksum" => assert!(disk.flip_bit(members, at("checksum") + 12, 0)),
            "missing" => environment.file_system.remove(members).unwrap(),
            _ => assert!(disk.flip_bit(members, at("current") + 8, 0)),
        }
        assert!(open(&disk).is_err(), "{damage}");
        let repaired = Alphard.repair(&environment, path(), &Default::default(), &());
        if damage == "missing" {
            assert!(repaired.is_err(), "nothing says where the mirror is");
            // A person who knows writes it down; repair looks whether it is so.
            let file = environment.file_system.open(members, OpenOptions::CREATE);
            file.unwrap().write_at(b"member /mirror\n", 0).unwrap();
            let repaired = Alphard.repair(&environment, path(), &Default::default(), &());
            assert_eq!(repaired.unwrap().findings, [], "{damage}");
        } else {
            assert_eq!(repaired.unwrap().findings, [], "{damage}");
        }
        assert_eq!(number(&*open(&disk).unwrap(), "members_current"), 2);
        for away in ["/mirror", "/store/data"] {
            let alone = without(&environment, Path::new(away), 0);
            let store = open_in(&alone);
            if away == "/mirror" || store.is_ok() {
                assert_eq!(contents(&*store.unwrap()), model, "{damage}");
            }
        }
    }
}

/// A repair that ends at any of its changes leaves what an opening takes whole, or refuses,
/// and what another repair mends.
#[test]
fn a_repair_that_ends_half_way_is_done_by_the_next_one() {
    for (cut, lengths) in [("one", [65_536, 20_480]), ("both", [20_480, 12_288])] {
        let source = SimulatedDisk::new(1);
        let model = pair_of_files(&source);
        let files = Environment::simulated(&source, 1).file_system;
        for (member, length) in ["/store/data", "/mirror"].into_iter().zip(lengths) {
            let file = files.open(Path::new(member), OpenOptions::WRITE).unwrap();
            file.set_length(length).unwrap();
            file.sync_data().unwrap();
        }
        let expected = {
            let disk = source.fork();
            Alphard
                .repair(
                    &Environment::simulated(&disk, 1),
                    path(),
                    &Default::default(),
                    &(),
                )
                .unwrap();
            contents(&*open(&disk).unwrap())
        };
        assert_eq!(expected == model, cut == "one");
        for left in 0.. {
            let disk = source.fork();
            let environment = Environment::simulated(&disk, 1);
            let ending = ending::after_changes(&environment, left);
            let ended = Alphard
                .repair(&ending, path(), &Default::default(), &())
                .is_ok();
            for style in [CrashStyle::NothingUnsynced, CrashStyle::Everything] {
                let disk = disk.crash(style, left);
                let environment = Environment::simulated(&disk, 2);
                // Whoever opens it now, with both or with one, has what is there, or is
                // told.
                for away in ["", "/mirror", "/store/data"] {
                    let disk = disk.fork();
                    let environment = Environment::simulated(&disk, 2);
                    let alone = without(&environment, Path::new(away), 0);
                    let opened = open_in(&alone).map(|store| contents(&*store));
                    if let Ok(found) = opened {
                        assert!(found == expected, "{cut} {left} {away:?}");
                    }
                }
                _ = Alphard
                    .repair(&environment, path(), &Default::default(), &())
                    .unwrap();
                let store = open(&disk).unwrap();
                assert_eq!(number(&*store, "members_current"), 2, "{cut} {left}");
                assert!(contents(&*store) == expected, "{cut} {left}");
            }
            if ended {
                break;
            }
        }
    }
}

#[test]
fn a_member_that_fails_is_not_taken_for_one_that_is_not_there() {
    let disk = SimulatedDisk::new(1);
    let model = pair_of_files(&disk);
    let environment = Environment::simulated(&disk, 2);
    let failing = |disk: &SimulatedDisk| {
        ending::with_failing(&Environment::simulated(disk, 2), Path::new("/mirror"))
    };
    // While the other one has every entry the store goes on, and repair names the failure.
    let beside = disk.fork();
    let report = Alphard
        .repair(&failing(&beside), path(), &Default::default(), &())
        .unwrap();
    let named = report.findings.iter().map(|finding| &finding.what);
    assert!(
        named.clone().any(|what| what.contains("os error 5")),
        "{report:?}"
    );
    let store = open_in(&failing(&beside)).unwrap();
    assert_eq!(contents(&*store), model);
    // Where only superblocks could say what the store is, nothing is made of half of them.
    let file_system = &environment.file_system;
    file_system.remove(Path::new("/store/CAMBIUM")).unwrap();
    let error = Alphard
        .repair(&failing(&disk), path(), &Default::default(), &())
        .unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(error.to_string().contains("mirror"), "{error}");
    // The member works again: nothing was lost by having asked.
    assert!(
        Alphard
            .repair(&environment, path(), &Default::default(), &())
            .is_ok()
    );
    assert_eq!(contents(&*open(&disk).unwrap()), model);
}

#[test]
fn repair_takes_the_stores_own_file_under_another_name_for_one_member() {
    let folder = tempfile::tempdir().unwrap();
    let store_at = folder.path().join("store");
    let environment = Environment::real();
    let mirror = folder.path().join("two");
    let pair = options(&[("size", "65536"), ("mirror", mirror.to_str().unwrap())]);
    let store = Alphard.create(&environment, &store_at, &pair).unwrap();
    store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    let members = store_at.join("members");
    let text = std::fs::read_to_string(&members).unwrap();
    // Its checksum does not match any more.
    let renamed = text.replace("member data\n", "member ../store/data\n");
    assert_ne!(renamed, text);
    std::fs::write(&members, renamed).unwrap();
    assert!(
        Alphard
            .open(&environment, &store_at, &OptionValues::default(), &())
            .is_err()
    );
    _ = Alphard
        .repair(&environment, &store_at, &Default::default(), &())
        .unwrap();
    let store = Alphard.open(&environment, &store_at, &OptionValues::default(), &());
    let store = store.unwrap();
    assert_eq!(store.get(b"oak").unwrap().unwrap(), b"Quercus");
    assert_eq!(number(&*store, "members_current"), 2);
}

#[test]
fn repair_takes_no_copy_for_the_stores_own_file_and_no_name_that_cannot_be() {
    for (named, is_repaired) in [("member copy\n", false), ("member d\0ta\n", true)] {
        let folder = tempfile::tempdir().unwrap();
        let store_at = folder.path().join("store");
        let environment = Environment::real();
        let pairs = options(&[("size", "65536")]);
        let store = Alphard.create(&environment, &store_at, &pairs).unwrap();
        store.put(b"oak", b"older", Durability::Synced).unwrap();
        // The superblocks do not change with each write.
        std::fs::copy(store_at.join("data"), store_at.join("copy")).unwrap();
        store.put(b"oak", b"newer", Durability::Synced).unwrap();
        drop(store);
        let members = store_at.join("members");
        let text = std::fs::read_to_string(&members).unwrap();
        std::fs::write(&members, text.replace("member data\n", named)).unwrap();
        let repaired = Alphard.repair(&environment, &store_at, &Default::default(), &());
        assert_eq!(repaired.is_ok(), is_repaired, "{named:?}: {repaired:?}");
        if is_repaired {
            let store = Alphard.open(&environment, &store_at, &OptionValues::default(), &());
            let found = store.unwrap().get(b"oak").unwrap();
            assert_eq!(found.unwrap(), b"newer");
        }
    }
}

#[test]
fn no_member_takes_the_name_of_another_file_of_the_store() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    let with_history = options(&[("size", "65536"), ("history", "on")]);
    let store = Alphard.create(&environment, path(), &with_history).unwrap();
    store.put(b"oak", b"Quercus", Durability::Synced).unwrap();
    store.sync().unwrap();
    store
        .move_consumer("reader", Some(Default::default()))
        .unwrap();
    store.close().unwrap();
    drop(store);
    let files = environment.file_system.list(path()).unwrap();
    let found = files
        .into_iter()
        .map(|entry| entry.name.display().to_string());
    let unseen = [
        "members-new",
        "LOCK",
        "CAMBIUM.new",
        "CONSUMERS.draft",
        "COMPARATOR",
        "DICTIONARY",
    ];
    let names: Vec<String> = found.chain(unseen.map(String::from)).collect();
    for expected in ["SYNCED", "CONSUMERS", "members", "index-image"] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
    let other = Path::new("/other");
    for name in names.iter().filter(|name| *name != "data") {
        for option in ["mirror", "device"] {
            let taken = options(&[("size", "65536"), ("history", "on"), (option, name)]);
            let refused = Alphard.create(&environment, other, &taken).err().unwrap();
            assert!(
                refused.to_string().contains("has this name"),
                "{name}: {refused}"
            );
        }
    }
}

#[test]
fn a_mirror_that_is_no_place_for_entries_is_named_as_such() {
    let disk = SimulatedDisk::new(1);
    let environment = Environment::simulated(&disk, 1);
    environment
        .file_system
        .create_directory(Path::new("/folder"))
        .unwrap();
    let wrong = options(&[("size", "65536"), ("mirror", "/folder")]);
    let refused = Alphard.create(&environment, path(), &wrong).err().unwrap();
    assert!(
        refused.to_string().contains("option mirror=/folder"),
        "{refused}"
    );
}
