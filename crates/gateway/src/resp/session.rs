//! One client: who it is, how it is spoken to, and its commands in the order in which they came.

use std::sync::Arc;

use bytes::Bytes;
use hapax_domain::claim::{ClaimAnswer, ClaimKey, ClaimOp, ValueLeft};
use hapax_store::StoreError;
use http::{HeaderMap, StatusCode};

use super::codec::{Bounds, Protocol, ProtocolError, Reply, Words};
use super::command::{self, Client, Command, Commands, Credentials, Hello, KNOWN, Known};
use super::plan::{Plan, Told};
use super::steps;
use super::{Door, SCOPE};
use crate::api::auth::{ByList, hash_token};
use crate::api::{Caller, Scope};
use crate::connections::peer::Peer;

/// Asked of the store in one call.
pub(super) const ASKS_MAX: usize = 128;
/// .. of which so many may have a long answer.
pub(super) const READS_MAX: usize = 16;
/// Values that are told in answer to one command.
const VALUES_MAX_BYTES: usize = 16 << 20;
/// What we say we are to clients that look: one that has all the options of `SET`.
const REDIS_VERSION: &str = "7.2.0";

pub(super) struct Session {
    door: Arc<Door>,
    peer: Peer,
    id: u64,
    pub(super) protocol: Protocol,
    name: Bytes,
    /// The hash of the token that was believed.
    token: Option<[u8; 32]>,
    believed_by: Option<ByList>,
    /// Nothing more is heard from this client.
    pub(super) over: bool,
}

/// Asks that wait for the next call of the store, and replies that wait for them.
#[derive(Default)]
struct Waiting {
    plans: Vec<Plan>,
    asks: usize,
    reads: usize,
}

impl Session {
    pub(super) fn new(door: Arc<Door>, peer: Peer, id: u64) -> Self {
        let (protocol, name) = Default::default();
        Self { door, peer, id, protocol, name, token: None, believed_by: None, over: false }
    }

    pub(super) fn is_known(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn bounds(&self) -> &'static Bounds {
        if self.is_known() { &Bounds::KNOWN } else { &Bounds::STRANGER }
    }

    /// What came cannot be read.
    pub(super) fn broken(&self, error: ProtocolError) {
        self.door.telemetry.broken(&error);
    }

    /// Carries out commands that came together; one reply each, in order. Those that follow the end of a session are not carried out.
    pub(super) async fn run(&mut self, commands: Vec<Words>) -> Vec<Reply> {
        self.look_again().await;
        let (mut replies, mut waiting) = (Vec::with_capacity(commands.len()), Waiting::default());
        for words in commands {
            let read = command::read(&words);
            self.door.telemetry.command(read.is_ok());
            let plan = match read {
                Err(reply) if self.is_known() => Plan::this(reply),
                Err(_) => Plan::this(no_auth()),
                Ok(command) => match self.plan(command) {
                    Ok(plan) => plan,
                    Err(own) => {
                        // What concerns the connection counts for what follows, and not for what came before.
                        self.door.ask(std::mem::take(&mut waiting), &mut replies).await;
                        let reply = self.own(own).await;
                        replies.extend(reply);
                        if self.over {
                            return replies;
                        }
                        continue;
                    }
                },
            };
            if !waiting.has_room_for(&plan) {
                self.door.ask(std::mem::take(&mut waiting), &mut replies).await;
            }
            waiting.push(plan);
        }
        self.door.ask(waiting, &mut replies).await;
        replies
    }

    /// A token may have been revoked since.
    async fn look_again(&mut self) {
        if let Some(hash) = self.token
            && !self.door.auth.believes_by(self.believed_by.as_ref())
            && !self.door.home.run(self.door.auth.believes_still(&hash, &mut self.believed_by, opens_the_door)).await
        {
            self.token = None;
        }
    }

    /// What a command asks of the store; `Err` gives those back that concern the connection.
    fn plan(&self, command: Command) -> Result<Plan, Command> {
        let own =
            matches!(command, Command::Hello(_) | Command::Auth(_) | Command::Client(_) | Command::Quit | Command::NotRedis);
        if own {
            return Err(command);
        }
        if !self.is_known() {
            return Ok(Plan::this(no_auth()));
        }
        let usual_ttl_ms = self.door.usual_ttl_ms;
        Ok(match command {
            Command::Set(set) => Plan::set(set, usual_ttl_ms),
            Command::Get(key) => Plan::get(&key),
            Command::GetMany(keys) => Plan::get_many(&keys),
            Command::Remove(keys) => Plan::remove(&keys),
            Command::Exists(keys) => Plan::exists(&keys),
            Command::Expire(expire) => Plan::expire(&expire),
            Command::TimeLeft { key, unit } => Plan::time_left(&key, unit),
            Command::Eval { script, call } => match self.door.scripts.load(&script) {
                Some((_, recipe)) => steps::begin(recipe, call, usual_ttl_ms).unwrap_or_else(Plan::this),
                None => Plan::this(self.door.unknown_script()),
            },
            Command::EvalSha { sha, call } => match self.door.scripts.by_hash(&sha) {
                Some(recipe) => steps::begin(recipe, call, usual_ttl_ms).unwrap_or_else(Plan::this),
                None => Plan::this(Reply::error("NOSCRIPT No matching script. Please use EVAL.")),
            },
            Command::ScriptLoad(script) => Plan::this(match self.door.scripts.load(&script) {
                Some((sha, _)) => Reply::Bulk(Bytes::from(sha)),
                None => self.door.unknown_script(),
            }),
            Command::ScriptExists(shas) => {
                let known = |sha: &String| Reply::Number(i64::from(self.door.scripts.by_hash(sha).is_some()));
                Plan::this(Reply::Array(shas.iter().map(known).collect()))
            }
            Command::Ping(None) => Plan::this(Reply::Simple("PONG")),
            Command::Ping(Some(words)) | Command::Echo(words) => Plan::this(Reply::Bulk(words)),
            Command::Info => Plan::this(Reply::Text(info())),
            Command::Commands(commands) => Plan::this(described(commands)),
            Command::Select => Plan::this(Reply::OK),
            own => return Err(own),
        })
    }

