//! A problem, as a page.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use maud::{Markup, html};

use super::layout;
use super::visitor::Visitor;
use crate::api::{Code, Problem};

/// An answer that is no success.
pub(super) struct Trouble(Problem);

impl<P: Into<Problem>> From<P> for Trouble {
    fn from(problem: P) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let status = self.0.status();
        let (code, detail) = self.0.told();
        let said = Said { status, code, detail };
        let mut response = (status, layout::bare(code.title(), said.words())).into_response();
        response.extensions_mut().insert(code);
        response.extensions_mut().insert(said);
        response
    }
}

/// What was said of a problem, put beside its page for who knows whom it is shown to.
#[derive(Clone)]
pub(super) struct Said {
    status: StatusCode,
    code: Code,
    detail: String,
}

impl Said {
    fn words(&self) -> Markup {
        html! {
            section.trouble {
                p.trouble-code { (self.status.as_u16()) }
                h1 { (self.code.title()) }
                p { (self.detail) }
                p { a.button href="/" { "To the overview" } }
            }
        }
    }

    /// Who has signed in keeps the menu.
    pub(super) fn to(&self, visitor: &Visitor) -> Markup {
        layout::page(visitor, self.code.title(), None, self.words())
    }
}
