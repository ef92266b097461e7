//! The reading thread of a link: hands on what the successor says.

use cambium_base::coding::Decoder;
use cambium_cluster::position::Position;
use cambium_foreign::redis::{Answer, Connection};

use super::Word;
use crate::cluster::ChainEvent;
use crate::mailbox::Mailbox;
use crate::messages::Event;

/// Reads until the connection ends.
pub fn read(
    mut connection: Connection,
    greetings: usize,
    number: u64,
    words: &Mailbox<Word>,
    inbox: &Mailbox<Event>,
) {
    let mut left = greetings;
    let mut events = Vec::new();
    let why = loop {
        // Answers that have come together wake the executor once.
        if !connection.has_begun() {
            inbox.send(events.drain(..));
        }
        let answer = match connection.receive() {
            Ok(answer) => answer,
            Err(error) => break error.to_string(),
        };
        match answer {
            Answer::Error(text) => {
                words.send([Word::Refusing]);
                break format!("the successor refuses: {text}");
            }
            Answer::List(parts) => match understood(parts) {
                Some(Heard::Word(word)) => _ = words.send([word]),
                Some(Heard::Event(event)) => events.push(Event::Chain(event)),
                None => break "an answer that this version does not know".to_string(),
            },
            _ if left > 0 => {
                left -= 1;
                if left == 0 {
                    words.send([Word::Greeted(number)]);
                }
            }
            _ => {}
        }
    };
    words.send([Word::Broken(number, why)]);
}

enum Heard {
    Word(Word),
    Event(ChainEvent),
}

fn understood(parts: Vec<Answer>) -> Option<Heard> {
    let mut parts = parts.into_iter();
    let kind = parts.next()?.into_text();
    let mut number = || parts.next()?.into_text().parse::<u64>().ok();
    let partition = u8::try_from(number()?).ok()?;
    let since = number()?;
    Some(match kind.as_str() {
        "acked" => Heard::Event(ChainEvent::Acked {
            partition,
            since,
            number: number()?,
        }),
        "copied" => Heard::Word(Word::Copied(partition, since, number()?)),
        "left" => {
            let (is_known, last) = (number()? == 1, number()?);
            Heard::Event(ChainEvent::Left {
                partition,
                common: is_known.then_some(last),
            })
        }
        "refused" => Heard::Word(Word::Refused(partition, since)),
        "opened" => {
            let (is_whole, committed) = (number()? == 1, number()?);
            let bytes = parts.next()?.into_bytes();
            let position = Position::decode(&mut Decoder::new(&bytes))?;
            Heard::Word(Word::Opened(
                partition, since, is_whole, committed, position,
            ))
        }
        _ => return None,
    })
}
