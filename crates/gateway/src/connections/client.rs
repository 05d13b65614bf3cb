//! What is known of a request's connection before the request is read.

use super::alarm::Alarm;
use super::peer::Peer;
use super::places::Standing;

/// The other end of a connection. Each of its requests is handed over with it.
#[derive(Clone)]
pub struct Client {
    pub peer: Peer,
    pub standing: Standing,
    /// For waits of the one request that is being answered.
    pub alarm: Alarm,
}

impl Client {
    /// Writes on a request who sent it, for handlers that get nothing but requests.
    pub(crate) fn sign<B>(self, request: &mut http::Request<B>) {
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.standing);
    }
}
