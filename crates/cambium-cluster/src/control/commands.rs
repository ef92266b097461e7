//! Changes that someone asks for: heads that change, copies that move, nodes that come and go.

use std::collections::BTreeMap;

use super::{Changes, changed, keep, member};
use crate::topology::{Chain, Member, State, View};

/// Lets a member that serves become the head, once the head has handed everything on.
///
/// # Errors
/// A line for people: it does not serve.
pub fn promote(chain: &Chain, node: &str) -> Result<Chain, String> {
    let serves = |member: &Member| member.node == node;
    if !chain.serving().any(serves) {
        return Err(format!(
            "{node} does not serve in this chain: only a member that does can be its head"
        ));
    }
    if chain.head().is_some_and(serves) {
        return Err(format!("{node} is the head of this chain"));
    }
    let next_head = Some(node.to_string());
    Ok(changed(chain, chain.members.clone(), next_head, false))
}

/// Lets the next member take the place of a node wherever that is the head, as it is to stop.
pub fn step_down(view: &View, node: &str) -> Changes {
    let mut changes = Changes::new();
    for (number, chain) in (0..).zip(&view.chains) {
        let is_head = chain.head().is_some_and(|head| head.node == node);
        let next = chain.serving().nth(1).filter(|_| is_head);
        if let (Some(next), None) = (next, &chain.next_head) {
            changes.extend(promote(chain, &next.node).map(|promoted| (number, promoted)));
        }
    }
    changes
}

/// Moves one copy of a partition from a node to another: the new member is brought up, and
/// the old one goes when it serves.
///
/// # Errors
/// A line for people.
pub fn relocate(view: &View, number: u16, from: &str, to: &str) -> Result<Chain, String> {
    let chain = chain(view, number)?;
    let node = view
        .nodes
        .get(to)
        .ok_or_else(|| format!("node {to} is not there"))?;
    if chain.place(to).is_some() {
        return Err(format!("{to} is a member of chain {number} already"));
    }
    let place = chain
        .place(from)
        .ok_or_else(|| format!("{from} is no member of chain {number}"))?;
    let mut members = chain.members.clone();
    members[place].leaving = true;
    members.push(member(to, node, State::Waiting));
    Ok(changed(chain, members, chain.next_head.clone(), false))
}

/// The chain of a partition.
///
/// # Errors
/// A line for people: there is none.
pub fn chain(view: &View, number: u16) -> Result<&Chain, String> {
    let chain = view.chains.get(usize::from(number));
    chain.filter(|chain| chain.epoch > 0).ok_or_else(|| {
        format!(
            "chain {number}: the cluster has {} chains",
            view.chains.len()
        )
    })
}

/// Gives a node a copy of each chain that lacks one, and moves a fair share of all copies to it:
/// first those of nodes that are away.
///
/// # Errors
/// A line for people: the node is not there.
pub fn add(view: &View, node: &str) -> Result<Changes, String> {
    let registered = view
        .nodes
        .get(node)
        .ok_or_else(|| format!("node {node} is not there: start its server first"))?;
    let replicas = view.replicas();
    let copies: usize = view.chains.iter().map(|chain| chain.members.len()).sum();
    let share = copies / view.nodes.len();
    let mut loads = loads(view);
    let mut changes = Changes::new();
    let is_away = |member: &Member| !view.nodes.contains_key(&member.node);
    let mut chains: Vec<(u16, &Chain)> = (0..).zip(&view.chains).collect();
    chains.sort_by_key(|(_, chain)| {
        let is_missing = chain.missing(replicas) > 0;
        (!is_missing, !chain.members.iter().any(is_away))
    });
    for (number, chain) in chains {
        let is_moving = chain.members.iter().any(|member| member.leaving);
        if chain.epoch == 0 || chain.place(node).is_some() {
            continue;
        }
        let own = loads.get(node).copied().unwrap_or(0);
        if chain.missing(replicas) > 0 {
            let mut members = chain.members.clone();
            members.push(member(node, registered, State::Waiting));
            let next_head = chain.next_head.clone();
            changes.push((number, changed(chain, members, next_head, false)));
        } else if own < share && !is_moving {
            let load = |member: &Member| loads.get(&member.node).copied().unwrap_or(0);
            let members = chain.members.iter();
            let fullest = members.max_by_key(|member| (is_away(member), load(member)));
            let Some(from) = fullest.filter(|from| is_away(from) || load(from) > share) else {
                continue;
            };
            changes.push((number, relocate(view, number, &from.node, node)?));
            let from = from.node.clone();
            loads.entry(from).and_modify(|load| *load -= 1);
        } else {
            continue;
        }
        *loads.entry(node.to_string()).or_default() += 1;
    }
    Ok(changes)
}

