//! How the controller changes chains when nodes come and go.
//!
//! | a member that is | becomes | when |
//! |---|---|---|
//! | serving | offline | its node is gone, has started again, or its predecessor cannot reach it, and another member serves |
//! | serving | last | the same, and no other member serves |
//! | last | serving | its node is back with the same store |
//! | offline | waiting | its node is back |
//! | waiting | syncing | a member serves, and no other one is syncing |
//! | syncing | serving | its predecessor says that it has everything |
//! | syncing, waiting | offline | its node is gone, or its predecessor cannot reach it |
//!
//! So a member that lacks committed writes never serves, and of a chain whose members have all
//! gone only the one that served last makes it go on. The states and their names are those of
//! 3FS, a file system that replicates by chains.
//!
//! A chain with fewer members than the cluster's `replicas` is given more: a member that was to
//! leave stays, or a node without a copy of the chain becomes a member. Retired nodes are left
//! out. A member that is offline counts: its node may come back.
//!
//! A head that is to go, by [`promote`] or [`relocate`], first makes place
//! ([`Chain::next_head`]): it serves nothing more, and reports when the others have its batches.
//! If it dies, or its successor does, another member takes its place as ever.
//!
//! Each change raises the chain's epoch. Where it takes the right to serve from a node that may
//! be alive ([`Chain::fence`]), the others wait until that node must have learned of it.

mod commands;

use std::collections::BTreeMap;

use crate::topology::{Chain, Member, Meta, Node, Report, State, View, missing};

pub use commands::{add, balance, chain, drain, promote, relocate, remove, step_down};

/// The chains that change, by partition.
pub type Changes = Vec<(u16, Chain)>;

/// The controller's changes to a view; none if all is as it should be.
pub fn decide(view: &View) -> Changes {
    let Some(meta) = &view.meta else {
        return Vec::new();
    };
    let is_unmade = view.chains.iter().all(|chain| chain.epoch == 0);
    if is_unmade && view.nodes.len() < usize::from(meta.nodes) {
        return Vec::new();
    }
    let mut changes = Vec::new();
    let mut loads = None;
    for (number, chain) in (0..).zip(&view.chains) {
        let next = match chain.epoch {
            0 => make(number, meta, &view.nodes),
            _ => {
                let mut members = chain.members.clone();
                if chain.missing(meta.replicas) > 0 {
                    let loads = loads.get_or_insert_with(|| commands::loads(view));
                    fill(&mut members, meta.replicas, view, loads);
                }
                advance(chain, members, &view.nodes, view.reports.get(&number))
            }
        };
        changes.extend(next.map(|chain| (number, chain)));
    }
    changes
}

/// A new chain: its members are the next nodes in order, so that each node is as often the
/// head as any other.
fn make(number: u16, meta: &Meta, nodes: &BTreeMap<String, Node>) -> Option<Chain> {
    let in_turn = nodes
        .iter()
        .cycle()
        .skip(usize::from(number) % nodes.len().max(1));
    let count = usize::from(meta.replicas).min(nodes.len());
    let members: Vec<Member> = in_turn
        .take(count)
        .map(|(name, node)| Member {
            since: 1,
            ..member(name, node, State::Serving)
        })
        .collect();
    (!members.is_empty()).then_some(Chain {
        epoch: 1,
        acknowledgement: meta.acknowledgement,
        members,
        next_head: None,
        fence: 0,
    })
}

/// Adds members to those of a chain that has too few, as far as there are nodes.
fn fill(
    members: &mut Vec<Member>,
    replicas: u16,
    view: &View,
    loads: &mut BTreeMap<String, usize>,
) {
    let is_retired = |name: &String| view.retired.contains(name);
    let serves = |member: &Member| member.state == State::Serving;
    keep(members, replicas, |member| {
        serves(member) && !is_retired(&member.node)
    });
    while missing(members, replicas) > 0 {
        let is_free = |name: &&String| {
            !is_retired(name) && members.iter().all(|member| member.node != **name)
        };
        let free = view.nodes.keys().filter(is_free);
        let Some(name) = free.min_by_key(|name| loads.get(*name)) else {
            // There is none: one that is away may come back.
            return keep(members, replicas, |member| !is_retired(&member.node));
        };
        members.push(member(name, &view.nodes[name], State::Waiting));
        *loads.entry(name.clone()).or_default() += 1;
    }
}

