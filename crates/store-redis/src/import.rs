//! Filling an empty store with the records of another.
//!
//! Records are put account by account, several in one call. What is refused half way stays half written: the mark that the import leaves
//! says that the store is of no use.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use hapax_domain::{Direction, Priority, Steps, ids, limits};
use hapax_store::moving::{IMPORTING, half_filled, not_empty};
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, Carried, EventRec, ItemPlace, ItemRec, KeyRec, MessageRec, OutRec, ProviderNameRec, Queue, ThreadRec,
    thread_hash, write_past,
};
use hapax_store::{Copies, KeptHeaders, Moved, NewMessage, StoreError, write_replies};
use redis::Script;

use super::RedisStore;
use super::inbox::status_number;
use super::moved::part_of;
use super::place::{Seq, first_after};
use super::row::{Row, letter, odd};
use super::script;

/// Most records of one call, and how many bytes of them.
const CALL_RECORDS: usize = 200;
const CALL_BYTES: usize = 1_000_000;

/// What an import must remember between its pages. Gone with the process, which only leaves a half filled store.
#[derive(Default)]
pub(super) struct Filling {
    /// Whose an event or a message is: many records name them by their number alone.
    accounts: HashMap<u64, u32>,
    /// The event that carries the body for an account that does not have the one which carried it in the other store.
    carriers: HashMap<(u64, u32), u64>,
    highest: u64,
    any_keys: bool,
}

impl Filling {
    fn raise(&mut self, number: u64) {
        self.highest = self.highest.max(number);
    }
}

/// What a script needs to know of some records of one kind.
struct Put {
    root: String,
    script: &'static Script,
    records: usize,
    args: Args,
}

/// Arguments of a script, as `Call` packs them.
#[derive(Default)]
struct Args(Vec<Vec<u8>>);

impl Args {
    fn arg(mut self, value: impl AsRef<[u8]>) -> Self {
        self.0.push(value.as_ref().to_vec());
        self
    }

    fn number(self, value: impl ToString) -> Self {
        self.arg(value.to_string())
    }