    async fn own(&mut self, command: Command) -> Option<Reply> {
        Some(match command {
            Command::NotRedis => {
                self.door.telemetry.not_redis(self.peer.0);
                self.over = true;
                return None;
            }
            Command::Quit => {
                self.over = true;
                Reply::OK
            }
            Command::Auth(credentials) => self.sign_in(&credentials).await.err().unwrap_or(Reply::OK),
            Command::Hello(hello) => self.hello(hello).await.unwrap_or_else(|refused| refused),
            _ if !self.is_known() => no_auth(),
            Command::Client(Client::Id) => Reply::Number(i64::try_from(self.id).unwrap_or(i64::MAX)),
            Command::Client(Client::GetName) if self.name.is_empty() => Reply::Nil,
            Command::Client(Client::GetName) => Reply::Bulk(self.name.clone()),
            Command::Client(Client::SetName(name)) => {
                self.name = name;
                Reply::OK
            }
            _ => Reply::OK,
        })
    }

    /// Wrong tokens are answered late, and later each time, like those of requests.
    async fn sign_in(&mut self, credentials: &Credentials) -> Result<(), Reply> {
        let headers = HeaderMap::new();
        let asked = self.door.home.run(self.door.auth.holder(&credentials.token, &headers, Some(self.peer))).await;
        match asked {
            Ok(caller) if opens_the_door(&caller) => {
                (self.token, self.believed_by) = (Some(hash_token(&credentials.token)), None);
                Ok(())
            }
            Ok(_) => Err(Reply::error("NOPERM this takes a token of scope `work` that is not limited to channels")),
            Err(problem) => Err(match problem.status() {
                StatusCode::TOO_MANY_REQUESTS => {
                    Reply::error("ERR too many wrong tokens came from this address; try again later")
                }
                StatusCode::UNAUTHORIZED => Reply::error("WRONGPASS invalid username-password pair or user is disabled."),
                _ => Reply::error("ERR tokens are kept in the store, which cannot be asked now; try again"),
            }),
        }
    }

    async fn hello(&mut self, hello: Hello) -> Result<Reply, Reply> {
        if let Some(credentials) = &hello.credentials {
            self.sign_in(credentials).await?;
        }
        if !self.is_known() {
            return Err(Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
                 option can be used to authenticate the client and select the RESP protocol version at the same time",
            ));
        }
        self.protocol = hello.protocol.unwrap_or(self.protocol);
        self.name = hello.name.unwrap_or_else(|| self.name.clone());
        Ok(Reply::Map(vec![
            ("server", Reply::bulk("redis")),
            ("version", Reply::bulk(REDIS_VERSION)),
            ("proto", Reply::Number(self.protocol.number())),
            ("id", Reply::Number(i64::try_from(self.id).unwrap_or(i64::MAX))),
            ("mode", Reply::bulk("standalone")),
            ("role", Reply::bulk("master")),
            ("modules", Reply::Array(Vec::new())),
        ]))
    }
}

impl Waiting {
    fn has_room_for(&self, plan: &Plan) -> bool {
        self.plans.is_empty() || self.asks + plan.asks.len() <= ASKS_MAX && self.reads + reads(&plan.asks) <= READS_MAX
    }

    fn push(&mut self, plan: Plan) {
        self.asks += plan.asks.len();
        self.reads += reads(&plan.asks);
        self.plans.push(plan);
    }
}

pub(super) fn reads(asks: &[(ClaimKey, ClaimOp)]) -> usize {
    asks.iter().filter(|(_, op)| matches!(op, ClaimOp::Get | ClaimOp::Set { tell: true, .. })).count()
}

