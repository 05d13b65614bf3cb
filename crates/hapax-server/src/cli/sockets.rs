//! Sockets that a service manager has opened for us and holds while we restart; those it has not, we open ourselves.

use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::TcpListener;

use super::Failure;

#[derive(Default)]
pub(super) struct Sockets(Vec<std::net::TcpListener>);

impl Sockets {
    /// Takes what was handed over by `LISTEN_FDS`; none where nobody does that.
    pub(super) fn handed_over() -> Result<Self, Failure> {
        let mut handed = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..handed.len() {
            let taken = handed.take_tcp_listener(index);
            let taken = taken.map_err(|why| mismatch(format!("socket {index} of LISTEN_FDS listens for no TCP: {why}")))?;
            sockets.extend(taken);
        }
        Ok(Self(sockets))
    }

    /// The one at exactly this address, or a new one. What an address lets in is decided by the config: a socket that is open to more
    /// than that must not take its place.
    pub(super) async fn at(&mut self, address: SocketAddr) -> Result<TcpListener, Failure> {
        let fits = |socket: &std::net::TcpListener| socket.local_addr().is_ok_and(|at| at == address);
        let Some(index) = self.0.iter().position(fits) else { return bind(address).await };
        let socket = self.0.swap_remove(index);
        let ready = socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket));
        ready.map_err(|why| Failure::plain(format!("cannot listen on {address}: {why}")))
    }

    pub(super) async fn at_also(&mut self, address: Option<SocketAddr>) -> Result<Option<TcpListener>, Failure> {
        match address {
            Some(address) => Ok(Some(self.at(address).await?)),
            None => Ok(None),
        }
    }

    /// A socket that nobody serves would let clients wait for ever.
    pub(super) fn all_are_served(self) -> Result<(), Failure> {
        match self.0.iter().find_map(|socket| socket.local_addr().ok()) {
            None => Ok(()),
            Some(address) => Err(mismatch(format!(
                "a socket on {address} was handed over, and no address of the config is that one; write ListenStream= in \
                 hapax.socket as `listen` is written in the config, or take it out"
            ))),
        }
    }
}

fn mismatch(words: String) -> Failure {
    Failure::NoConfig(words)
}

pub(super) async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|why| {
        let todo = match why.kind() {
            std::io::ErrorKind::AddrInUse => "; is another hapax running? Choose another with --listen",
            std::io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege, choose another with --listen",
            _ => "",
        };
        Failure::plain(format!("cannot listen on {address}: {why}{todo}"))
    })
}