    fn maybe(self, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            None => self.arg(""),
            Some(value) => self.arg([b"+", value.as_ref()].concat()),
        }
    }

    fn maybe_number(self, value: Option<impl ToString>) -> Self {
        self.maybe(value.map(|value| value.to_string()))
    }

    fn flag(self, value: bool) -> Self {
        self.arg(if value { "1" } else { "0" })
    }

    fn steps(self, steps: &Steps) -> Self {
        let args = self.number(steps.iter().count());
        steps.iter().fold(args, |args, (status, at_ms)| args.number(status_number(status)).number(at_ms))
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

/// The name that a moved number has here.
fn name(number: u64) -> String {
    Seq::Moved(number).to_string()
}

fn out_of_order() -> StoreError {
    StoreError::Refused("a record names another that is not there; the records are not whole, or not in their order".to_owned())
}

impl RedisStore {
    fn filling(&self) -> MutexGuard<'_, Filling> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn begin_filling(&self) -> Result<(), StoreError> {
        let call = self.link.shared_call(&script::BEGIN_IMPORT).arg(IMPORTING);
        match letter(&self.link.run_safely("beginning an import", call).await?)? {
            b'D' => {}
            b'H' => return Err(half_filled()),
            b'N' => return Err(not_empty()),
            _ => return Err(odd("an unknown letter")),
        }
        self.registry.forget();
        *self.filling() = Filling::default();
        Ok(())
    }

    pub(super) async fn fill(&self, records: &[Moved]) -> Result<(), StoreError> {
        let mut puts: Vec<Put> = Vec::new();
        for record in records {
            self.filling().raise(record.highest());
            let (root, script, args) = match record {
                Moved::Setting { name, register } => {
                    self.put_register(name, register).await?;
                    continue;
                }
                Moved::Piece(piece) => {
                    self.write_piece(piece, false).await?;
                    continue;
                }
                Moved::Claim(claim) => {
                    self.put_claim(claim).await?;
                    continue;
                }
                Moved::Event(event) => self.event(event, &mut puts).await?,
                other => self.put(other).await?,
            };
            self.add(&mut puts, root, script, args).await?;
        }
        self.send_all(&mut puts).await
    }

    /// Adds to the call that takes such records; calls of another kind go first.
    async fn add(&self, puts: &mut Vec<Put>, root: String, script: &'static Script, args: Args) -> Result<(), StoreError> {
        if puts.first().is_some_and(|put| !std::ptr::eq(put.script, script)) {
            self.send_all(puts).await?;
        }
        let at = puts.iter().position(|put| put.root == root).unwrap_or_else(|| {
            puts.push(Put { root, script, records: 0, args: Args::default() });
            puts.len() - 1
        });
        puts[at].records += 1;
        puts[at].args.0.extend(args.0);
        if puts[at].records >= CALL_RECORDS || puts[at].args.bytes() >= CALL_BYTES {
            let put = puts.swap_remove(at);
            self.send_put(put).await?;
        }
        Ok(())
    }

    async fn send_all(&self, puts: &mut Vec<Put>) -> Result<(), StoreError> {
        for put in puts.drain(..) {
            self.send_put(put).await?;
        }
        Ok(())
    }

    async fn send_put(&self, put: Put) -> Result<(), StoreError> {
        let call = self.link.call_at(put.script, &put.root).arg(put.records);
        let call = put.args.0.into_iter().fold(call, |call, arg| call.arg(arg));
        let answer = self.link.run_safely("importing", call).await?;
        // Some scripts have nothing to say but that they ran.
        match letter(&answer).unwrap_or(b'D') {
            b'D' => Ok(()),
            b'T' => Err(StoreError::Refused("a key is there twice".to_owned())),
            b'O' => Err(out_of_order()),
            _ => Err(odd("an unknown letter")),
        }
    }

    /// The keys of the account, which is registered when it is new.
    async fn root_in(&self, account: &str, channel: &str) -> Result<(u32, String), StoreError> {
        let account = self.registry.enter(&self.link, account, &Arc::from(channel)).await?;
        Ok((account, self.link.root(account)))
    }

    /// The keys of an account that another record has named before.
    async fn root_named(&self, account: &str) -> Result<String, StoreError> {
        let account = self.registry.find(&self.link, account).await?;
        account.map(|account| self.link.root(account)).ok_or_else(out_of_order)
    }

    /// The keys that an event or a message of this number is among.
    fn root_with(&self, number: u64) -> Result<String, StoreError> {
        let account = self.filling().accounts.get(&number).copied();
        account.map(|account| self.link.root(account)).ok_or_else(out_of_order)
    }

    /// Where to put a record, and by which script.
    async fn put(&self, record: &Moved) -> Result<(String, &'static Script, Args), StoreError> {
        let of = |root: String, script: &'static Script, args: Args| Ok((root, script, args));
        match record {
            Moved::Setting { .. } | Moved::Piece(_) | Moved::Event(_) | Moved::Claim(_) => {
                Err(odd("a record that is put in another way"))
            }
            Moved::Paused(paused) => {
                let (_, root) = self.root_in(&paused.account, &paused.channel).await?;
                let args = Args::default().arg(&paused.channel).arg(&paused.why).number(paused.since_ms);
                of(root, &script::PUT_PAUSED, args)
            }
            Moved::Key(key) => {
                self.filling().any_keys = true;
                of(self.link.root_of_moved(part_of(&key.key)), &script::PUT_KEYS, key_args(key))
            }
            Moved::Thread(thread) => {
                let (_, root) = self.root_in(&thread.account, &thread.channel).await?;
                of(root, &script::PUT_THREADS, thread_args(thread))
            }
            Moved::Name(name) => {
                of(self.root_named(&name.account).await?, &script::PUT_NAMES, Args::default().arg(&name.name).arg(&name.peer))
            }
            Moved::Copies(copies) => {
                of(self.root_with(ids::number_of(copies.event.0))?, &script::NOTE_COPIES, copies_args(copies))
            }
            Moved::Answer(answer) => of(self.root_with(answer.event)?, &script::PUT_ANSWERS, answer_args(answer)),
            Moved::Item(item) => {
                let first = item.events.first().copied().ok_or_else(out_of_order)?;
                of(self.root_with(first)?, &script::PUT_ITEMS, item_args(item))
            }
            Moved::Message(message) => {
                let (account, root) = self.root_in(&message.account, &message.channel).await?;
                self.filling().accounts.insert(message.number, account);
                of(root, &script::PUT_MESSAGES, message_args(message))
            }
            Moved::ProviderName(name) => {
                of(self.root_named(&name.account).await?, &script::PUT_PROVIDER_NAMES, provider_name_args(name))
            }
            Moved::Out(out) => of(self.root_with(out.number)?, &script::PUT_OUTS, out_args(out)),
            Moved::Attempt(attempt) => of(self.root_with(attempt.of)?, &script::PUT_ATTEMPTS, attempt_args(attempt)),
        }
    }

    /// Events of several accounts may be of one webhook: each account needs its body among its own keys.
    async fn event(&self, event: &EventRec, puts: &mut Vec<Put>) -> Result<(String, &'static Script, Args), StoreError> {
        let (account, root) = self.root_in(&event.account, &event.channel).await?;
        let (carrier_account, other) = {
            let mut filling = self.filling();
            filling.accounts.insert(event.number, account);
            let carrier = filling.accounts.get(&event.webhook).copied().ok_or_else(out_of_order)?;
            (carrier, filling.carriers.get(&(event.webhook, account)).copied())
        };
        if carrier_account == account {
            return Ok((root, &script::PUT_EVENTS, event_args(event, event.webhook, event.carried.as_ref())));
        }
        if let Some(carrier) = other {
            return Ok((root, &script::PUT_EVENTS, event_args(event, carrier, None)));
        }
        // It may be among those that were not sent yet.
        self.send_all(puts).await?;
        let carried = self.carried_by(event.webhook, carrier_account).await?;
        self.filling().carriers.insert((event.webhook, account), event.number);
        Ok((root, &script::PUT_EVENTS, event_args(event, event.number, Some(&carried))))
    }

    async fn carried_by(&self, webhook: u64, account: u32) -> Result<Carried, StoreError> {
        let (root, mut command) = (self.link.root(account), redis::cmd("HMGET"));
        command.arg(format!("{root}w:{}", name(webhook))).arg(&["headers", "body", "total"]);
        let mut row = Row::new(self.link.ask("importing", &root, command).await?)?;
        let (Some(headers), Some(body)) = (row.maybe_bytes()?, row.maybe_bytes()?) else { return Err(out_of_order()) };
        Ok(Carried { headers: KeptHeaders(headers), body: Bytes::from(body), events: row.small()? })
    }

    pub(super) async fn end_filling(&self) -> Result<(), StoreError> {
        let (highest, any_keys) = {
            let filling = self.filling();
            (filling.highest, filling.any_keys)
        };
        for entry in self.registry.accounts(&self.link).await? {
            let call = self.link.call(&script::RAISE, entry.account).arg(first_after(highest)).arg(highest);
            self.link.run_safely("ending an import", call).await?;
        }
        let call = self.link.shared_call(&script::END_IMPORT).arg(IMPORTING).arg(highest).flag(any_keys);
        self.link.run_safely("ending an import", call).await?;
        self.registry.forget();
        *self.filling() = Filling::default();
        Ok(())
    }
}

