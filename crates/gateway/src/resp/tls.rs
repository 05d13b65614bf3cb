//! TLS for the door, from files in PEM.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate and its key, ready to be used.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// Which of the two files is wrong, and why.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    #[error("{0}")]
    Certificate(String),
    #[error("{0}")]
    Key(String),
}

impl Tls {
    /// Reads a certificate, with those that vouch for it behind it, and its key.
    pub fn read(certificate: &str, key: &str) -> Result<Self, BadTls> {
        let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let chain = chain.map_err(|error| BadTls::Certificate(format!("this is no certificate in PEM ({error})")))?;
        if chain.is_empty() {
            return Err(BadTls::Certificate(
                "there is no certificate in this file; it begins with -----BEGIN CERTIFICATE-----".to_owned(),
            ));
        }
        // What is wrong with a key is told without a part of it.
        let no_key =
            || BadTls::Key("there is no private key in this file; it begins with -----BEGIN PRIVATE KEY-----".to_owned());
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| no_key())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = versions.and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let config = config.map_err(|error| BadTls::Key(format!("this key does not go with the certificate ({error})")))?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// `None`: the other side did not get through with it, or not in time.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, within: Duration) -> Option<TlsStream<S>> {
        tokio::time::timeout(within, self.0.accept(stream)).await.ok()?.ok()
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}