/// Members that were to leave stay, where too few others do.
fn keep(members: &mut [Member], replicas: u16, may_stay: impl Fn(&Member) -> bool) {
    for place in 0..members.len() {
        if missing(members, replicas) > 0 && may_stay(&members[place]) {
            members[place].leaving = false;
        }
    }
}

/// A member that is what its node is now.
pub fn member(name: &str, node: &Node, state: State) -> Member {
    Member {
        node: name.to_string(),
        state,
        incarnation: node.incarnation,
        store: node.store.clone(),
        since: 0,
        leaving: false,
    }
}

/// The next value of a chain that is to have these members, or `None` if it stays.
fn advance(
    chain: &Chain,
    mut members: Vec<Member>,
    nodes: &BTreeMap<String, Node>,
    report: Option<&Report>,
) -> Option<Chain> {
    let report = report.filter(|report| report.epoch == chain.epoch);
    let about = report.and_then(|report| chain.successor(&report.node));
    let is_unreachable = |member: &Member| {
        about == Some(member) && report.is_some_and(|report| report.is_unreachable)
    };
    let has_joined =
        |member: &Member| about == Some(member) && report.is_some_and(|report| report.has_joined);
    let mut waits = false;
    let keeps = |member: &Member| is_up(member, nodes) && !is_unreachable(member);
    let mut serves = chain.serving().any(keeps);
    for member in &mut members {
        let now = member.clone();
        match member.state {
            State::Serving if keeps(&now) => {}
            State::Serving => {
                waits |= is_up(&now, nodes);
                member.state = match serves {
                    true => State::Offline,
                    false => State::Last,
                };
                // The first of those that all went at once had the most.
                serves = true;
            }
            State::Last => {
                if let Some(node) = nodes.get(&now.node).filter(|node| node.store == now.store) {
                    member.state = State::Serving;
                    member.incarnation = node.incarnation;
                }
            }
            State::Syncing if has_joined(&now) && is_up(&now, nodes) => {
                member.state = State::Serving;
            }
            State::Syncing | State::Waiting if !keeps(&now) => member.state = State::Offline,
            State::Syncing | State::Waiting => {}
            State::Offline => {
                if let Some(node) = nodes.get(&now.node) {
                    member.state = State::Waiting;
                    member.incarnation = node.incarnation;
                    member.store.clone_from(&node.store);
                }
            }
        }
    }
    let is_serving = |member: &Member| member.state == State::Serving;
    if members.iter().any(is_serving) {
        // One that has joined goes on where the one before it has gone.
        for member in &mut members {
            if member.state == State::Last {
                member.state = State::Offline;
            }
        }
    }
    if !members.iter().any(is_serving) {
        for member in &mut members {
            if member.state == State::Syncing {
                member.state = State::Waiting;
            }
        }
    } else if !members.iter().any(|member| member.state == State::Syncing) {
        // One that has gone back to waiting in this step is brought up in the next.
        let waiting = |member: &&mut Member| member.state == State::Waiting;
        let was_waiting = |member: &Member| {
            let place = chain.place(&member.node);
            place.is_some_and(|place| chain.members[place].state == State::Waiting)
        };
        let next = members
            .iter_mut()
            .filter(waiting)
            .find(|member| was_waiting(member));
        if let Some(member) = next {
            member.state = State::Syncing;
        }
    }
    let head = chain.head();
    let goes_on =
        |member: &Member| is_serving(member) && head.is_some_and(|of| of.node == member.node);
    let has_head = members.iter().any(goes_on);
    let mut next_head = chain.next_head.clone().filter(|next| {
        let serves = |member: &Member| is_serving(member) && member.node == *next;
        has_head && members.iter().any(serves)
    });
    let is_drained = report.is_some_and(|report| report.is_drained)
        && about.is_some()
        && head.is_some_and(|head| report.is_some_and(|report| report.node == head.node));
    // It serves nothing in this epoch, so the others need not wait.
    let mut drained = None;
    if let Some(next) = next_head.take_if(|_| is_drained) {
        if let Some(place) = members.iter().position(|member| member.node == next) {
            let next = members.remove(place);
            members.insert(0, next);
            drained = head.map(|head| head.node.clone());
        }
    }
    let stay = |member: &Member| !member.leaving;
    let all_serve = members.iter().filter(|member| stay(member)).all(is_serving);
    if all_serve && members.iter().any(stay) {
        let is_head = |member: &Member| has_head && drained.is_none() && goes_on(member);
        if members
            .iter()
            .any(|member| is_head(member) && !stay(member))
            && next_head.is_none()
        {
            let next = members.iter().find(|member| stay(member));
            next_head = next.map(|member| member.node.clone());
        }
        waits |= members.iter().any(|member| {
            let goes = !stay(member) && !is_head(member);
            let serves = is_serving(member) && is_up(member, nodes);
            goes && serves && drained.as_ref() != Some(&member.node)
        });
        members.retain(|member| stay(member) || is_head(member));
    }
    members.sort_by_key(|member| match member.state {
        State::Serving => 0,
        State::Syncing => 1,
        State::Last => 2,
        State::Waiting => 3,
        State::Offline => 4,
    });
    let is_changed = members != chain.members || next_head != chain.next_head;
    is_changed.then(|| changed(chain, members, next_head, waits))
}

