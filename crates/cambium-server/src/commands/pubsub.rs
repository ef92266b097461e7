//! Channels.

use super::{Call, Command, FAST, Outcome, PUBSUB, WHILE_SUBSCRIBED};

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "subscribe", arity: -2, flags: PUBSUB | WHILE_SUBSCRIBED, keys: (0, 0, 0), run: subscribe, summary: "Listen for messages published to the given channels" },
    Command { name: "unsubscribe", arity: -1, flags: PUBSUB | WHILE_SUBSCRIBED, keys: (0, 0, 0), run: unsubscribe, summary: "Stop listening for messages posted to the given channels" },
    Command { name: "psubscribe", arity: -2, flags: PUBSUB | WHILE_SUBSCRIBED, keys: (0, 0, 0), run: psubscribe, summary: "Listen for messages published to channels matching the given patterns" },
    Command { name: "punsubscribe", arity: -1, flags: PUBSUB | WHILE_SUBSCRIBED, keys: (0, 0, 0), run: punsubscribe, summary: "Stop listening for messages posted to channels matching the given patterns" },
    Command { name: "publish", arity: 3, flags: PUBSUB | FAST, keys: (0, 0, 0), run: publish, summary: "Post a message to a channel" },
    Command { name: "pubsub", arity: -2, flags: PUBSUB, keys: (0, 0, 0), run: pubsub, summary: "Inspect the state of the Pub/Sub system" },
];

/// The answer to each channel of a subscription.
fn confirm(call: &mut Call<'_>, word: &str, name: Option<&[u8]>) {
    let count = call.session.subscriptions() as i64;
    let reply = call.reply();
    reply.push(3);
    reply.bulk(word);
    reply.optional(name);
    reply.integer(count);
}

fn subscribe(call: &mut Call<'_>) -> Outcome {
    let slot = call.session.handle.slot;
    for channel in call.arguments.from(1) {
        if call.session.channels.insert(channel.to_vec()) {
            call.server.pubsub.subscribe(slot, channel);
        }
        confirm(call, "subscribe", Some(channel));
    }
    Ok(())
}

fn psubscribe(call: &mut Call<'_>) -> Outcome {
    let slot = call.session.handle.slot;
    for pattern in call.arguments.from(1) {
        if call.session.patterns.insert(pattern.to_vec()) {
            call.server.pubsub.subscribe_pattern(slot, pattern);
        }
        confirm(call, "psubscribe", Some(pattern));
    }
    Ok(())
}

fn unsubscribe(call: &mut Call<'_>) -> Outcome {
    let slot = call.session.handle.slot;
    let mut names: Vec<Vec<u8>> = call.arguments.from(1).map(<[u8]>::to_vec).collect();
    if names.is_empty() {
        names.extend(call.session.channels.iter().cloned());
    }
    for channel in &names {
        call.session.channels.remove(channel);
        call.server.pubsub.unsubscribe(slot, channel);
        confirm(call, "unsubscribe", Some(channel));
    }
    if names.is_empty() {
        confirm(call, "unsubscribe", None);
    }
    Ok(())
}

fn punsubscribe(call: &mut Call<'_>) -> Outcome {
    let slot = call.session.handle.slot;
    let mut names: Vec<Vec<u8>> = call.arguments.from(1).map(<[u8]>::to_vec).collect();
    if names.is_empty() {
        names.extend(call.session.patterns.iter().cloned());
    }
    for pattern in &names {
        call.session.patterns.remove(pattern);
        call.server.pubsub.unsubscribe_pattern(slot, pattern);
        confirm(call, "punsubscribe", Some(pattern));
    }
    if names.is_empty() {
        confirm(call, "punsubscribe", None);
    }
    Ok(())
}

fn publish(call: &mut Call<'_>) -> Outcome {
    let count = call
        .server
        .pubsub
        .publish(call.argument(1), call.argument(2));
    call.reply().integer(count as i64);
    Ok(())
}

fn pubsub(call: &mut Call<'_>) -> Outcome {
    if call.is(1, "channels") && call.count() <= 3 {
        let channels = call.server.pubsub.channels(call.arguments.get(2));
        let reply = &mut call.session.reply;
        reply.array(channels.len());
        channels.iter().for_each(|channel| reply.bulk(channel));
    } else if call.is(1, "numsub") {
        call.session.reply.array((call.count() - 2) * 2);
        for channel in call.arguments.from(2) {
            let listeners = call.server.pubsub.listeners(channel);
            call.reply().bulk(channel);
            call.reply().integer(listeners as i64);
        }
    } else if call.is(1, "shardchannels") && call.count() <= 3 {
        // There are no channels of shards.
        call.reply().array(0);
    } else if call.is(1, "shardnumsub") {
        call.session.reply.array((call.count() - 2) * 2);
        for channel in call.arguments.from(2) {
            call.reply().bulk(channel);
            call.reply().integer(0);
        }
    } else if call.is(1, "numpat") {
        let count = call.server.pubsub.pattern_count();
        call.reply().integer(count as i64);
    } else {
        return Err(call.wrong_count());
    }
    Ok(())
}