fn key_args(key: &KeyRec) -> Args {
    let args = Args::default().arg(key.key).arg(name(key.event)).number(key.at_ms);
    args.number(key.fingerprint).number(key.expires_ms)
}

fn thread_args(thread: &ThreadRec) -> Args {
    let hash = thread_hash(&thread.account, &thread.peer);
    let direction = if thread.last_direction == Direction::In { "in" } else { "out" };
    let args = Args::default().arg(hash).arg(&thread.peer).arg(&thread.channel).number(thread.last_ms);
    let args = args.maybe(thread.last_text.as_ref()).arg(direction).number(thread.unread);
    let numbered = |number: u64| (number > 0).then(|| name(number));
    args.maybe(numbered(thread.purged_to)).maybe(numbered(thread.read_to))
}

fn event_args(event: &EventRec, webhook: u64, carried: Option<&Carried>) -> Args {
    let args = Args::default().arg(name(event.number)).arg(name(webhook)).maybe(event.item.map(name)).number(event.received_ms);
    let args = args.arg(&*event.channel).arg(event.kind.name()).arg(&event.id).maybe(event.peer.as_ref()).flag(event.echo);
    let args = args.maybe_number(event.at_ms).maybe(event.text.as_ref()).number(event.index).maybe(event.thread);
    let args = args.flag(event.part).flag(event.kind.waits_in_thread()).flag(carried.is_some());
    match carried {
        None => args,
        Some(carried) => args.arg(&carried.headers.0).arg(&carried.body).number(carried.events),
    }
}