/// Moves every copy away from a node, to those with the fewest.
///
/// # Errors
/// A line for people: there is no such node; a chain has no other node to go to.
pub fn drain(view: &View, node: &str) -> Result<Changes, String> {
    expect(view, node)?;
    let mut loads = loads(view);
    let mut changes = Changes::new();
    for (number, chain) in (0..).zip(&view.chains) {
        let member = chain.place(node).map(|place| &chain.members[place]);
        if member.is_none_or(|member| member.leaving) {
            continue;
        }
        let free = view.nodes.keys().filter(|name| {
            *name != node && !view.retired.contains(*name) && chain.place(name).is_none()
        });
        let to = free.min_by_key(|name| loads.get(*name).copied().unwrap_or(0));
        let Some(to) = to.cloned() else {
            return Err(format!(
                "chain {number}: every other node has a copy already; start another node, or \
                 `remove {node}` to go on with fewer copies"
            ));
        };
        changes.push((number, relocate(view, number, node, &to)?));
        *loads.entry(to).or_default() += 1;
    }
    Ok(changes)
}

/// Makes each node that serves the head of about as many chains as any other.
pub fn balance(view: &View) -> Changes {
    let mut heads: BTreeMap<String, usize> = BTreeMap::new();
    for chain in &view.chains {
        for (place, member) in chain.serving().enumerate() {
            *heads.entry(member.node.clone()).or_default() += usize::from(place == 0);
        }
    }
    let mut changes = Changes::new();
    for (number, chain) in (0..).zip(&view.chains) {
        let is_moving =
            chain.next_head.is_some() || chain.members.iter().any(|member| member.leaving);
        let Some(head) = chain.head().filter(|_| !is_moving) else {
            continue;
        };
        let idlest = chain.serving().min_by_key(|member| heads[&member.node]);
        let Some(to) = idlest.filter(|member| heads[&member.node] + 1 < heads[&head.node]) else {
            continue;
        };
        if let Ok(promoted) = promote(chain, &to.node) {
            heads
                .entry(head.node.clone())
                .and_modify(|count| *count -= 1);
            heads.entry(to.node.clone()).and_modify(|count| *count += 1);
            changes.push((number, promoted));
        }
    }
    changes
}

/// Takes a node out of all chains at once. A member that was to leave for it stays; otherwise the
/// controller gives the copy to a node that has none.
///
/// # Errors
/// A line for people: there is no such node; it has the only copy that can serve, and `is_forced`
/// is not given.
pub fn remove(view: &View, node: &str, is_forced: bool) -> Result<Changes, String> {
    expect(view, node)?;
    let replicas = view.replicas();
    let mut changes = Changes::new();
    for (number, chain) in (0..).zip(&view.chains) {
        if chain.place(node).is_none() {
            continue;
        }
        let others = || chain.members.iter().filter(|member| member.node != node);
        let serves = |member: &Member| member.state == State::Serving;
        if !others().any(serves) && !is_forced {
            return Err(format!(
                "chain {number}: {node} has the only copy that can serve. Name it twice to \
                 remove it, and to lose what the other members lack"
            ));
        }
        let mut members: Vec<Member> = others().cloned().collect();
        keep(&mut members, replicas, serves);
        if !members.iter().any(serves) {
            // The caller asked for it: the first of the others goes on with what it has.
            if let Some(first) = members.first_mut() {
                first.state = State::Last;
            }
        }
        let is_there = view.nodes.contains_key(node);
        changes.push((number, changed(chain, members, None, is_there)));
    }
    Ok(changes)
}

/// Refuses a node that is not there, has no copies, and was not drained or removed before.
fn expect(view: &View, node: &str) -> Result<(), String> {
    let has_copy = |chain: &Chain| chain.place(node).is_some();
    let is_known = view.nodes.contains_key(node) || view.retired.contains(node);
    match is_known || view.chains.iter().any(has_copy) {
        true => Ok(()),
        false => Err(format!(
            "there is no node {node}, and no copy of it: `cambium cluster status` lists all nodes"
        )),
    }
}

/// Copies that each node has, or is to have.
pub(super) fn loads(view: &View) -> BTreeMap<String, usize> {
    let mut loads = BTreeMap::new();
    let stay = |member: &&Member| !member.leaving;
    for member in view
        .chains
        .iter()
        .flat_map(|chain| &chain.members)
        .filter(stay)
    {
        *loads.entry(member.node.clone()).or_default() += 1;
    }
    loads
}
