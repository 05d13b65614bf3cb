//! `/threads/{thread}`: one conversation, as a chat: what was said, how far each message has come, and a box to answer in.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Response};
use hapax_domain::filter::{Word, written};
use maud::{Markup, html};
use serde::Deserialize;

use super::Web;
use super::bubbles;
use super::components::{confirm, in_path, in_query, short, when_text};
use super::flash::Flash;
use super::icons::icon;
use super::layout::{Nav, fitting, page};
use super::threads::face;
use super::trouble::Trouble;
use super::visitor::Visitor;
use crate::api::chat::{self, Chat};
use crate::api::events::read_thread;
use crate::api::list::Asked;
use crate::api::threads::Thread;
use crate::api::{Code, Problem, Scope, messages, send, takeovers};
use crate::takeover::Mode;

const MESSAGES: usize = 50;
/// A page has the name of its thread in many places. Of a longer one it only shows what was said.
const NAME_MAX_BYTES: usize = 2_000;
/// As many characters as the box takes; providers take fewer, and say so.
const TEXT_MAX_CHARS: usize = 10_000;

#[derive(Deserialize)]
pub(super) struct Params {
    cursor: Option<String>,
}

pub(super) async fn show(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(id): Path<String>,
    Asked(asked): Asked<Params>,
) -> Result<Response, Trouble> {
    shown(&web, &visitor, &id, asked.cursor.as_deref(), Compose::default()).await
}

/// What the box holds when the page is shown.
#[derive(Default)]
struct Compose {
    text: String,
    /// What has to be said about it.
    trouble: Option<String>,
    /// The name it goes by; one that was never used, where there is none.
    request_id: Option<String>,
}

async fn shown(web: &Web, visitor: &Visitor, id: &str, cursor: Option<&str>, compose: Compose) -> Result<Response, Trouble> {
    Ok(fitting(MESSAGES, |most| made(web, visitor, id, cursor, &compose, most)).await?.into_response())
}

async fn made(
    web: &Web,
    visitor: &Visitor,
    id: &str,
    cursor: Option<&str>,
    compose: &Compose,
    most: usize,
) -> Result<Markup, Trouble> {
    let chat = chat::read(&web.api, &visitor.caller, &read_thread(id)?, cursor, most).await?;
    let path = Some(format!("/threads/{}", in_path(&chat.thread.id))).filter(|path| path.len() <= NAME_MAX_BYTES);
    let here = path.as_deref().unwrap_or_default();
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href="/threads" { "Threads" }
            @if path.is_some() { a href={ "/events?q=" (in_query(&written(Word::Thread, &chat.thread.id))) } { "its events" } } }
        (head(visitor, &chat.thread, path.as_deref()))
        div.chat {
            div #chat data-live=[cursor.is_none().then_some("chat")] {
                @if let Some(next) = &chat.next { p.earlier { a.button href={ (here) "?cursor=" (in_query(next)) } { "Earlier" } } }
                (bubbles::all(&chat, visitor))
                @if cursor.is_some() { p.earlier { a.button href={ (here) "?" } { "To the newest" } } }
            }
            @if cursor.is_none() { (compose_box(visitor, &chat, path.as_deref(), compose)) }
        }
    };
    Ok(page(visitor, &short(&chat.thread.peer), Nav::Threads, body))
}

fn head(visitor: &Visitor, thread: &Thread, path: Option<&str>) -> Markup {
    let may = visitor.caller.may(Scope::Send) && path.is_some();
    let path = path.unwrap_or_default();
    html! {
        header.head.talker {
            (face(&thread.peer))
            div { h1 { (short(&thread.peer)) } p.quiet { (thread.channel) " · account " (short(&thread.account))
                @if !thread.aliases.is_empty() { " · also known as " (short(&thread.aliases.join(", "))) } } }
            div.actions #takeover data-live="replace" {
                @if thread.unread > 0 && may { form method="post" action={ (path) "/read" } { button type="submit" { (icon("checks")) "Mark as read" } } }
                @match &thread.paused {
                    Some(paused) => {
                        p.notice.warn { (icon("pause")) span { (paused.by) " has taken over " (when_text(&paused.since, visitor.now_ms)) "; what comes in "
                            @if paused.mode == "done" { "is theirs" } @else { "waits for the bot" } "." } }
                        @if may { form method="post" action={ (path) "/resume" } { button.primary type="submit" { (icon("repeat")) "Hand back to the bot" } } }
                    }
                    None => @if may {
                        (confirm(&format!("{path}/pause"), "Take over", "person",
                            "The bot gets nothing more of this thread. What comes in waits, in order, until you hand it back.", &[("mode", "wait")]))
                        (confirm(&format!("{path}/pause"), "Take over for good", "archive",
                            "The bot gets nothing more of this thread. What comes in is marked as done: you see to it, and the bot never gets it.",
                            &[("mode", "done")]))
                    },
                }
            }
        }
    }
}