fn copies_args(copies: &Copies) -> Args {
    let at_s = copies.event.at_ms().unwrap_or_default() / 1_000;
    let args = Args::default().arg(name(ids::number_of(copies.event.0))).number(at_s);
    args.number(copies.copies).number(copies.conflicts).number(copies.last_ms).arg(copies.write_kept())
}

fn answer_args(kept: &AnswerRec) -> Args {
    let AnswerRec { event, answer } = kept;
    Args::default().arg(name(*event)).number(answer.status).maybe(answer.content_type.as_ref()).arg(&answer.body)
}

fn item_args(item: &ItemRec) -> Args {
    let events: Vec<String> = item.events.iter().map(|event| name(*event)).collect();
    let place = match item.place {
        ItemPlace::InLane => "L",
        ItemPlace::Parked => "P",
        ItemPlace::Quarantined => "Q",
    };
    let args = Args::default().arg(name(item.number)).arg(&*item.channel).arg(events.join(","));
    let args = args.number(item.received_ms).number(item.due_ms).number(item.attempt).number(item.failures);
    let args = args.maybe_number(item.replay).arg(place).maybe(item.why.as_ref());
    let args = args.maybe(write_replies(&item.replies)).number(item.replies.len());
    item.replies.iter().fold(args, reply_args)
}

/// As scripts read a new message.
fn reply_args(args: Args, new: &NewMessage) -> Args {
    let priority = Priority::ALL.iter().position(|known| *known == new.priority).unwrap_or_default();
    let args = args.arg(&*new.channel).arg(&new.peer).arg(&new.request_id).arg(new.fingerprint);
    let args = args.maybe(new.text.as_ref()).maybe(new.text.as_ref().map(|text| limits::preview(text)));
    let args = args.arg(&new.payload).number(priority).maybe(new.reply_to.map(|id| id.0.into_bytes()));
    args.maybe_number(new.send_at_ms)
}

fn message_args(message: &MessageRec) -> Args {
    let priority = Priority::ALL.iter().position(|known| *known == message.priority).unwrap_or_default();
    let args = Args::default().arg(name(message.number)).arg(message.thread).arg(&*message.channel).number(message.created_ms);
    let args = args.arg(&message.peer).arg(&message.request_id).arg(message.fingerprint).maybe(message.text.as_ref());
    let args = args.arg(&message.payload).number(priority).maybe(message.reply_to.map(|id| id.0.into_bytes()));
    let args = args.maybe(message.provider_id.as_ref()).maybe(message.why.as_ref()).maybe(write_past(&message.past).as_ref());
    args.steps(&message.steps)
}

fn provider_name_args(heard: &ProviderNameRec) -> Args {
    let args = Args::default().arg(&heard.provider_id).maybe(heard.message.map(name));
    match heard.message {
        Some(_) => args,
        None => args.number(heard.heard_ms).steps(&heard.early),
    }
}

fn out_args(out: &OutRec) -> Args {
    let args = Args::default().arg(name(out.number)).number(out.attempt).number(out.failures);
    args.maybe_number(out.due_ms).maybe_number(out.begun_ms).flag(out.unknown).flag(out.is_alone())
}

fn attempt_args(attempt: &AttemptRec) -> Args {
    let queue = if attempt.queue == Queue::Inbox { "i" } else { "m" };
    let args = Args::default().arg(queue).arg(name(attempt.of)).arg(name(attempt.item)).number(attempt.item_ms);
    let args = args.number(attempt.attempt).number(attempt.fence).arg(&attempt.worker).number(attempt.leased_ms);
    args.number(attempt.ended_ms).arg(&attempt.outcome).arg(&attempt.detail)
}