impl Door {
    /// Asks the store, in as few calls as may be, and tells what it said.
    async fn ask(&self, mut waiting: Waiting, replies: &mut Vec<Reply>) {
        if waiting.plans.len() < 2 {
            if let Some(Plan { asks, tell }) = waiting.plans.pop() {
                let answered = if asks.is_empty() { Ok(Vec::new()) } else { self.answers(asks).await };
                replies.push(match answered {
                    Ok(answers) => self.told(tell.of(answers)).await,
                    Err(reply) => reply,
                });
            }
            return;
        }
        let counts: Vec<usize> = waiting.plans.iter().map(|plan| plan.asks.len()).collect();
        let (mut asks, mut tells) = (Vec::with_capacity(waiting.asks), Vec::with_capacity(counts.len()));
        for plan in waiting.plans {
            asks.extend(plan.asks);
            tells.push(plan.tell);
        }
        let mut answers = match self.answers(asks).await {
            Ok(answers) => answers.into_iter(),
            Err(reply) => {
                // The store has done none of it; what needs no store is told all the same.
                let told = tells.into_iter().zip(counts).map(|(tell, count)| match (count, tell.of(Vec::new())) {
                    (0, Told::Reply(known)) => known,
                    _ => reply.clone(),
                });
                return replies.extend(told);
            }
        };
        for (tell, count) in tells.into_iter().zip(counts) {
            replies.push(self.told(tell.of(answers.by_ref().take(count).collect())).await);
        }
    }

    /// What a command comes to in the end: a script may have more steps.
    async fn told(&self, mut told: Told) -> Reply {
        loop {
            match told {
                Told::Reply(reply) => return reply,
                Told::Next(plan) => match self.answers(plan.asks).await {
                    Ok(answers) => told = plan.tell.of(answers),
                    Err(reply) => return reply,
                },
            }
        }
    }

    /// One answer each. Few commands have more asks than one call takes.
    async fn answers(&self, mut asks: Vec<(ClaimKey, ClaimOp)>) -> Result<Vec<ClaimAnswer>, Reply> {
        let at_once = |asks: &[_]| if reads(asks) > 0 { READS_MAX } else { ASKS_MAX };
        if asks.len() <= at_once(&asks) {
            return self.gathering.ask(asks).await.map_err(|error| self.trouble(&error));
        }
        let (mut answers, mut values_bytes) = (Vec::with_capacity(asks.len()), 0);
        while !asks.is_empty() {
            let rest = asks.split_off(at_once(&asks).min(asks.len()));
            let answered = self.gathering.ask(std::mem::replace(&mut asks, rest)).await.map_err(|error| self.trouble(&error))?;
            values_bytes += answered.iter().map(value_bytes).sum::<usize>();
            if values_bytes > VALUES_MAX_BYTES {
                return Err(Reply::error("ERR these values are too long together; ask for fewer keys at once"));
            }
            answers.extend(answered);
        }
        Ok(answers)
    }

    fn trouble(&self, error: &StoreError) -> Reply {
        self.telemetry.store_unavailable(error);
        Reply::error(match error {
            StoreError::Full { .. } => "MISCONF the disk is full; nothing was changed",
            StoreError::Refused(_) => "ERR the store refuses this; nothing was changed",
            _ => "ERR the store cannot do it now; nothing was changed, try again",
        })
    }

    fn unknown_script(&self) -> Reply {
        self.telemetry.unknown_script();
        Reply::error(
            "ERR only the scripts of common lock libraries are known here, and this is none of them; see docs/redis-door.md",
        )
    }
}

fn value_bytes(answer: &ClaimAnswer) -> usize {
    match answer {
        ClaimAnswer::Value(Some(ValueLeft { value, .. })) => value.len(),
        ClaimAnswer::Set { previous: Some(value) } | ClaimAnswer::NotSet { found: Some(value) } => value.len(),
        _ => 0,
    }
}

/// Claims of a token that is limited to channels are in scopes that are called like them.
fn opens_the_door(caller: &Caller) -> bool {
    caller.may(Scope::Work) && caller.sees(SCOPE)
}

fn no_auth() -> Reply {
    Reply::error("NOAUTH Authentication required.")
}

/// What clients look for before they say that they are ready.
fn info() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:hapax\r\nhapax_version:{version}\r\n\r\n\
         # Persistence\r\nloading:0\r\naof_enabled:1\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n"
    )
}

fn described(commands: Commands) -> Reply {
    let one = |known: &Known| {
        let (first, last, step) = known.keys;
        let flag = if known.writes { "write" } else { "readonly" };
        Reply::Array(vec![
            Reply::bulk(known.name),
            Reply::Number(known.arity),
            Reply::Array(vec![Reply::Simple(flag)]),
            Reply::Number(first),
            Reply::Number(last),
            Reply::Number(step),
        ])
    };
    let shown = || KNOWN.iter().filter(|known| known.is_shown());
    match commands {
        Commands::All => Reply::Array(shown().map(one).collect()),
        Commands::Count => Reply::Number(shown().count() as i64),
        Commands::Named(names) => {
            Reply::Array(names.iter().map(|name| shown().find(|known| known.name == name).map_or(Reply::Nil, one)).collect())
        }
        Commands::Docs => Reply::Array(Vec::new()),
    }
}
