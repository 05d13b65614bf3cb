//! A problem, as a page.

use axum::response::{IntoResponse, Response};
use maud::html;

use super::layout;
use crate::api::Problem;

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
        let body = html! {
            section.trouble {
                p.trouble-code { (status.as_u16()) }
                h1 { (code.title()) }
                p { (detail) }
                p { a.button href="/" { "To the overview" } }
            }
        };
        (status, layout::bare(code.title(), body)).into_response()
    }
}
