//! The proof that a compaction lost nothing.
//!
//! The published implementation drops documents that it could not read and
//! reports success. Here three walks must agree before the switch, tree by tree:
//!
//! 1. the old index, as documents were found to be copied,
//! 2. the documents, as they were appended to the new file,
//! 3. the new index, from its first document to its last.
//!
//! An address carries a fingerprint of its key. 1 and 3 must have as many documents, with
//! the same fingerprints in the same order; 2 and 3 must have the same addresses. That a
//! document is the one its address speaks of is seen when it is read: checksum, fingerprint,
//! and a key after the one before it. What writers did meanwhile is proved by the
//! sequence numbers in the log, of which none may be missing (`catch_up`).

use crate::document::DocumentAddress;

/// Spreads a number over 64 bits (the finalizer of SplitMix64).
pub(super) fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// What a walk met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub documents: u64,
    /// Upper bounds of what they take.
    pub bytes: u64,
    /// Fingerprints, in their order.
    keys: u64,
    /// Whole addresses, in any order.
    places: u64,
}

impl Account {
    /// Takes in the next document of a walk in key order.
    pub fn add(&mut self, address: DocumentAddress) {
        self.documents += 1;
        self.bytes += address.most_bytes();
        self.keys = mix(self.keys.rotate_left(7) ^ address.fingerprint());
        self.add_place(address);
    }

    /// Takes in a document that is written in whatever order.
    pub fn add_place(&mut self, address: DocumentAddress) {
        self.places = self.places.wrapping_add(mix(address.0));
    }

    /// Takes in where documents lie that another account has.
    pub fn add_places_of(&mut self, other: &Account) {
        self.places = self.places.wrapping_add(other.places);
    }

    /// What the new index lacks of this, which is the account of the old one;
    /// `placed` is that of what was written.
    pub fn missing_in(&self, new: &Account, placed: &Account) -> Option<String> {
        if new.documents != self.documents {
            let (old, new) = (self.documents, new.documents);
            return Some(format!("{old} documents, and the new index has {new}"));
        }
        if new.keys != self.keys {
            return Some("other keys than the new index has".to_string());
        }
        (new.places != placed.places)
            .then(|| "documents that the new index does not point to".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(documents: &[(u64, u64, &[u8])]) -> Account {
        let mut account = Account::default();
        for (offset, bytes, key) in documents {
            account.add(DocumentAddress::new(*offset, *bytes, key));
        }
        account
    }

    #[test]
    fn a_document_that_is_lost_doubled_or_another_is_noticed() {
        let old = account(&[(8, 80, b"ash"), (800, 80, b"oak"), (80, 96, b"yew")]);
        let sound = [
            (4096, 80, &b"ash"[..]),
            (4176, 80, b"oak"),
            (4256, 96, b"yew"),
        ];
        let new = account(&sound);
        assert_eq!(old.missing_in(&new, &new), None);
        for broken in [
            &sound[..2],
            &[sound[0], sound[1], sound[2], sound[2]],
            &[sound[0], (4176, 80, b"elm"), sound[2]],
            &[sound[1], sound[0], sound[2]],
        ] {
            let broken = account(broken);
            assert!(old.missing_in(&broken, &broken).is_some(), "{broken:?}");
        }
        let elsewhere = account(&[sound[0], (5000, 80, b"oak"), sound[2]]);
        assert!(old.missing_in(&elsewhere, &new).is_some());
    }
}