/// The box to answer in; where nothing can be sent, why.
fn compose_box(visitor: &Visitor, chat: &Chat, path: Option<&str>, compose: &Compose) -> Markup {
    let cannot = match &chat.cannot_send {
        _ if !visitor.caller.may(Scope::Send) => {
            Some("Your token may look, and not send: this takes the scope `send`.".to_owned())
        }
        cannot => cannot.clone(),
    };
    let (None, Some(path)) = (&cannot, path) else {
        let why = cannot.unwrap_or_else(|| "The name of this thread is too long for a box; `hapax send` takes it.".to_owned());
        return html! { p.notice.quiet.closed { (icon("shield")) (why) } };
    };
    // Made here for browsers without a script; a script makes one when the text is first typed.
    let request_id = compose.request_id.clone().unwrap_or_else(|| format!("web-{}", hex::encode(rand::random::<[u8; 12]>())));
    let needs_a_name = compose.trouble.is_some() && compose.request_id.is_none();
    html! {
        @if let Some(trouble) = &compose.trouble { p.notice.warn role="alert" { (icon("alert")) (trouble) } }
        form.compose #compose method="post" action={ (path) "/send" } autocomplete="off" data-compose=(chat.thread.id)
            data-refused=[needs_a_name.then_some("1")] {
            input type="hidden" name="request_id" value=(request_id) autocomplete="off";
            label.unseen for="text" { "Message to " (short(&chat.thread.peer)) }
            textarea #text name="text" rows="1" required maxlength=(TEXT_MAX_CHARS) placeholder="Write a message" autocomplete="off" {
                "\n" (compose.text)
            }
            button.primary type="submit" { (icon("send")) "Send" }
        }
        p.quiet.hint { "Enter sends, Shift and Enter begins a line. However often you press it, it is sent once." }
    }
}

#[derive(Deserialize)]
pub(super) struct Written {
    text: String,
    request_id: String,
}

/// Sends what was written. The same form twice is one message.
pub(super) async fn send(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(id): Path<String>,
    written: Result<Form<Written>, FormRejection>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Send)?;
    let Form(written) = written.map_err(|rejection| Problem::bad_request(rejection.body_text()))?;
    // Browsers write lines in their own way.
    let text = written.text.replace("\r\n", "\n");
    let thread = chat::thread(&web.api, &visitor.caller, &read_thread(&id)?).await?;
    let sent = send::text(&web.api, &visitor.caller, &thread, text.clone(), written.request_id.clone()).await;
    let problem = match sent {
        Ok(_) => {
            let path = format!("/threads/{}?sent={}#end", in_path(&thread.id), in_query(&written.request_id));
            return Ok(axum::response::Redirect::to(&path).into_response());
        }
        Err(problem) => problem,
    };
    let (status, (code, detail)) = (problem.status(), problem.told());
    let compose = match code {
        Code::RequestIdMismatch => {
            let words = "This box had sent another text already, so this one was not sent. If you mean it as a further message, press Send once more.";
            Compose { text, trouble: Some(words.to_owned()), request_id: None }
        }
        // Under the same name: whatever became of the first try, it is sent once.
        _ => Compose { text, trouble: Some(format!("It was not sent: {detail}")), request_id: Some(written.request_id) },
    };
    let page = shown(&web, &visitor, &id, None, compose).await?;
    Ok((status, page).into_response())
}

#[derive(Deserialize)]
pub(super) struct PauseForm {
    #[serde(default)]
    mode: String,
}

pub(super) async fn pause(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path(id): Path<String>,
    Form(asked): Form<PauseForm>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Send)?;
    let mode = Mode::from_name(&asked.mode).unwrap_or(Mode::Wait);
    takeovers::take_over(&web.api, &visitor.caller, &read_thread(&id)?, mode).await?;
    let words = match mode {
        Mode::Wait => "This thread is yours. What comes in waits for the bot until you hand it back.",
        Mode::Done => "This thread is yours. What comes in is marked as done; the bot does not get it.",
    };
    Ok(Flash::done(words).at(&format!("/threads/{}", in_path(&id))))
}

pub(super) async fn resume(State(web): State<Arc<Web>>, visitor: Visitor, Path(id): Path<String>) -> Result<Response, Trouble> {
    visitor.need(Scope::Send)?;
    let was = takeovers::hand_back(&web.api, &visitor.caller, &read_thread(&id)?).await?;
    let flash = match was {
        Some(_) => Flash::done("The bot has this thread again. What waited comes to it in order, within ten seconds."),
        None => Flash::failed("Nobody had taken this thread over any more."),
    };
    Ok(flash.at(&format!("/threads/{}", in_path(&id))))
}

pub(super) async fn read(State(web): State<Arc<Web>>, visitor: Visitor, Path(id): Path<String>) -> Result<Response, Trouble> {
    visitor.need(Scope::Send)?;
    let Json(_) = crate::api::threads::read(State(Arc::clone(&web.api)), visitor.caller.clone(), Path(id.clone())).await?;
    Ok(axum::response::Redirect::to(&format!("/threads/{}", in_path(&id))).into_response())
}

/// A message is sent once more, or given up.
pub(super) async fn message(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    Path((id, verb)): Path<(String, String)>,
) -> Result<Response, Trouble> {
    visitor.need(Scope::Send)?;
    let (api, caller) = (State(Arc::clone(&web.api)), visitor.caller.clone());
    let found = messages::one(api.clone(), caller.clone(), Path(id.clone())).await?;
    let done = match verb.as_str() {
        "retry" => messages::retry(api, caller, Path(id)).await.map(|_| "It is in line once more."),
        "cancel" => {
            messages::cancel(api, caller, Path(id)).await.map(|_| "It is given up: nobody sends it or waits for it any more.")
        }
        _ => return Err(Problem::not_found("there is nothing like that to do with a message").into()),
    };
    let back = format!("/threads/{}", in_path(&found.0.thread));
    Ok(match done {
        Ok(words) => Flash::done(words).at(&back),
        Err(problem) if problem.status().is_client_error() => Flash::failed(problem.told().1).at(&back),
        Err(problem) => return Err(problem.into()),
    })
}
