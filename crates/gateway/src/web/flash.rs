//! What an action came to, told on the next page that is shown, and only there.

use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode, header};

use super::cookies;
use super::trouble::Trouble;
use crate::api::Problem;
use crate::api::audit::Noted;

const COOKIE: &str = "hapax_flash";
const KEEP_S: i64 = 60;
const WORDS_MAX_CHARS: usize = 500;

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flash {
    pub(super) good: bool,
    pub(super) words: String,
}

impl Flash {
    pub(super) fn done(words: impl Into<String>) -> Self {
        Self { good: true, words: words.into() }
    }

    pub(super) fn failed(words: impl Into<String>) -> Self {
        Self { good: false, words: words.into() }
    }

    /// What is not there any more, or not so any more, is told kindly: somebody else was faster.
    pub(super) fn of(done: Result<String, Problem>) -> Result<Self, Trouble> {
        match done {
            Ok(words) => Ok(Self::done(words)),
            Err(problem) if problem.status().is_client_error() && problem.status() != StatusCode::FORBIDDEN => {
                Ok(Self::failed(problem.told().1))
            }
            Err(problem) => Err(problem.into()),
        }
    }

    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let text = URL_SAFE_NO_PAD.decode(cookies::read(headers, COOKIE)?).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (mark, words) = text.split_at_checked(1)?;
        Some(Self { good: mark == "+", words: words.chars().take(WORDS_MAX_CHARS).collect() })
    }

    /// Goes to a page and tells it there.
    pub(super) fn at(self, path: &str) -> Response {
        let mark = if self.good { '+' } else { '-' };
        let words: String = std::iter::once(mark).chain(self.words.chars().take(WORDS_MAX_CHARS)).collect();
        let mut response = Redirect::to(path).into_response();
        let cookie = cookies::set(COOKIE, &URL_SAFE_NO_PAD.encode(words), KEEP_S, false);
        response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
        response.extensions_mut().insert(Noted { target: None, result: Some(self.words), failed: !self.good });
        response
    }

    /// The same of something that the path does not name.
    pub(super) fn at_with(self, path: &str, target: Option<String>) -> Response {
        let noted = Noted { target, result: Some(self.words.clone()), failed: !self.good };
        let mut response = self.at(path);
        response.extensions_mut().insert(noted);
        response
    }

    /// It was shown.
    pub(super) fn forget(response: &mut Response) {
        response.headers_mut().extend(cookies::set(COOKIE, "", 0, false).map(|cookie| (header::SET_COOKIE, cookie)));
    }
}
