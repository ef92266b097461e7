//! Defects that tests switch on. The suites must find each of them, which proves that
//! the suites find something. The option `seeded_bug` selects one; `cambium options`
//! does not list it.

cambium_base::named! {
    /// The defects; only tests set one.
    pub enum SeededBug {
        /// A merge reads the store in place of its transaction: an operand is lost if an
        /// earlier operation of the batch or another thread changes the key.
        MergeReadsStore = "merge_reads_store",
        /// A merge writes an entry that never expires.
        MergeForgetsExpiry = "merge_forgets_expiry",
        /// A cursor shows entries that have expired.
        ScanShowsExpired = "scan_shows_expired",
        /// A cursor of keys alone shows entries that have expired.
        KeysShowExpired = "keys_show_expired",
        /// A snapshot judges expiry by the moment of the read.
        SnapshotWithoutMoment = "snapshot_without_moment",
        /// The store's marker does not say that entries may expire.
        ExpiryUnmarked = "expiry_unmarked",
        /// Entries that have expired return when the wall clock is set back.
        ClockGoesBack = "clock_goes_back",
        /// A sweep deletes all entries that expire at some moment.
        SweepTakesAll = "sweep_takes_all",
        /// A value that cannot be decompressed, or whose length differs from the recorded
        /// one, is answered as it is.
        DamageAnswered = "damage_answered",
        /// Values without compression that end with a tag are stored as they are.
        TagUnescaped = "tag_unescaped",
    }
}