fn is_up(member: &Member, nodes: &BTreeMap<String, Node>) -> bool {
    nodes
        .get(&member.node)
        .is_some_and(|node| node.incarnation == member.incarnation && node.store == member.store)
}

fn changed(chain: &Chain, members: Vec<Member>, next_head: Option<String>, waits: bool) -> Chain {
    let epoch = chain.epoch + 1;
    let mut next = Chain {
        epoch,
        acknowledgement: chain.acknowledgement,
        members,
        next_head,
        fence: match waits {
            true => chain.epoch + 1,
            false => chain.fence,
        },
    };
    let placed = next.clone();
    for member in &mut next.members {
        let stays = link(chain, &member.node).is_some_and(|before| {
            link(&placed, &member.node).is_some_and(|behind| before == behind)
        });
        if !stays {
            member.since = epoch;
        }
    }
    next
}

/// A start of a node.
type Start<'a> = (&'a str, u64);

/// A member that takes batches, or makes them, and the one before it.
fn link<'a>(chain: &'a Chain, node: &str) -> Option<(Start<'a>, Option<Start<'a>>)> {
    let start = |member: &'a Member| (member.node.as_str(), member.incarnation);
    let own = &chain.members[chain.place(node)?];
    let before = chain.predecessor(node).map(start);
    let is_head = chain.head() == Some(own);
    (before.is_some() || is_head).then(|| (start(own), before))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;
    use crate::topology::{Acknowledgement, VERSION};

    fn node(incarnation: u64) -> Node {
        Node {
            incarnation,
            address: "127.0.0.1:1".into(),
            thrift: None,
            version: "0.2.0".into(),
            engine: "forest".into(),
            store: "s".into(),
        }
    }

    fn view(partitions: u16, names: &[&str]) -> View {
        let meta = Meta {
            version: VERSION,
            id: "id".into(),
            partitions,
            replicas: 3,
            nodes: 3,
            acknowledgement: Acknowledgement::Strong,
            lease_seconds: 3,
            seed: 1,
        };
        let mut view = View {
            revision: 1,
            chains: vec![Chain::unmade(); usize::from(partitions)],
            meta: Some(meta),
            ..View::default()
        };
        for name in names {
            view.nodes.insert((*name).to_string(), node(1));
        }
        settle(&mut view);
        view
    }

    /// Decides until nothing changes; says how often.
    fn settle(view: &mut View) -> usize {
        for count in 0..10 {
            let changes = decide(view);
            if changes.is_empty() {
                return count;
            }
            for (number, chain) in changes {
                view.chains[usize::from(number)] = chain;
            }
        }
        panic!("the controller does not come to rest");
    }

    fn states(view: &View) -> String {
        let member = |member: &Member| format!("{}:{}", member.node, member.state);
        let members = view.chains[0].members.iter().map(member);
        members.collect::<Vec<_>>().join(" ")
    }

    fn report(view: &mut View, from: &str, has_joined: bool) {
        let report = Report {
            epoch: view.chains[0].epoch,
            node: from.into(),
            has_joined,
            is_unreachable: !has_joined,
            is_drained: false,
        };
        view.reports.insert(0, report);
    }

    #[test]
    fn chains_are_made_when_enough_nodes_are_there() {
        assert!(
            view(4, &["a", "b"])
                .chains
                .iter()
                .all(|chain| chain.epoch == 0)
        );
        let made = view(4, &["a", "b", "c"]);
        let heads: Vec<&str> = made
            .chains
            .iter()
            .map(|chain| chain.head().unwrap().node.as_str())
            .collect();
        assert_eq!(heads, ["a", "b", "c", "a"]);
    }

    #[test]
    fn a_head_that_goes_and_comes_back_joins_at_the_end() {
        let mut view = view(1, &["a", "b", "c"]);
        view.nodes.remove("a");
        settle(&mut view);
        assert_eq!(states(&view), "b:serving c:serving a:offline");
        view.nodes.insert("a".into(), node(2));
        settle(&mut view);
        assert_eq!(states(&view), "b:serving c:serving a:syncing");
        // A report of another epoch, or of one that is not its predecessor, is none.
        report(&mut view, "b", true);
        assert_eq!(settle(&mut view), 0);
        report(&mut view, "c", true);
        view.chains[0].epoch += 1;
        assert_eq!(settle(&mut view), 0);
        report(&mut view, "c", true);
        settle(&mut view);
        assert_eq!(states(&view), "b:serving c:serving a:serving");
        assert_eq!(view.chains[0].fence, 0);
    }

    #[test]
    fn a_restart_before_the_lease_ends_is_a_loss_all_the_same() {
        let mut view = view(1, &["a", "b", "c"]);
        view.nodes.insert("b".into(), node(7));
        let changes = decide(&view);
        view.chains[0] = changes[0].1.clone();
        assert_eq!(states(&view), "a:serving c:serving b:offline");
    }

    #[test]
    fn only_the_last_one_makes_a_dead_chain_go_on() {
        let mut view = view(1, &["a", "b", "c"]);
        view.nodes.clear();
        view.nodes.insert("c".into(), node(1));
        settle(&mut view);
        view.nodes.clear();
        settle(&mut view);
        assert_eq!(states(&view), "c:last a:offline b:offline");
        view.nodes.insert("a".into(), node(2));
        settle(&mut view);
        assert_eq!(states(&view), "c:last a:waiting b:offline");
        // It has lost its disk: what it would serve is nothing.
        view.nodes.insert(
            "c".into(),
            Node {
                store: "other".into(),
                ..node(3)
            },
        );
        settle(&mut view);
        assert_eq!(states(&view), "c:last a:waiting b:offline");
        view.nodes.insert("c".into(), node(4));
        settle(&mut view);
        assert_eq!(states(&view), "c:serving a:syncing b:offline");
    }

    #[test]
    fn all_at_once_leaves_the_head_as_the_last() {
        let mut view = view(1, &["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            view.nodes.insert(name.into(), node(9));
        }
        settle(&mut view);
        assert_eq!(states(&view), "a:serving b:syncing c:waiting");
    }

    #[test]
    fn one_that_cannot_be_reached_goes_and_the_others_wait() {
        let mut view = view(1, &["a", "b", "c"]);
        report(&mut view, "a", false);
        let changes = decide(&view);
        assert_eq!(changes[0].1.fence, changes[0].1.epoch);
        view.chains[0] = changes[0].1.clone();
        assert_eq!(states(&view), "a:serving c:serving b:offline");
    }

    #[test]
    fn a_move_ends_with_the_old_member_gone() {
        let mut view = view(1, &["a", "b", "c", "d"]);
        view.chains[0] = relocate(&view, 0, "a", "d").unwrap();
        settle(&mut view);
        assert_eq!(states(&view), "a:serving b:serving c:serving d:syncing");
        report(&mut view, "c", true);
        settle(&mut view);
        assert_eq!(states(&view), "a:serving b:serving c:serving d:serving");
        assert_eq!(view.chains[0].next_head.as_deref(), Some("b"));
        drained(&mut view, "a");
        settle(&mut view);
        assert_eq!(states(&view), "b:serving c:serving d:serving");
        assert_eq!(
            (view.chains[0].next_head.as_ref(), view.chains[0].fence),
            (None, 0)
        );
        // One that is not the head serves readers, and does not know yet.
        view.nodes.insert("a".into(), node(1));
        view.chains[0] = relocate(&view, 0, "c", "a").unwrap();
        settle(&mut view);
        report(&mut view, "d", true);
        settle(&mut view);
        assert_eq!(states(&view), "b:serving d:serving a:serving");
        assert_eq!(view.chains[0].fence, view.chains[0].epoch);
        assert!(relocate(&view, 0, "b", "d").is_err() && relocate(&view, 0, "x", "c").is_err());
    }

    fn drained(view: &mut View, head: &str) {
        let report = Report {
            epoch: view.chains[0].epoch,
            node: head.into(),
            is_drained: true,
            ..Report::default()
        };
        view.reports.insert(0, report);
    }

    #[test]
    fn a_head_makes_place_before_another_member_is_the_head() {
        let mut view = view(1, &["a", "b", "c"]);
        view.chains[0] = promote(&view.chains[0], "c").unwrap();
        assert_eq!(settle(&mut view), 0);
        // A report of another member, or of before, is none.
        drained(&mut view, "b");
        assert_eq!(settle(&mut view), 0);
        drained(&mut view, "a");
        view.chains[0].epoch += 1;
        assert_eq!(settle(&mut view), 0);
        drained(&mut view, "a");
        settle(&mut view);
        assert_eq!(states(&view), "c:serving a:serving b:serving");
        assert_eq!(view.chains[0].next_head, None);
        // The next head goes: the head serves again.
        view.chains[0] = promote(&view.chains[0], "b").unwrap();
        view.nodes.remove("b");
        settle(&mut view);
        assert_eq!(states(&view), "c:serving a:serving b:offline");
        assert_eq!(view.chains[0].next_head, None);
        // The head goes first: the next member takes its place as ever.
        view.chains[0] = promote(&view.chains[0], "a").unwrap();
        view.nodes.remove("c");
        settle(&mut view);
        assert_eq!(states(&view), "a:serving c:offline b:offline");
        assert_eq!(view.chains[0].next_head, None);
    }

    #[test]
    fn a_node_that_stops_makes_place_wherever_another_member_serves() {
        let mut view = view(4, &["a", "b", "c"]);
        view.chains[3].members.truncate(1);
        let changes = step_down(&view, "a");
        let next = |changes: &Changes| {
            let heads = changes.iter().map(|(_, chain)| chain.next_head.clone());
            heads.flatten().collect::<Vec<_>>()
        };
        assert_eq!(next(&changes), ["b"]);
        view.chains[0] = changes[0].1.clone();
        assert_eq!(step_down(&view, "a"), Changes::new());
        assert_eq!(next(&step_down(&view, "c")), ["a"]);
    }

    /// Puts a command's changes into a view, and decides until nothing changes.
    fn apply(view: &mut View, changes: Changes) {
        for (number, chain) in changes {
            view.chains[usize::from(number)] = chain;
        }
        settle(view);
    }

    /// Lets the member that is brought up serve.
    fn join(view: &mut View) {
        let before = view.chains[0].serving().last().unwrap().node.clone();
        report(view, &before, true);
        settle(view);
    }

    #[test]
    fn a_removed_copy_is_made_anew_on_a_node_that_has_none() {
        let mut view = view(1, &["a", "b", "c"]);
        let is_whole = |view: &View| view.chains[0].is_whole(3);
        view.nodes.remove("a");
        settle(&mut view);
        // One that is away counts: it may come back.
        view.nodes.insert("d".into(), node(1));
        assert_eq!(settle(&mut view), 0);
        view.retired.insert("a".into());
        let removed = remove(&view, "a", false).unwrap();
        apply(&mut view, removed);
        assert_eq!(states(&view), "b:serving c:serving d:syncing");
        join(&mut view);
        assert!(is_whole(&view));
        // There is no other node, and the removed one gets nothing until it is added.
        view.nodes.insert("a".into(), node(2));
        view.nodes.remove("d");
        view.retired.insert("d".into());
        let removed = remove(&view, "d", false).unwrap();
        apply(&mut view, removed);
        assert_eq!(states(&view), "b:serving c:serving");
        assert_eq!((view.chains[0].missing(3), is_whole(&view)), (1, false));
        assert!(drain(&view, "b").is_err());
        let added = add(&view, "a").unwrap();
        apply(&mut view, added);
        assert_eq!(states(&view), "b:serving c:serving a:syncing");
        join(&mut view);
        assert!(is_whole(&view));
    }

    #[test]
    fn a_node_that_is_added_takes_the_copies_of_those_that_are_away_first() {
        let mut view = view(4, &["a", "b", "c"]);
        view.nodes.remove("a");
        settle(&mut view);
        view.nodes.insert("d".into(), node(1));
        let added = add(&view, "d").unwrap();
        assert_eq!(added.len(), 4);
        for (_, chain) in added {
            let leaves = chain.members.iter().find(|member| member.leaving);
            assert_eq!(leaves.unwrap().node, "a");
        }
    }

    #[test]
    fn a_move_is_called_off_if_the_new_member_is_removed() {
        for is_drained in [false, true] {
            let mut view = view(1, &["a", "b", "c"]);
            view.nodes.insert("d".into(), node(1));
            let moved = match is_drained {
                true => drain(&view, "a").unwrap(),
                false => vec![(0, relocate(&view, 0, "a", "d").unwrap())],
            };
            view.retired.extend(is_drained.then(|| "a".into()));
            apply(&mut view, moved);
            view.retired.insert("d".into());
            let removed = remove(&view, "d", false).unwrap();
            apply(&mut view, removed);
            assert_eq!(states(&view), "a:serving b:serving c:serving");
            assert!(view.chains[0].is_whole(3));
        }
    }

    #[test]
    fn a_command_about_a_node_that_nobody_knows_is_an_error() {
        let mut view = view(1, &["a", "b", "c"]);
        view.nodes.remove("a");
        assert!(remove(&view, "a", false).is_ok());
        for outcome in [drain(&view, "x"), remove(&view, "x", true), add(&view, "x")] {
            assert!(outcome.unwrap_err().contains("node x"));
        }
        // It was drained, and stopped.
        view.retired.insert("x".into());
        assert_eq!(remove(&view, "x", false), Ok(Changes::new()));
    }

    #[test]
    fn nodes_are_added_drained_and_removed() {
        let mut view = view(12, &["a", "b", "c"]);
        view.nodes.insert("d".into(), node(1));
        let added = add(&view, "d").unwrap();
        assert_eq!(added.len(), 9);
        let drained = drain(&view, "a").unwrap();
        assert_eq!(drained.len(), 12);
        view.nodes.remove("d");
        assert!(drain(&view, "a").is_err() && add(&view, "d").is_err());
        assert_eq!(remove(&view, "a", false).unwrap().len(), 12);
        assert_eq!(balance(&view), Changes::new());
        for chain in &mut view.chains {
            let of_a = |member: &Member| member.node == "a";
            chain.members.sort_by_key(|member| !of_a(member));
        }
        assert_eq!(balance(&view).len(), 8);
        view.nodes.retain(|name, _| name == "a");
        settle(&mut view);
        assert!(remove(&view, "a", false).is_err());
        assert_eq!(remove(&view, "a", true).unwrap().len(), 12);
        assert!(promote(&view.chains[0], "b").is_err());
    }
}
