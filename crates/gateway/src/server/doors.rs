//! What the listeners open to. A reload puts new fronts behind them; requests that are inside end with the one they met.

use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use super::Beside;
use super::front::Front;
use crate::connections::client::Client;

/// One listener's front, as long as it stands.
pub(super) struct Door(RwLock<Arc<Front>>);

impl Door {
    fn new(front: Front) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(front))))
    }

    pub(super) fn handle(
        &self,
        request: Request<Incoming>,
        client: Client,
    ) -> impl Future<Output = Response<Either<Full<Bytes>, axum::body::Body>>> + Send + use<> {
        let front = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        front.handle(request, client)
    }

    fn put(&self, front: Front) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(front);
    }
}

/// What stands behind each listener.
pub(super) struct Fronts {
    pub(super) public: Front,
    pub(super) admin: Option<Front>,
    pub(super) dropin: Option<Front>,
}

/// The listeners' doors.
pub(super) struct Doors {
    pub(super) public: Arc<Door>,
    pub(super) admin: Option<Arc<Door>>,
    pub(super) dropin: Option<Arc<Door>>,
}

impl Doors {
    pub(super) fn new(fronts: Fronts) -> Self {
        let Fronts { public, admin, dropin } = fronts;
        Self { public: Door::new(public), admin: admin.map(Door::new), dropin: dropin.map(Door::new) }
    }

    pub(super) fn beside(&self) -> Beside {
        Beside { admin: self.admin.is_some(), dropin: self.dropin.is_some() }
    }

    /// Which listeners there are never changes, so neither does which fronts there are.
    pub(super) fn put(&self, fronts: Fronts) {
        self.public.put(fronts.public);
        for (door, front) in [(&self.admin, fronts.admin), (&self.dropin, fronts.dropin)] {
            if let (Some(door), Some(front)) = (door, front) {
                door.put(front);
            }
        }
    }
}
